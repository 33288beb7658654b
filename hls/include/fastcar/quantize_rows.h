// QuantizeRows: one row of binary32 to int8 with scale max|x| / 127, and the scale.
#ifndef FASTCAR_QUANTIZE_ROWS_H
#define FASTCAR_QUANTIZE_ROWS_H

#include "float32.h"

namespace fastcar {

constexpr uint32_t MAX_ABS_FLOOR_BITS = 0x2B800000u;  // 2^-40: a row below it is zero for every purpose

// max |x| of the first n values, at least the floor; magnitudes of binary32 order as their bits do.
template <int VECTOR, int CAPACITY>
float row_max_abs(const float x[CAPACITY], int n) {
    static_assert(CAPACITY % BEAT_BYTES == 0, "a row must hold whole beats of 16 values");
    static_assert(BEAT_BYTES % VECTOR == 0, "a beat must be a whole number of vectors");
    uint32_t peak = MAX_ABS_FLOOR_BITS;
vector:
    for (int first = 0; first < n; first += VECTOR) {
#pragma HLS PIPELINE II=1
#pragma HLS LOOP_TRIPCOUNT min=1 max=CAPACITY/VECTOR
    lane:
        for (int lane = 0; lane < VECTOR; lane++) {
#pragma HLS UNROLL
            const uint32_t magnitude = first + lane < n ? bits_of(x[first + lane]) & 0x7FFFFFFFu : 0u;
            if (magnitude > peak) peak = magnitude;
        }
    }
    return float_of(peak);
}

// y = round_half_even(x / scale), scale = max|x| / 127; lanes of the last beat beyond n are 0. Returns the scale.
template <int VECTOR, int CAPACITY>
float quantize_row(const float x[CAPACITY], beat_t y[CAPACITY / BEAT_BYTES], int n) {
    const float scale = row_max_abs<VECTOR, CAPACITY>(x, n) / 127.0f;
beat:
    for (int beat = 0; beat < ceil_div(n, BEAT_BYTES); beat++) {
// VECTOR dividers share the 16 lanes of a beat
#pragma HLS PIPELINE II=BEAT_BYTES/VECTOR
#pragma HLS LOOP_TRIPCOUNT min=1 max=CAPACITY/BEAT_BYTES
        beat_t packed = 0;
    lane:
        for (int lane = 0; lane < BEAT_BYTES; lane++) {
#pragma HLS UNROLL
            const int index = beat * BEAT_BYTES + lane;
            if (index < n) set_byte(packed, lane, (uint8_t)round_half_even(x[index] / scale));
        }
        y[beat] = packed;
    }
    return scale;
}

}  // namespace fastcar

#endif
