// C interface of the counters-only run.
#ifndef FASTCAR_COUNT_H
#define FASTCAR_COUNT_H

#include <stdint.h>

extern "C" {

// Counts a start without computing it. replays: (steps, layers) masks, bit r: row r replays; ddr_rate: beats a clock
// the memory sustains; by_opcode (16 values): cycles of each kind of operation, added to. Buffers are not touched: only
// their sizes in `control` count.
int fastcar_count(const void* program, const void* control, double ddr_rate, const uint32_t* replays, void* report,
                  double* by_opcode);
}

#endif
