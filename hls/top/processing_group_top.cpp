#include "processing_group_top.h"

using namespace fastcar;

void processing_group_top(beat_t weights0, beat_t weights1, beat_t x, bool x_unsigned, sum_t& sum0, sum_t& sum1) {
#pragma HLS INTERFACE mode=ap_none port=weights0
#pragma HLS INTERFACE mode=ap_none port=weights1
#pragma HLS INTERFACE mode=ap_none port=x
#pragma HLS INTERFACE mode=ap_none port=x_unsigned
#pragma HLS INTERFACE mode=ap_vld port=sum0
#pragma HLS INTERFACE mode=ap_vld port=sum1
#pragma HLS INTERFACE mode=ap_ctrl_hs port=return
#pragma HLS PIPELINE II=1
    group_products(weights0, weights1, x, x_unsigned, sum0, sum1);
}
