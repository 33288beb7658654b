// Temporal Attention Score (arXiv 2505.14709): integer q.k towards the same place one frame earlier, over all heads.
#ifndef FASTCAR_TEMPORAL_ATTENTION_SCORE_H
#define FASTCAR_TEMPORAL_ATTENTION_SCORE_H

#include "processing_group.h"

namespace fastcar {

// sum over heads of multiplier[h] * <q[h], k_before[h / group]>. |score| < 127 * 128^2 * head_dim * heads < 2^36.
template <int MAX_HEADS, int MAX_HEAD_BEATS>
int64_t temporal_attention_score(const beat_t q[MAX_HEADS * MAX_HEAD_BEATS],
                                 const beat_t k_before[MAX_HEADS * MAX_HEAD_BEATS], const int32_t multiplier[MAX_HEADS],
                                 int heads, int group, int head_beats) {
    static_assert((int64_t)MAX_HEADS * MAX_HEAD_BEATS * GROUP_LANES <= (1 << 15),
                  "q of a position must be at most 32768 values for the score to stay below 2^36");
    int64_t score = 0;
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
        score += (int64_t)sum0 * multiplier[head];
        within++;
        if (within == head_beats) {
            within = 0;
            head++;
            member++;
            if (member == group) {
                member = 0;
                key++;
            }
        }
    }
    return score;
}

}  // namespace fastcar

#endif
