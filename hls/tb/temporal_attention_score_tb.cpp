// Test bench of temporal_attention_score.h.
#include <fastcar/temporal_attention_score.h>

#include <algorithm>
#include <numeric>

#include "bench.h"

using namespace bench;

namespace {

constexpr int MAX_HEADS = 128;
constexpr int MAX_HEAD_BEATS = 16;

struct Heads {
    int heads;
    int kv_heads;
    int head_dim;
    std::vector<int8_t> q;  // (heads, head_dim)
    std::vector<int8_t> k;  // (kv_heads, head_dim)
    std::vector<int64_t> multiplier;
};

int64_t score_of(const Heads& heads, fastcar::HeadReduction reduction) {
    static beat_t q[MAX_HEADS * MAX_HEAD_BEATS];
    static beat_t k[MAX_HEADS * MAX_HEAD_BEATS];
    int32_t multiplier[MAX_HEADS] = {};
    const int beats = heads.head_dim / 16;
    for (int beat = 0; beat < heads.heads * beats; beat++) q[beat] = beat_of(&heads.q[16 * beat]);
    for (int beat = 0; beat < heads.kv_heads * beats; beat++) k[beat] = beat_of(&heads.k[16 * beat]);
    for (int head = 0; head < heads.heads; head++) multiplier[head] = (int32_t)heads.multiplier[head];
    return fastcar::temporal_attention_score<MAX_HEADS, MAX_HEAD_BEATS>(q, k, multiplier, heads.heads,
                                                                        heads.heads / heads.kv_heads, beats, reduction);
}

// One key dimension after the other, heads innermost; then the heads in order of their terms.
int64_t reference(const Heads& heads, fastcar::HeadReduction reduction) {
    std::vector<int64_t> terms(heads.heads, 0);
    for (int dim = 0; dim < heads.head_dim; dim++) {
        for (int head = 0; head < heads.heads; head++) {
            const int kv = head * heads.kv_heads / heads.heads;
            const int product = heads.q[head * heads.head_dim + dim] * heads.k[kv * heads.head_dim + dim];
            terms[head] += heads.multiplier[head] * product;
        }
    }
    std::sort(terms.begin(), terms.end());
    if (reduction == fastcar::HEADS_LARGEST) return heads.heads * terms.back();
    if (reduction == fastcar::HEADS_LEAST) return heads.heads * terms.front();
    return std::accumulate(terms.begin(), terms.end(), (int64_t)0);
}

const std::map<std::string, fastcar::HeadReduction> REDUCTIONS = {
    {"mean", fastcar::HEADS_SUM}, {"max", fastcar::HEADS_LARGEST}, {"min", fastcar::HEADS_LEAST}};

void seeded() {
    Random random(6);
    for (const int head_dim : {16, 48, 64, 128, 256}) {
        for (const int kv_heads : {1, 2, 5, 16}) {
            for (const int group : {1, 3, 4, 8}) {
                Heads heads = {kv_heads * group, kv_heads, head_dim, {}, {}, {}};
                heads.q = random.bytes(heads.heads * head_dim);
                heads.k = random.bytes(kv_heads * head_dim);
                for (int head = 0; head < heads.heads; head++) {
                    heads.multiplier.push_back(random.between(group % 2 == 0 ? -128 : 1, 127));
                }
                for (const auto& [word, reduction] : REDUCTIONS) {
                    const std::string name = word + " of " + std::to_string(heads.heads) + " heads of " +
                                             std::to_string(head_dim) + " in groups of " + std::to_string(group);
                    expect(name, 0, score_of(heads, reduction), reference(heads, reduction));
                }
            }
        }
    }
    Heads largest = {128, 1, 256, std::vector<int8_t>(128 * 256, -128), std::vector<int8_t>(256, -128),
                     std::vector<int64_t>(128, 127)};
    for (const auto& [word, reduction] : REDUCTIONS) {
        expect("largest score by " + word, 0, score_of(largest, reduction), (int64_t)128 * 128 * 127 * 256 * 128);
    }
}

void golden(const Case& one) {
    const Heads heads = {(int)one.number("heads"), (int)one.number("kv_heads"), (int)one.number("head_dim"),
                         one.bytes("q"), one.bytes("k_before"), one.integers("multiplier")};
    expect(one.name, 0, score_of(heads, (fastcar::HeadReduction)one.number("reduction")), one.number("score"));
}

}  // namespace

int main(int argc, char** argv) { return run("temporal_attention_score", argc, argv, seeded, golden); }
