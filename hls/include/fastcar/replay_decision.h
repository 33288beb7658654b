// Whether each row replays: its own score, the mean of all, or all together (policies of ReplaySettings).
#ifndef FASTCAR_REPLAY_DECISION_H
#define FASTCAR_REPLAY_DECISION_H

#include "descriptor.h"
#include "types.h"

namespace fastcar {

// No score is beyond 2^36, so what lies beyond 2^40 decides as 2^40 does.
inline int64_t limit_threshold(int64_t threshold) {
    const int64_t limit = (int64_t)1 << 40;
    return threshold > limit ? limit : (threshold < -limit ? -limit : threshold);
}

// Bit r: row r replays. A score beyond the threshold passes; scores stay within 2^36, thresholds within 2^40, so 32
// rows of either fit int64.
inline ap_uint<32> replay_decision(const int64_t score[MAX_ROWS], int64_t threshold, bool eligible,
                                   const int32_t age[MAX_ROWS], int32_t max_age, int policy, int rows) {
    int64_t sum = 0;
pool:
    for (int row = 0; row < MAX_ROWS; row++) {
#pragma HLS PIPELINE II=1
        if (row < rows) sum += score[row];
    }
    ap_uint<32> may = 0;
pass:
    for (int row = 0; row < MAX_ROWS; row++) {
#pragma HLS PIPELINE II=1
        const bool above = policy == POLICY_MEAN ? sum > threshold * rows : score[row] > threshold;
        if (row < rows) may[row] = above && eligible && age[row] < max_age;
    }
    const ap_uint<32> everyone = rows == MAX_ROWS ? 0xFFFFFFFFu : (1u << rows) - 1u;
    if (policy == POLICY_INDEPENDENT) return may;
    return may == everyone ? may : ap_uint<32>(0);
}

}  // namespace fastcar

#endif
