#include "attention_top.h"

#include "fastcar/attention.h"

using namespace fastcar;

int64_t attention_top(stream<beat_t> ports[PORTS], const beat_t q[MAX_GROUP * MAX_HEAD_DIM / BEAT_BYTES],
                      const beat_t k[MAX_HEAD_DIM / BEAT_BYTES], const beat_t v[MAX_HEAD_DIM / BEAT_BYTES],
                      const float exponent[MAX_GROUP], float v_scale, int position, int sinks, int window,
                      int columns, int places, int first, int group, int head_dim,
                      float y[MAX_GROUP * MAX_HEAD_DIM], int64_t& busy_beats) {
#pragma HLS INTERFACE mode=axis port=ports
#pragma HLS INTERFACE mode=ap_memory port=q
#pragma HLS INTERFACE mode=ap_memory port=k
#pragma HLS INTERFACE mode=ap_memory port=v
#pragma HLS INTERFACE mode=ap_memory port=exponent
#pragma HLS INTERFACE mode=s_axilite port=v_scale bundle=control
#pragma HLS INTERFACE mode=s_axilite port=position bundle=control
#pragma HLS INTERFACE mode=s_axilite port=sinks bundle=control
#pragma HLS INTERFACE mode=s_axilite port=window bundle=control
#pragma HLS INTERFACE mode=s_axilite port=columns bundle=control
#pragma HLS INTERFACE mode=s_axilite port=places bundle=control
#pragma HLS INTERFACE mode=s_axilite port=first bundle=control
#pragma HLS INTERFACE mode=s_axilite port=group bundle=control
#pragma HLS INTERFACE mode=s_axilite port=head_dim bundle=control
#pragma HLS INTERFACE mode=ap_memory port=y
#pragma HLS INTERFACE mode=s_axilite port=busy_beats bundle=control
#pragma HLS INTERFACE mode=s_axilite port=return bundle=control
// the lanes of a clock go to banks of their own
#pragma HLS ARRAY_PARTITION variable=y type=cyclic factor=VECTOR dim=1
    static AttentionBuffers<MAX_GROUP, MAX_SLOTS, MAX_HEAD_DIM> buffers;
    Visible visible;
#pragma HLS ARRAY_PARTITION variable=visible.columns type=complete dim=1
#pragma HLS ARRAY_PARTITION variable=visible.column_blocks type=complete dim=1
    visible.begin(position, sinks, window, 0);  // the engine sets its rows' padding
    visible.add_columns(columns, places, first);
    int64_t busy = 0;
    const int64_t clocks = attention_head<GROUPS, VECTOR>(ports, buffers, q, k, v, exponent, v_scale,
                                                          visible, group, head_dim, y, busy);
    busy_beats = busy;
    return clocks;
}
