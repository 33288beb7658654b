// Test bench of replay_decision.h.
#include <fastcar/replay_decision.h>

#include "bench.h"

using namespace bench;

namespace {

struct Step {
    std::vector<int64_t> score;
    std::vector<int64_t> age;
    int64_t threshold;
    bool eligible;
    int64_t max_age;
};

// Rows beyond the step hold what would replay.
uint32_t decision(const Step& step, int policy) {
    int64_t score[32];
    int32_t age[32];
    for (int row = 0; row < 32; row++) {
        const bool exists = row < (int)step.score.size();
        score[row] = exists ? step.score[row] : (int64_t)1 << 36;
        age[row] = exists ? (int32_t)step.age[row] : 0;
    }
    return fastcar::replay_decision(score, step.threshold, step.eligible, age, (int32_t)step.max_age, policy,
                                    (int)step.score.size())
        .to_uint();
}

// In words: alone; the mean score of all; all or none. A row that may not replay vetoes the others.
uint32_t reference(const Step& step, int policy) {
    const int rows = (int)step.score.size();
    __int128 sum = 0;
    for (const int64_t score : step.score) sum += score;
    uint32_t replays = 0;
    bool all = true;
    for (int row = 0; row < rows; row++) {
        const __int128 beyond = policy == fastcar::POLICY_MEAN ? sum - (__int128)step.threshold * rows
                                                               : (__int128)step.score[row] - step.threshold;
        const bool passes = beyond > 0 && step.eligible && step.age[row] < step.max_age;
        if (passes) replays += 1u << row;
        all = all && passes;
    }
    return policy == fastcar::POLICY_INDEPENDENT || all ? replays : 0;
}

Step random_step(Random& random, int rows) {
    Step step;
    step.threshold = random.between(-1000, 1000);
    const int64_t lift = random.chance(50) ? 0 : 1000;  // half of the steps pass in most rows
    for (int row = 0; row < rows; row++) {
        step.score.push_back(step.threshold + (random.chance(20) ? 0 : random.between(-900, 1100) + lift));
        step.age.push_back(random.chance(90) ? 0 : random.between(0, 4));
    }
    step.eligible = random.chance(90);
    step.max_age = random.between(1, 4);
    return step;
}

void check(const Step& step) {
    for (const int policy : {fastcar::POLICY_INDEPENDENT, fastcar::POLICY_MEAN, fastcar::POLICY_ALL}) {
        const std::string name = "policy " + std::to_string(policy) + ", rows " + std::to_string(step.score.size());
        expect(name, 0, decision(step, policy), reference(step, policy));
    }
}

void seeded() {
    Random random(7);
    for (const int rows : {1, 2, 5, 10, 31, 32}) {
        for (int round = 0; round < 400; round++) check(random_step(random, rows));
        const std::vector<int64_t> none(rows, 0);
        check(Step{std::vector<int64_t>(rows, ((int64_t)1 << 36) - 1), none, (int64_t)1 << 40, true, 1});
        check(Step{std::vector<int64_t>(rows, -((int64_t)1 << 36)), none, -((int64_t)1 << 40), true, INT32_MAX});
        check(Step{std::vector<int64_t>(rows, 5), none, 5, true, 1});  // at the threshold, not beyond it
    }
}

void golden(const Case& one) {
    const Step step = {one.integers("score"), one.integers("age"), one.number("threshold"), one.number("eligible") != 0,
                       one.number("max_age")};
    const std::vector<int64_t> replays = one.integers("replays");
    const uint32_t bits = decision(step, (int)one.number("policy"));
    for (int row = 0; row < 32; row++) {
        expect(one.name, row, (int64_t)(bits >> row & 1u), row < (int)replays.size() ? replays[row] : 0);
    }
}

}  // namespace

int main(int argc, char** argv) { return run("replay_decision", argc, argv, seeded, golden); }
