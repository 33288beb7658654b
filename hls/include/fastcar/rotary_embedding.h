// Rotary position embedding (arXiv 2104.09864, eq. 15; halves split as in Hugging Face checkpoints) and the int8
// quantization of the heads with their static scales.
#ifndef FASTCAR_ROTARY_EMBEDDING_H
#define FASTCAR_ROTARY_EMBEDDING_H

#include "float32.h"

namespace fastcar {

// clip(round_half_even(x / scale), -128, 127)
inline int8_t quantize_value(float x, float scale) { return (int8_t)clamp(round_half_even(x / scale), -128, 127); }

// `heads` heads of head_dim values: those below `turned` turned by the position's cosines and signed sines (the sine's
// first half carries the minus sign), all quantized with their scale. One loop over all beats, so no head pays for the
// depth of the divider.
template <int VECTOR, int MAX_HEAD_DIM, int MAX_BEATS>
void rotate_heads(const float* x, const float cos[MAX_HEAD_DIM], const float sin[MAX_HEAD_DIM], const float* scale,
                  int heads, int turned, int head_dim, beat_t y[MAX_BEATS]) {
    static_assert(MAX_HEAD_DIM % BEAT_BYTES == 0, "a head must fill whole beats");
    static_assert(BEAT_BYTES % VECTOR == 0, "a beat must be a whole number of vectors");
    const int half = head_dim / 2;
    const int head_beats = head_dim / BEAT_BYTES;
    int head = 0;
    int within = 0;  // beat of the head
beat:
    for (int beat = 0; beat < heads * head_beats; beat++) {
// VECTOR dividers share the 16 lanes of a beat
#pragma HLS PIPELINE II=BEAT_BYTES/VECTOR
#pragma HLS LOOP_TRIPCOUNT min=1 max=MAX_BEATS
        int8_t lanes[BEAT_BYTES];
#pragma HLS ARRAY_PARTITION variable=lanes type=complete dim=1
    lane:
        for (int lane = 0; lane < BEAT_BYTES; lane++) {
#pragma HLS UNROLL
            const int dim = within * BEAT_BYTES + lane;
            const int other = dim < half ? dim + half : dim - half;
            const float own = x[head * head_dim + dim];
            const float kept = own * cos[dim];
            const float swapped = x[head * head_dim + other] * sin[dim];
            const float rotated = kept + swapped;
            lanes[lane] = quantize_value(head < turned ? rotated : own, scale[head]);
        }
        y[beat] = pack(lanes);
        within++;
        if (within == head_beats) {
            within = 0;
            head++;
        }
    }
}

}  // namespace fastcar

#endif
