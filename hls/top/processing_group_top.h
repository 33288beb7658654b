// Top level of processing_group alone, for synthesis and co-simulation of one kernel.
#ifndef FASTCAR_PROCESSING_GROUP_TOP_H
#define FASTCAR_PROCESSING_GROUP_TOP_H

#include "fastcar/processing_group.h"

// The two sums of 16 products; one set of operands a clock.
void processing_group_top(fastcar::beat_t weights0, fastcar::beat_t weights1, fastcar::beat_t x, bool x_unsigned,
                          fastcar::sum_t& sum0, fastcar::sum_t& sum1);

#endif
