// binary32 beyond + - * /: conversions and the square root, bit by bit as IEEE 754 rounds them, without a math library.
//
// Vitis HLS's floating-point cores flush subnormal numbers to zero. No value of the contract comes near one in a
// trained model; the C simulation can be run with the processor flushing too, which must not change a bit.
#ifndef FASTCAR_FLOAT32_H
#define FASTCAR_FLOAT32_H

#include "types.h"

namespace fastcar {

union FloatBits {
    float value;
    uint32_t bits;
};

inline uint32_t bits_of(float value) {
    FloatBits both;
    both.value = value;
    return both.bits;
}

inline float float_of(uint32_t bits) {
    FloatBits both;
    both.bits = bits;
    return both.value;
}

inline float absolute(float value) { return float_of(bits_of(value) & 0x7FFFFFFFu); }

// Nearest integer, ties to even; saturates outside +-(2^31 - 1).
inline int32_t round_half_even(float value) {
    const uint32_t bits = bits_of(value);
    const int exponent = (int)((bits >> 23) & 255u) - 127;
    const uint32_t mantissa = (bits & 0x7FFFFFu) | 0x800000u;
    uint32_t whole = 0;
    if (exponent > 30) {
        whole = 0x7FFFFFFFu;
    } else if (exponent >= 23) {
        whole = mantissa << (exponent - 23);
    } else if (exponent >= -1) {
        const int shift = 23 - exponent;  // 1 .. 24
        const uint32_t rest = mantissa & ((1u << shift) - 1u);
        const uint32_t half = 1u << (shift - 1);
        whole = mantissa >> shift;
        if (rest > half || (rest == half && (whole & 1u))) whole++;
    }
    return (bits >> 31) ? -(int32_t)whole : (int32_t)whole;
}

inline int32_t clamp(int32_t value, int32_t low, int32_t high) {
    return value < low ? low : (value > high ? high : value);
}

// Correctly rounded square root of a positive normal number: 25 result bits by digit recurrence, the last one rounds.
// A tie cannot happen: its square would need 49 significant bits, the operand has 24.
inline float square_root(float value) {
    const uint32_t bits = bits_of(value);
    int exponent = (int)(bits >> 23) - 127;
    uint64_t radicand = (uint64_t)((bits & 0x7FFFFFu) | 0x800000u) << 25;
    if (exponent & 1) {
        radicand <<= 1;
        exponent -= 1;
    }
    uint64_t root = 0;
digit:
    for (int place = 24; place >= 0; place--) {
#pragma HLS UNROLL
        const uint64_t trial = root | ((uint64_t)1 << place);
        if (trial * trial <= radicand) root = trial;
    }
    const uint32_t rounded = (uint32_t)((root + 1) >> 1);  // 2^23 .. 2^24: a carry moves into the exponent
    return float_of(((uint32_t)(exponent / 2 + 127) << 23) + (rounded - 0x800000u));
}

// bfloat16, ties to even; finite operands.
inline uint16_t to_bfloat16(float value) {
    const uint32_t bits = bits_of(value);
    return (uint16_t)((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

inline float from_bfloat16(uint16_t bits) { return float_of((uint32_t)bits << 16); }

// IEEE binary16, finite, exact.
inline float from_half(uint16_t bits) {
    const uint32_t sign = (uint32_t)(bits & 0x8000u) << 16;
    const uint32_t exponent = (bits >> 10) & 31u;
    const uint32_t mantissa = bits & 0x3FFu;
    if (exponent == 0) {
        const float magnitude = (float)(int32_t)mantissa * float_of(0x33800000u);  // 2^-24
        return float_of(sign | bits_of(magnitude));
    }
    return float_of(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

// An unsigned key that orders as the values do; both zeros have the same.
inline uint32_t ordered_key(float value) {
    const uint32_t bits = bits_of(value);
    if ((bits & 0x7FFFFFFFu) == 0) return 0x80000000u;
    return (bits >> 31) ? ~bits : (bits | 0x80000000u);
}

inline float from_ordered_key(uint32_t key) { return float_of((key >> 31) ? (key & 0x7FFFFFFFu) : ~key); }

}  // namespace fastcar

#endif
