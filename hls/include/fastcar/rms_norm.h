// RMSNorm fused with the quantization of its output (arXiv 1910.07467, eq. 4).
//
// x is brought to int16 first, so the sum of squares is an integer and has no order. The normalizing factor is common
// to the row and only enters its scale.
#ifndef FASTCAR_RMS_NORM_H
#define FASTCAR_RMS_NORM_H

#include "quantize_rows.h"

namespace fastcar {

// y = int8 row of x / sqrt(mean(x^2) + eps) * gain; work holds n values. Returns the scale of y.
template <int VECTOR, int CAPACITY>
float rms_norm(const float x[CAPACITY], const float gain[CAPACITY], float eps, float work[CAPACITY],
               beat_t y[CAPACITY / BEAT_BYTES], int n) {
    static_assert(CAPACITY <= (1 << 17), "the sum of squares, up to 2^30 a value, must stay below 2^47");
    const float step = row_max_abs<VECTOR, CAPACITY>(x, n) / 32767.0f;
    int64_t squares = 0;
vector:
    for (int first = 0; first < n; first += VECTOR) {
#pragma HLS PIPELINE II=1
#pragma HLS LOOP_TRIPCOUNT min=1 max=CAPACITY/VECTOR
    lane:
        for (int lane = 0; lane < VECTOR; lane++) {
#pragma HLS UNROLL
            const int index = first + lane;
            if (index < n) {
                const int32_t integer = (int16_t)round_half_even(x[index] / step);  // fits, but for what is no number
                squares += (int64_t)integer * integer;
                work[index] = (float)integer * gain[index];
            }
        }
    }
    const float mean = (float)squares / (float)n;
    const float root = square_root(mean + eps / (step * step));
    return quantize_row<VECTOR, CAPACITY>(work, y, n) / root;
}

}  // namespace fastcar

#endif
