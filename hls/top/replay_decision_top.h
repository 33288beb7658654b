// Top level of replay_decision alone, for synthesis and co-simulation of one kernel.
#ifndef FASTCAR_REPLAY_DECISION_TOP_H
#define FASTCAR_REPLAY_DECISION_TOP_H

#include "fastcar/types.h"

// Bit r: row r replays.
ap_uint<32> replay_decision_top(const int64_t score[fastcar::MAX_ROWS], int64_t threshold, bool eligible,
                                const int32_t age[fastcar::MAX_ROWS], int32_t max_age, int policy, int rows);

#endif
