// One processing group: two dot products of 16 int8 lanes per clock, two products to a DSP48E2.
//
// The hardware is rtl/processing_group.sv, an RTL blackbox; this is its functional model. A DSP multiplies
// weights0 + weights1 * 2^18 by x; four of them in a cascade keep the low field inside 18 bits:
// 4 * 128 * 255 = 130560 < 2^17.
#ifndef FASTCAR_PROCESSING_GROUP_H
#define FASTCAR_PROCESSING_GROUP_H

#include "types.h"

#ifdef FASTCAR_RTL_BLACKBOX
// The name the blackbox's description (rtl/processing_group.json) gives; in simulation rtl/processing_group.cpp.
void processing_group(ap_uint<128> weights0, ap_uint<128> weights1, ap_uint<128> x, bool x_unsigned, ap_int<20>& sum0,
                      ap_int<20>& sum1);
#endif

namespace fastcar {

constexpr int GROUP_LANES = 16;
using sum_t = ap_int<20>;  // |sum| <= 16 * 128 * 255 = 522240 < 2^19

static_assert(GROUP_LANES * 128 * 255 < (1 << 19), "a sum over all lanes must fit sum_t");

// sum0 = sum of weights0[i] * x[i], sum1 = sum of weights1[i] * x[i]; lane 0 in the low byte, weights int8, x uint8 if
// x_unsigned, else int8.
inline void group_model(ap_uint<128> weights0, ap_uint<128> weights1, ap_uint<128> x, bool x_unsigned, ap_int<20>& sum0,
                        ap_int<20>& sum1) {
#pragma HLS INLINE off
#pragma HLS PIPELINE II=1
    int8_t lanes0[GROUP_LANES];
    int8_t lanes1[GROUP_LANES];
    int8_t operand[GROUP_LANES];
#pragma HLS ARRAY_PARTITION variable=lanes0 type=complete dim=1
#pragma HLS ARRAY_PARTITION variable=lanes1 type=complete dim=1
#pragma HLS ARRAY_PARTITION variable=operand type=complete dim=1
    unpack(weights0, lanes0);
    unpack(weights1, lanes1);
    unpack(x, operand);
    const int mask = x_unsigned ? 255 : -1;  // drops the extended sign
    int total0 = 0;
    int total1 = 0;
lane:
    for (int lane = 0; lane < GROUP_LANES; lane++) {
#pragma HLS UNROLL
        const int value = operand[lane] & mask;
        total0 += lanes0[lane] * value;
        total1 += lanes1[lane] * value;
    }
    sum0 = total0;
    sum1 = total1;
}

// What the kernels call: the blackbox where one is given, else the model.
inline void group_products(ap_uint<128> weights0, ap_uint<128> weights1, ap_uint<128> x, bool x_unsigned,
                           ap_int<20>& sum0, ap_int<20>& sum1) {
#pragma HLS INLINE
#ifdef FASTCAR_RTL_BLACKBOX
    ::processing_group(weights0, weights1, x, x_unsigned, sum0, sum1);
#else
    group_model(weights0, weights1, x, x_unsigned, sum0, sum1);
#endif
}

}  // namespace fastcar

#endif
