#include "temporal_attention_score_top.h"

#include "fastcar/temporal_attention_score.h"

using namespace fastcar;

int64_t temporal_attention_score_top(const beat_t q[MAX_HEADS * MAX_HEAD_DIM / BEAT_BYTES],
                                     const beat_t k_before[MAX_HEADS * MAX_HEAD_DIM / BEAT_BYTES],
                                     const int32_t multiplier[MAX_HEADS], int heads, int group, int head_beats,
                                     int reduction) {
#pragma HLS INTERFACE mode=ap_memory port=q
#pragma HLS INTERFACE mode=ap_memory port=k_before
#pragma HLS INTERFACE mode=ap_memory port=multiplier
#pragma HLS INTERFACE mode=s_axilite port=heads bundle=control
#pragma HLS INTERFACE mode=s_axilite port=group bundle=control
#pragma HLS INTERFACE mode=s_axilite port=head_beats bundle=control
#pragma HLS INTERFACE mode=s_axilite port=reduction bundle=control
#pragma HLS INTERFACE mode=s_axilite port=return bundle=control
    return temporal_attention_score<MAX_HEADS, MAX_HEAD_DIM / BEAT_BYTES>(q, k_before, multiplier, heads, group,
                                                                          head_beats, (HeadReduction)reduction);
}
