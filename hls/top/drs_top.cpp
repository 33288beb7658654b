#include "drs_top.h"

#include "config.h"

using namespace fastcar;

void drs_top(ap_uint<32> index, ap_uint<6> rows, bool reassign, int pairs, Dealing& dealing, bool& skip,
             int& wave_count) {
#pragma HLS INTERFACE mode=ap_none port=index
#pragma HLS INTERFACE mode=ap_none port=rows
#pragma HLS INTERFACE mode=ap_none port=reassign
#pragma HLS INTERFACE mode=ap_none port=pairs
#pragma HLS INTERFACE mode=ap_vld port=dealing
#pragma HLS INTERFACE mode=ap_vld port=skip
#pragma HLS INTERFACE mode=ap_vld port=wave_count
#pragma HLS INTERFACE mode=ap_ctrl_hs port=return
// all registers as one word: an array of their own would be a memory
#pragma HLS AGGREGATE variable=dealing compact=bit
    const Dealing dealt = deal(index, rows, reassign);
    dealing = dealt;
    skip = skips(dealt);
    wave_count = waves(dealt, pairs, GROUPS);
}
