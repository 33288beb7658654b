#include "gelu_top.h"

#include "fastcar/gelu.h"

using namespace fastcar;

float gelu_top(float x) {
#pragma HLS INTERFACE mode=ap_none port=x
#pragma HLS INTERFACE mode=ap_ctrl_hs port=return
#pragma HLS PIPELINE II=1
    return gelu(x);
}
