// Top level of temporal_attention_score alone, for synthesis and co-simulation of one kernel.
#ifndef FASTCAR_TEMPORAL_ATTENTION_SCORE_TOP_H
#define FASTCAR_TEMPORAL_ATTENTION_SCORE_TOP_H

#include "config.h"
#include "fastcar/types.h"

// Sum over heads of multiplier times q.k, `group` heads sharing a key; q and k in head_beats beats a head. `reduction`
// is a HeadReduction.
int64_t temporal_attention_score_top(
    const fastcar::beat_t q[fastcar::MAX_HEADS * fastcar::MAX_HEAD_DIM / fastcar::BEAT_BYTES],
    const fastcar::beat_t k_before[fastcar::MAX_HEADS * fastcar::MAX_HEAD_DIM / fastcar::BEAT_BYTES],
    const int32_t multiplier[fastcar::MAX_HEADS], int heads, int group, int head_beats, int reduction);

#endif
