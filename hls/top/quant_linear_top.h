// Top level of quant_linear alone, for synthesis and co-simulation of one kernel.
#ifndef FASTCAR_QUANT_LINEAR_TOP_H
#define FASTCAR_QUANT_LINEAR_TOP_H

#include "config.h"
#include "fastcar/stream.h"
#include "fastcar/types.h"

// y[row][o] = sum of x w times both scales, plus bias, for the rows whose index bit is 1; weights int8, or int4 with
// multipliers. busy_beats: group clocks worked; returns the clocks of the loop.
int64_t quant_linear_top(fastcar::stream<fastcar::beat_t> ports[fastcar::PORTS], int inputs, int outputs, bool int4,
                         bool bias, ap_uint<32> index, ap_uint<6> rows, bool reassign,
                         const fastcar::beat_t x[fastcar::ROWS][fastcar::MAX_INPUTS / fastcar::BEAT_BYTES],
                         const float x_scale[fastcar::ROWS], float y[fastcar::ROWS][fastcar::MAX_WIDE],
                         int64_t& busy_beats);

#endif
