#include "quantize_rows_top.h"

#include "fastcar/quantize_rows.h"

using namespace fastcar;

float quantize_rows_top(const float x[MAX_WIDE], beat_t y[MAX_WIDE / BEAT_BYTES], int n) {
#pragma HLS INTERFACE mode=ap_memory port=x
#pragma HLS INTERFACE mode=ap_memory port=y
#pragma HLS INTERFACE mode=s_axilite port=n bundle=control
#pragma HLS INTERFACE mode=s_axilite port=return bundle=control
// a word of the memory holds the lanes of a clock
#pragma HLS ARRAY_RESHAPE variable=x type=cyclic factor=VECTOR dim=1
    return quantize_row<VECTOR, MAX_WIDE>(x, y, n);
}
