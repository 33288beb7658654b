#include "quant_linear_top.h"

#include "fastcar/executor.h"

using namespace fastcar;

int64_t quant_linear_top(stream<beat_t> ports[PORTS], int inputs, int outputs, bool int4, bool bias,
                         ap_uint<32> index, ap_uint<6> rows, bool reassign,
                         const beat_t x[ROWS][MAX_INPUTS / BEAT_BYTES], const float x_scale[ROWS],
                         float y[ROWS][MAX_WIDE], int64_t& busy_beats) {
#pragma HLS INTERFACE mode=axis port=ports
#pragma HLS INTERFACE mode=s_axilite port=inputs bundle=control
#pragma HLS INTERFACE mode=s_axilite port=outputs bundle=control
#pragma HLS INTERFACE mode=s_axilite port=int4 bundle=control
#pragma HLS INTERFACE mode=s_axilite port=bias bundle=control
#pragma HLS INTERFACE mode=s_axilite port=index bundle=control
#pragma HLS INTERFACE mode=s_axilite port=rows bundle=control
#pragma HLS INTERFACE mode=s_axilite port=reassign bundle=control
#pragma HLS INTERFACE mode=ap_memory port=x
#pragma HLS INTERFACE mode=ap_memory port=x_scale
#pragma HLS INTERFACE mode=ap_memory port=y
#pragma HLS INTERFACE mode=s_axilite port=busy_beats bundle=control
#pragma HLS INTERFACE mode=s_axilite port=return bundle=control
// groups work on different rows in one clock; two outputs drain at once
#pragma HLS ARRAY_PARTITION variable=x type=complete dim=1
#pragma HLS ARRAY_PARTITION variable=y type=cyclic factor=2 dim=2
    WideSink sink = {y, outputs, false};
    int64_t busy = 0;
    const int64_t clocks = quant_linear<ROWS, GROUPS, MAX_INPUTS>(ports, LinearShape{inputs, outputs, int4, bias},
                                                                 deal(index, rows, reassign), x, x_scale, sink, busy);
    busy_beats = busy;
    return clocks;
}
