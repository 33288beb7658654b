// ReplayMLP, the part behind the linear layers: outputs are rounded to bfloat16, so what is cached is what was used.
#ifndef FASTCAR_REPLAY_MLP_H
#define FASTCAR_REPLAY_MLP_H

#include "float32.h"
#include "swiglu.h"

namespace fastcar {

// Takes pairs (gate, up) of a row from the linear layer and keeps gate * sigmoid(gate) * up.
template <int CAPACITY>
struct SwigluSink {
    float (*hidden)[CAPACITY];
    int outputs;  // gates and ups
    void operator()(int row, int output, float gate, float up) {
#pragma HLS INLINE
        if (output < outputs) hidden[row][output / 2] = swiglu(gate, up);
    }
};

// Takes the down projection's outputs and keeps them as the bfloat16 they are cached as.
template <int CAPACITY>
struct RoundedSink {
    float (*y)[CAPACITY];
    int outputs;
    void operator()(int row, int output, float y0, float y1) {
#pragma HLS INLINE
        if (output < outputs) y[row][output] = from_bfloat16(to_bfloat16(y0));
        if (output + 1 < outputs) y[row][output + 1] = from_bfloat16(to_bfloat16(y1));
    }
};

// Eight bfloat16 of a beat, first in the low half word.
inline beat_t pack_bfloat16(const float* values) {
#pragma HLS INLINE
    beat_t beat = 0;
word:
    for (int word = 0; word < BEAT_WORDS; word++) {
#pragma HLS UNROLL
        const uint32_t low = to_bfloat16(values[2 * word]);
        const uint32_t high = to_bfloat16(values[2 * word + 1]);
        set_word(beat, word, low | (high << 16));
    }
    return beat;
}

inline float unpack_bfloat16(const beat_t& beat, int index) {
    return from_bfloat16((uint16_t)(word_of(beat, index / 2) >> (16 * (index % 2))));
}

}  // namespace fastcar

#endif
