// Temporal Attention Score (arXiv 2505.14709): integer q.k towards the same place one frame earlier, over all heads.
#ifndef FASTCAR_TEMPORAL_ATTENTION_SCORE_H
#define FASTCAR_TEMPORAL_ATTENTION_SCORE_H

#include "processing_group.h"

namespace fastcar {

enum HeadReduction { HEADS_SUM, HEADS_LARGEST, HEADS_LEAST };

// HEADS_SUM: sum over heads of multiplier[h] * <q[h], k_before[h / group]>; else heads times the largest or the least
// of these terms, so that one threshold has the same unit for all three. Multipliers are of 8 bits, of either sign: a
// term is within 128 * 128^2 * 256 = 2^29, any of the scores within 128 * 128^2 * head_dim * heads <= 2^36.
template <int MAX_HEADS, int MAX_HEAD_BEATS>
int64_t temporal_attention_score(const beat_t q[MAX_HEADS * MAX_HEAD_BEATS],
                                 const beat_t k_before[MAX_HEADS * MAX_HEAD_BEATS], const int32_t multiplier[MAX_HEADS],
                                 int heads, int group, int head_beats, HeadReduction reduction) {
    static_assert((int64_t)MAX_HEADS * MAX_HEAD_BEATS * GROUP_LANES <= (1 << 15),
                  "q of a position must be at most 32768 values for the score to stay within 2^36");
    static_assert(MAX_HEAD_BEATS * GROUP_LANES <= 256, "a head must be at most 256 values for its term to fit int32");
    int64_t sum = 0;
    int32_t term = 0;  // of the head so far
    int32_t one = 0;   // the largest or least term
    int head = 0;
    int member = 0;  // of the heads that share a key
    int key = 0;
    int within = 0;
beat:
    for (int beat = 0; beat < heads * head_beats; beat++) {
#pragma HLS PIPELINE II=1
#pragma HLS LOOP_TRIPCOUNT min=1 max=MAX_HEADS*MAX_HEAD_BEATS
        sum_t sum0, sum1;
        group_products(k_before[key * head_beats + within], 0, q[beat], false, sum0, sum1);
        const int32_t product = (int32_t)sum0 * multiplier[head];  // 20 by 8 bits
        sum += product;
        term += product;
        within++;
        if (within == head_beats) {
            if (head == 0 || (reduction == HEADS_LARGEST ? term > one : term < one)) one = term;
            term = 0;
            within = 0;
            head++;
            member++;
            if (member == group) {
                member = 0;
                key++;
            }
        }
    }
    return reduction == HEADS_SUM ? sum : (int64_t)one * (int16_t)heads;  // 32 by 16 bits
}

}  // namespace fastcar

#endif
