#include "replay_mlp_top.h"

#include "fastcar/quant_linear.h"
#include "fastcar/quantize_rows.h"
#include "fastcar/replay_mlp.h"

using namespace fastcar;

void replay_mlp_top(stream<beat_t> ports[PORTS], int hidden, int mlp, bool int4, bool bias, ap_uint<32> index,
                    ap_uint<6> rows, bool reassign, const beat_t x[ROWS][MAX_INPUTS / BEAT_BYTES],
                    const float x_scale[ROWS], float y[ROWS][MAX_HIDDEN]) {
#pragma HLS INTERFACE mode=axis port=ports
#pragma HLS INTERFACE mode=s_axilite port=hidden bundle=control
#pragma HLS INTERFACE mode=s_axilite port=mlp bundle=control
#pragma HLS INTERFACE mode=s_axilite port=int4 bundle=control
#pragma HLS INTERFACE mode=s_axilite port=bias bundle=control
#pragma HLS INTERFACE mode=s_axilite port=index bundle=control
#pragma HLS INTERFACE mode=s_axilite port=rows bundle=control
#pragma HLS INTERFACE mode=s_axilite port=reassign bundle=control
#pragma HLS INTERFACE mode=ap_memory port=x
#pragma HLS INTERFACE mode=ap_memory port=x_scale
#pragma HLS INTERFACE mode=ap_memory port=y
#pragma HLS INTERFACE mode=s_axilite port=return bundle=control
// groups work on different rows in one clock; two outputs drain at once
#pragma HLS ARRAY_PARTITION variable=x type=complete dim=1
#pragma HLS ARRAY_PARTITION variable=y type=cyclic factor=2 dim=2
    static float gated[ROWS][MAX_MLP];
#pragma HLS ARRAY_PARTITION variable=gated type=cyclic factor=VECTOR dim=2
    static beat_t operand[ROWS][MAX_INPUTS / BEAT_BYTES];
#pragma HLS ARRAY_PARTITION variable=operand type=complete dim=1
    static float scale[ROWS];
    const Dealing dealing = deal(index, rows, reassign);
    if (skips(dealing)) return;
    SwigluSink<MAX_MLP> gate_up = {gated, 2 * mlp};
    RoundedSink<MAX_HIDDEN> down = {y, hidden};
    const LinearShape first = {hidden, 2 * mlp, int4, bias};
    const LinearShape second = {mlp, hidden, int4, bias};
    int64_t busy = 0;
    quant_linear<ROWS, GROUPS, MAX_INPUTS>(ports, first, dealing, x, x_scale, gate_up, busy);
row:
    for (int row = 0; row < (int)rows; row++) {
// not pipelined: the passes over a row are
#pragma HLS LOOP_TRIPCOUNT min=1 max=ROWS
        if (dealing.index[row]) scale[row] = quantize_row<VECTOR, MAX_MLP>(gated[row], operand[row], mlp);
    }
    quant_linear<ROWS, GROUPS, MAX_INPUTS>(ports, second, dealing, operand, scale, down, busy);
}
