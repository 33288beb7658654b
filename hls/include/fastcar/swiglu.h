// SwiGLU (arXiv 2002.05202, eq. 6) with the sigmoid from a table of 4096 entries.
#ifndef FASTCAR_SWIGLU_H
#define FASTCAR_SWIGLU_H

#include "float32.h"
#include "tables.h"

namespace fastcar {

// Index of a table over -16 .. 16 in 4096 entries: clip(round(2048 x) + 32768, 0, 65535) / 16. Clamped in binary32
// first, so that the conversion cannot overflow; the clamp is beyond the table on both sides.
inline int activation_index(float x) {
    const float scaled = x * (float)SIGMOID_STEPS;
    const float limited = scaled > 40000.0f ? 40000.0f : (scaled < -40000.0f ? -40000.0f : scaled);
    return (clamp(round_half_even(limited), -32768, 32767) + 32768) >> SIGMOID_SHIFT;
}

inline float swiglu(float gate, float up) {
    const float sigmoid = (float)(int32_t)SIGMOID_TABLE[activation_index(gate)] * float_of(0x37800000u);  // 2^-16
    return gate * sigmoid * up;
}

}  // namespace fastcar

#endif
