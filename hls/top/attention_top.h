// Top level of attention alone, for synthesis and co-simulation of one kernel.
#ifndef FASTCAR_ATTENTION_TOP_H
#define FASTCAR_ATTENTION_TOP_H

#include "config.h"
#include "fastcar/stream.h"
#include "fastcar/types.h"

// y = softmax(q.k) v of one key/value head for the `group` query heads that share it, over what `position` sees; `columns` earlier frames of
// `places` slots, from slot `first` on.
// busy_beats: group clocks worked; returns the clocks of the loops that use the groups.
int64_t attention_top(fastcar::stream<fastcar::beat_t> ports[fastcar::PORTS],
                      const fastcar::beat_t q[fastcar::MAX_GROUP * fastcar::MAX_HEAD_DIM / fastcar::BEAT_BYTES],
                      const fastcar::beat_t k[fastcar::MAX_HEAD_DIM / fastcar::BEAT_BYTES],
                      const fastcar::beat_t v[fastcar::MAX_HEAD_DIM / fastcar::BEAT_BYTES],
                      const float exponent[fastcar::MAX_GROUP], float v_scale, int position, int sinks, int window,
                      int columns, int places, int first, int group, int head_dim,
                      float y[fastcar::MAX_GROUP * fastcar::MAX_HEAD_DIM], int64_t& busy_beats);

#endif
