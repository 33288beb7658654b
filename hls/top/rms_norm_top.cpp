#include "rms_norm_top.h"

#include "fastcar/rms_norm.h"

using namespace fastcar;

float rms_norm_top(const float x[MAX_HIDDEN], const float gain[MAX_HIDDEN], float eps,
                   beat_t y[MAX_HIDDEN / BEAT_BYTES], int n) {
#pragma HLS INTERFACE mode=ap_memory port=x
#pragma HLS INTERFACE mode=ap_memory port=gain
#pragma HLS INTERFACE mode=s_axilite port=eps bundle=control
#pragma HLS INTERFACE mode=ap_memory port=y
#pragma HLS INTERFACE mode=s_axilite port=n bundle=control
#pragma HLS INTERFACE mode=s_axilite port=return bundle=control
// a word of the memory holds the lanes of a clock
#pragma HLS ARRAY_RESHAPE variable=x type=cyclic factor=VECTOR dim=1
#pragma HLS ARRAY_RESHAPE variable=gain type=cyclic factor=VECTOR dim=1
    static float work[MAX_HIDDEN];
#pragma HLS ARRAY_PARTITION variable=work type=cyclic factor=VECTOR dim=1
    return rms_norm<VECTOR, MAX_HIDDEN>(x, gain, eps, work, y, n);
}
