// Top level of sample alone, for synthesis and co-simulation of one kernel.
#ifndef FASTCAR_SAMPLE_TOP_H
#define FASTCAR_SAMPLE_TOP_H

#include "config.h"

// Guided logits of the two inputs, and the code that the 24-bit uniform picks from them; top_p in units of 2^-16.
int sample_top(const float conditional[fastcar::MAX_CODES], const float unconditional[fastcar::MAX_CODES],
               float guidance, float inverse_temperature, uint32_t top_k, uint32_t top_p, uint32_t uniform, int codes,
               float logits[fastcar::MAX_CODES]);

#endif
