// Top level of rotary_embedding alone, for synthesis and co-simulation of one kernel.
#ifndef FASTCAR_ROTARY_EMBEDDING_TOP_H
#define FASTCAR_ROTARY_EMBEDDING_TOP_H

#include "config.h"
#include "fastcar/types.h"

// y = int8 of `heads` heads of head_dim values, those below `turned` rotated by cos and the signed sin first.
void rotary_embedding_top(
    const float x[(fastcar::MAX_HEADS + 2 * fastcar::MAX_KV_HEADS) * fastcar::MAX_HEAD_DIM],
    const float cos[fastcar::MAX_HEAD_DIM], const float sin[fastcar::MAX_HEAD_DIM],
    const float scale[fastcar::MAX_HEADS + 2 * fastcar::MAX_KV_HEADS], int heads, int turned, int head_dim,
    fastcar::beat_t y[(fastcar::MAX_HEADS + 2 * fastcar::MAX_KV_HEADS) * fastcar::MAX_HEAD_DIM / fastcar::BEAT_BYTES]);

#endif
