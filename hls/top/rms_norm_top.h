// Top level of rms_norm alone, for synthesis and co-simulation of one kernel.
#ifndef FASTCAR_RMS_NORM_TOP_H
#define FASTCAR_RMS_NORM_TOP_H

#include "config.h"
#include "fastcar/types.h"

// y = int8 row of x / sqrt(mean(x^2) + eps) * gain over n values; returns its scale.
float rms_norm_top(const float x[fastcar::MAX_HIDDEN], const float gain[fastcar::MAX_HIDDEN], float eps,
                   fastcar::beat_t y[fastcar::MAX_HIDDEN / fastcar::BEAT_BYTES], int n);

#endif
