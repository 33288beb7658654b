#include "replay_decision_top.h"

#include "fastcar/replay_decision.h"

using namespace fastcar;

ap_uint<32> replay_decision_top(const int64_t score[MAX_ROWS], int64_t threshold, bool eligible,
                                const int32_t age[MAX_ROWS], int32_t max_age, int policy, int rows) {
#pragma HLS INTERFACE mode=ap_memory port=score
#pragma HLS INTERFACE mode=s_axilite port=threshold bundle=control
#pragma HLS INTERFACE mode=s_axilite port=eligible bundle=control
#pragma HLS INTERFACE mode=ap_memory port=age
#pragma HLS INTERFACE mode=s_axilite port=max_age bundle=control
#pragma HLS INTERFACE mode=s_axilite port=policy bundle=control
#pragma HLS INTERFACE mode=s_axilite port=rows bundle=control
#pragma HLS INTERFACE mode=s_axilite port=return bundle=control
    return replay_decision(score, threshold, eligible, age, max_age, policy, rows);
}
