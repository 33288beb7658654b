// Top level of replay_mlp alone, for synthesis and co-simulation of one kernel.
#ifndef FASTCAR_REPLAY_MLP_TOP_H
#define FASTCAR_REPLAY_MLP_TOP_H

#include "config.h"
#include "fastcar/stream.h"
#include "fastcar/types.h"

// The MLP behind its norm: gate and up (in turn), SwiGLU, down, rounded to bfloat16. Rows whose index bit is 0 replay:
// what y held for them stays. The ports bring gate_up, then down; neither if no row computes and rows are reassigned.
void replay_mlp_top(fastcar::stream<fastcar::beat_t> ports[fastcar::PORTS], int hidden, int mlp, bool int4, bool bias,
                    ap_uint<32> index, ap_uint<6> rows, bool reassign,
                    const fastcar::beat_t x[fastcar::ROWS][fastcar::MAX_INPUTS / fastcar::BEAT_BYTES],
                    const float x_scale[fastcar::ROWS], float y[fastcar::ROWS][fastcar::MAX_HIDDEN]);

#endif
