#include "rotary_embedding_top.h"

#include "fastcar/rotary_embedding.h"

using namespace fastcar;

void rotary_embedding_top(const float x[(MAX_HEADS + 2 * MAX_KV_HEADS) * MAX_HEAD_DIM], const float cos[MAX_HEAD_DIM],
                          const float sin[MAX_HEAD_DIM], const float scale[MAX_HEADS + 2 * MAX_KV_HEADS], int heads,
                          int turned, int head_dim,
                          beat_t y[(MAX_HEADS + 2 * MAX_KV_HEADS) * MAX_HEAD_DIM / BEAT_BYTES]) {
#pragma HLS INTERFACE mode=ap_memory port=x
#pragma HLS INTERFACE mode=ap_memory port=cos
#pragma HLS INTERFACE mode=ap_memory port=sin
#pragma HLS INTERFACE mode=ap_memory port=scale
#pragma HLS INTERFACE mode=s_axilite port=heads bundle=control
#pragma HLS INTERFACE mode=s_axilite port=turned bundle=control
#pragma HLS INTERFACE mode=s_axilite port=head_dim bundle=control
#pragma HLS INTERFACE mode=ap_memory port=y
#pragma HLS INTERFACE mode=s_axilite port=return bundle=control
// a word of the memory holds the lanes of a clock
#pragma HLS ARRAY_RESHAPE variable=x type=cyclic factor=VECTOR dim=1
#pragma HLS ARRAY_RESHAPE variable=cos type=cyclic factor=VECTOR dim=1
#pragma HLS ARRAY_RESHAPE variable=sin type=cyclic factor=VECTOR dim=1
    constexpr int BEATS = (MAX_HEADS + 2 * MAX_KV_HEADS) * MAX_HEAD_DIM / BEAT_BYTES;
    rotate_heads<VECTOR, MAX_HEAD_DIM, BEATS>(x, cos, sin, scale, heads, turned, head_dim, y);
}
