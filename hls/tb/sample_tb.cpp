// Test bench of sample.h.
#include <fastcar/sample.h>

#include <algorithm>
#include <numeric>

#include "bench.h"

using namespace bench;

namespace {

constexpr int MAX_CODES = 32768;

using Settings = fastcar::SampleSettings;

int64_t sampled(const std::vector<float>& logits, const Settings& settings, uint32_t uniform) {
    static fastcar::SampleBuffers<MAX_CODES> buffers;
    return fastcar::sample<MAX_CODES>(buffers, logits.data(), settings, uniform, (int)logits.size());
}

// 2^24 * 2^-(steps / 1024) as the table has it: the mantissa rounded, then shifted.
int64_t weight_of(float below) {
    const float steps = below * (float)(1024.0 / std::log(2.0));
    if (!(steps < 25.0f * 1024.0f)) return 0;
    const int index = (int)steps;
    return nearest_even(std::ldexp(std::exp2(-(index % 1024) / 1024.0), 24)) >> (index / 1024);
}

// Codes ranked by a comparison sort; the nucleus ends where the weights before a code reach its share of the total.
int64_t reference(const std::vector<float>& logits, const Settings& settings, uint32_t uniform) {
    std::vector<float> scaled;
    for (const float logit : logits) scaled.push_back(logit * settings.inverse_temperature);
    std::vector<int> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(),
              [&](int a, int b) { return scaled[a] > scaled[b] || (scaled[a] == scaled[b] && a < b); });
    const size_t top_k = std::min<size_t>(settings.top_k, order.size());
    std::vector<int64_t> weights;
    __int128 total = 0;
    for (size_t rank = 0; rank < top_k; rank++) {
        weights.push_back(weight_of(scaled[order[0]] - scaled[order[rank]]));
        total += weights.back();
    }
    __int128 kept = 0;
    size_t nucleus = 0;
    while (nucleus < top_k && kept * 65536 < total * settings.top_p) kept += weights[nucleus++];
    const __int128 target = kept * uniform >> 24;
    __int128 cumulative = 0;
    for (size_t rank = 0; rank < nucleus; rank++) {
        cumulative += weights[rank];
        if (cumulative > target) return order[rank];
    }
    throw std::runtime_error("the reference found no code");
}

void check(const std::string& name, const std::vector<float>& logits, const Settings& settings, uint32_t uniform) {
    const std::string full = name + ", codes " + std::to_string(logits.size()) + ", top_k " +
                             std::to_string(settings.top_k) + ", top_p " + std::to_string(settings.top_p) +
                             ", uniform " + std::to_string(uniform);
    expect(full, 0, sampled(logits, settings, uniform), reference(logits, settings, uniform));
}

void check_settings(Random& random, const std::string& name, const std::vector<float>& logits) {
    for (const uint32_t top_k : {1u, 5u, 50u, 0xFFFFFFFFu}) {
        for (const uint32_t top_p : {1u, 9830u, 32768u, 65535u, 65536u}) {
            const Settings settings = {1.0f, random.chance(50) ? 1.0f : 1.0f / 0.7f, top_k, top_p};
            const uint32_t last = (1u << 24) - 1u;
            for (const uint32_t uniform : {0u, last, 1u << 23, (uint32_t)random.between(0, last)}) {
                check(name, logits, settings, uniform);
            }
        }
    }
}

std::vector<float> coarse(Random& random, int codes) {  // values that repeat
    std::vector<float> logits(codes);
    for (float& logit : logits) logit = (float)random.between(-6, 6) * 0.5f;
    return logits;
}

void seeded() {
    Random random(14);
    for (const int codes : {1, 2, 7, 64, 1000, 2047, 2048, 2049}) {
        check_settings(random, "spread", random.reals(codes, 12.0f));
        check_settings(random, "flat", random.reals(codes, 0.01f));
        check_settings(random, "ties", coarse(random, codes));
        check_settings(random, "equal", std::vector<float>(codes, -1.5f));  // every weight 2^24
    }
    check_settings(random, "zeros of both signs", {-0.0f, 0.0f, -0.0f, -1.0f, 0.0f});
    check_settings(random, "far below", {0.0f, -1e30f, -17.0f, -16.7f, -40.0f, -3e38f});
    const std::vector<float> most(MAX_CODES, 0.25f);  // the largest sums there are
    for (const uint32_t uniform : {0u, 12345678u, (1u << 24) - 1u}) {
        check("most", most, {1.0f, 1.0f, 40000u, 65536u}, uniform);
    }

    for (int round = 0; round < 20; round++) {
        const std::vector<float> conditional = random.reals(100, 10.0f);
        const std::vector<float> unconditional = random.reals(100, 10.0f);
        const float guidance = random.real(8.0f);
        std::vector<float> got(100), expected;
        fastcar::guided_logits<MAX_CODES>(conditional.data(), unconditional.data(), guidance, got.data(), 100);
        for (int code = 0; code < 100; code++) {
            const float lead = guidance * (conditional[code] - unconditional[code]);
            expected.push_back(lead + unconditional[code]);
        }
        expect_all("guided logits", got, expected);
    }
}

void golden(const Case& one) {
    const std::vector<float> conditional = one.floats("conditional");
    const std::vector<float> unconditional = one.floats("unconditional");
    const Settings settings = {one.real("guidance"), one.real("inverse_temperature"), (uint32_t)one.number("top_k"),
                               (uint32_t)one.number("top_p")};
    std::vector<float> logits(conditional.size());
    fastcar::guided_logits<MAX_CODES>(conditional.data(), unconditional.data(), settings.guidance, logits.data(),
                                      (int)logits.size());
    expect_all(one.name + " logits", logits, one.floats("logits"));
    const std::vector<int64_t> uniforms = one.integers("uniforms");
    std::vector<int64_t> codes;
    for (const int64_t uniform : uniforms) codes.push_back(sampled(logits, settings, (uint32_t)uniform));
    expect_all(one.name + " codes", codes, one.integers("codes"));
}

}  // namespace

int main(int argc, char** argv) { return run("sample", argc, argv, seeded, golden); }
