// Top level of quantize_rows alone, for synthesis and co-simulation of one kernel.
#ifndef FASTCAR_QUANTIZE_ROWS_TOP_H
#define FASTCAR_QUANTIZE_ROWS_TOP_H

#include "config.h"
#include "fastcar/types.h"

// y = int8 row of the n values of x; returns its scale.
float quantize_rows_top(const float x[fastcar::MAX_WIDE], fastcar::beat_t y[fastcar::MAX_WIDE / fastcar::BEAT_BYTES],
                        int n);

#endif
