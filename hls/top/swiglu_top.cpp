#include "swiglu_top.h"

#include "fastcar/swiglu.h"

using namespace fastcar;

float swiglu_top(float gate, float up) {
#pragma HLS INTERFACE mode=ap_none port=gate
#pragma HLS INTERFACE mode=ap_none port=up
#pragma HLS INTERFACE mode=ap_ctrl_hs port=return
#pragma HLS PIPELINE II=1
    return swiglu(gate, up);
}
