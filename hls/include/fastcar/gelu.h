// GELU (arXiv 1606.08415, section 2) with the normal distribution function from a table of 4096 entries.
#ifndef FASTCAR_GELU_H
#define FASTCAR_GELU_H

#include "swiglu.h"

namespace fastcar {

inline float gelu(float x) {
    const float phi = (float)(int32_t)PHI_TABLE[activation_index(x)] * float_of(0x37800000u);  // 2^-16
    return x * phi;
}

}  // namespace fastcar

#endif
