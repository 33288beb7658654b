// LayerNorm fused with the quantization of its output (arXiv 1607.06450, eq. 3 and 4).
//
// x is brought to int16 first, so the sums of the values and of their squares are integers and have no order. Mean and
// variance stay multiplied by n and n^2: no division comes before the root.
#ifndef FASTCAR_LAYER_NORM_H
#define FASTCAR_LAYER_NORM_H

#include "quantize_rows.h"

namespace fastcar {

// y = int8 row of (x - mean(x)) / sqrt(var(x) + eps) * gain + bias; work holds n values. Returns the scale of y.
template <int VECTOR, int CAPACITY>
float layer_norm(const float x[CAPACITY], const float gain[CAPACITY], const float bias[CAPACITY], float eps,
                 float work[CAPACITY], beat_t y[CAPACITY / BEAT_BYTES], int n) {
    static_assert(CAPACITY <= (1 << 15), "n times the sum of squares, up to 2^30 n^2, must stay within 2^60");
    const float step = row_max_abs<VECTOR, CAPACITY>(x, n) / 32767.0f;
    int64_t sum = 0;
    int64_t squares = 0;
sum_vector:
    for (int first = 0; first < n; first += VECTOR) {
#pragma HLS PIPELINE II=1
#pragma HLS LOOP_TRIPCOUNT min=1 max=CAPACITY/VECTOR
    sum_lane:
        for (int lane = 0; lane < VECTOR; lane++) {
#pragma HLS UNROLL
            const int index = first + lane;
            if (index < n) {
                const int32_t integer = (int16_t)round_half_even(x[index] / step);  // fits, but for what is no number
                sum += integer;
                squares += (int64_t)integer * integer;
                work[index] = (float)integer;
            }
        }
    }
    const float count = (float)n;
    const float variance = (float)(n * squares - sum * sum);  // times n^2
    const float with_eps = variance + (count * count) * (eps / (step * step));
    const float root = square_root(with_eps > 1.0f ? with_eps : 1.0f);  // below 1: equal values, where y is the bias
scale_vector:
    for (int first = 0; first < n; first += VECTOR) {
#pragma HLS PIPELINE II=1
#pragma HLS LOOP_TRIPCOUNT min=1 max=CAPACITY/VECTOR
    scale_lane:
        for (int lane = 0; lane < VECTOR; lane++) {
#pragma HLS UNROLL
            const int index = first + lane;
            if (index < n) {
                const int64_t centered = (int64_t)n * (int32_t)work[index] - sum;
                const float normalized = (float)centered / root * gain[index];
                work[index] = normalized + bias[index];
            }
        }
    }
    return quantize_row<VECTOR, CAPACITY>(work, y, n);
}

}  // namespace fastcar

#endif
