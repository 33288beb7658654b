// Sample: guidance, temperature, top-k and top-p, decided by integers and a supplied 24-bit uniform.
#ifndef FASTCAR_SAMPLE_H
#define FASTCAR_SAMPLE_H

#include "float32.h"
#include "tables.h"

namespace fastcar {

constexpr int DIGIT_BITS = 11;  // three passes sort 32-bit keys
constexpr int DIGITS = 1 << DIGIT_BITS;

struct SampleSettings {
    float guidance;
    float inverse_temperature;
    uint32_t top_k;
    uint32_t top_p;  // units of 2^-16
};

template <int MAX_CODES>
struct SampleBuffers {
    static_assert(MAX_CODES <= 32768, "cumulative weights times 2^16, and uniforms times totals, must stay below 2^63");
    uint32_t keys[2][MAX_CODES];
    uint16_t codes[2][MAX_CODES];
    uint32_t weights[MAX_CODES];
    uint16_t counts[DIGITS];
};

// logits[i] = u + guidance * (c - u) (arXiv 2207.12598, eq. 6 with w = guidance - 1).
template <int MAX_CODES>
void guided_logits(const float* conditional, const float* unconditional, float guidance, float* logits, int codes) {
guide:
    for (int code = 0; code < codes; code++) {
#pragma HLS PIPELINE II=1
#pragma HLS LOOP_TRIPCOUNT min=1 max=MAX_CODES
        const float difference = conditional[code] - unconditional[code];
        const float step = guidance * difference;
        logits[code] = unconditional[code] + step;
    }
}

// One stable pass over a digit of the keys: equal digits keep their order, so ties end up by the lower code.
template <int MAX_CODES>
void sort_pass(SampleBuffers<MAX_CODES>& buffers, int from, int shift, int codes) {
clear:
    for (int digit = 0; digit < DIGITS; digit++) {
#pragma HLS PIPELINE II=1
        buffers.counts[digit] = 0;
    }
count:
    for (int i = 0; i < codes; i++) {
// read, add, write back of a counter the next key may hit
#pragma HLS PIPELINE II=2
#pragma HLS LOOP_TRIPCOUNT min=1 max=MAX_CODES
        buffers.counts[(buffers.keys[from][i] >> shift) & (DIGITS - 1)]++;
    }
    uint16_t before = 0;
prefix:
    for (int digit = 0; digit < DIGITS; digit++) {
#pragma HLS PIPELINE II=1
        const uint16_t here = buffers.counts[digit];
        buffers.counts[digit] = before;
        before += here;
    }
scatter:
    for (int i = 0; i < codes; i++) {
// read, add, write back of a counter the next key may hit
#pragma HLS PIPELINE II=2
#pragma HLS LOOP_TRIPCOUNT min=1 max=MAX_CODES
        const uint32_t key = buffers.keys[from][i];
        const uint16_t place = buffers.counts[(key >> shift) & (DIGITS - 1)]++;
        buffers.keys[1 - from][place] = key;
        buffers.codes[1 - from][place] = buffers.codes[from][i];
    }
}

// The code whose share of the weights of the kept codes contains the uniform.
template <int MAX_CODES>
int sample(SampleBuffers<MAX_CODES>& buffers, const float* logits, const SampleSettings& settings, uint32_t uniform,
           int codes) {
load:
    for (int code = 0; code < codes; code++) {
#pragma HLS PIPELINE II=1
#pragma HLS LOOP_TRIPCOUNT min=1 max=MAX_CODES
        buffers.keys[0][code] = ~ordered_key(logits[code] * settings.inverse_temperature);  // descending
        buffers.codes[0][code] = (uint16_t)code;
    }
    sort_pass(buffers, 0, 0, codes);
    sort_pass(buffers, 1, DIGIT_BITS, codes);
    sort_pass(buffers, 0, 2 * DIGIT_BITS, codes);

    const float peak = from_ordered_key(~buffers.keys[1][0]);
    const float last = (float)((SAMPLE_BITS + 1) << EXP_FRACTION_BITS);
    int64_t total = 0;
weigh:
    for (int rank = 0; rank < codes; rank++) {
#pragma HLS PIPELINE II=1
#pragma HLS LOOP_TRIPCOUNT min=1 max=MAX_CODES
        const float steps = (peak - from_ordered_key(~buffers.keys[1][rank])) * float_of(LOG2_STEPS_BITS);
        const int32_t index = (int32_t)(steps < last ? steps : last);
        const uint32_t weight = SAMPLE_MANTISSA[index & ((1 << EXP_FRACTION_BITS) - 1)] >> (index >> EXP_FRACTION_BITS);
        buffers.weights[rank] = (uint32_t)rank < settings.top_k ? weight : 0u;
        total += buffers.weights[rank];
    }
    int64_t before = 0;
    int64_t kept = 0;
nucleus:
    for (int rank = 0; rank < codes; rank++) {
#pragma HLS PIPELINE II=1
#pragma HLS LOOP_TRIPCOUNT min=1 max=MAX_CODES
        const uint32_t weight = buffers.weights[rank];
        if (before * 65536 >= (int64_t)settings.top_p * total) buffers.weights[rank] = 0;
        kept += buffers.weights[rank];
        before += weight;
    }
    const int64_t target = (int64_t)uniform * kept >> 24;
    int64_t cumulative = 0;
    int chosen = 0;
pick:
    for (int rank = 0; rank < codes; rank++) {
#pragma HLS PIPELINE II=1
#pragma HLS LOOP_TRIPCOUNT min=1 max=MAX_CODES
        cumulative += buffers.weights[rank];
        if (cumulative <= target && chosen < codes - 1) chosen = rank + 1;
    }
    return buffers.codes[1][chosen];
}

}  // namespace fastcar

#endif
