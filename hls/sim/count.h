// C interface of the counters-only run.
#ifndef FASTCAR_COUNT_H
#define FASTCAR_COUNT_H

#include <stdint.h>

extern "C" {

// The engine and the memory that are counted for; hls/counting.py has the same.
struct CountSettings {
    double ddr_rate;     // beats a clock the memory sustains
    int32_t groups;      // of each port's column
    int32_t vector;      // values a clock of norms and quantization
    int32_t fifo_beats;  // of each read port
    int32_t port_width;  // beats a clock of one port
    uint32_t omitted;    // bit o: operations of opcode o are left out, with all they move
};

// Of one kind of operation.
struct OperationCounts {
    double cycles;
    double stalls;
    double read_beats;   // of the four ports
    double cache_beats;  // of the cache port
    double busy;         // group clocks worked
    double loop;         // clocks of loops that use the groups
};

// Counts a start without computing it. replays: (steps, layers) masks, bit r: row r replays; by_opcode (32 values):
// added to. Buffers are not touched: only their sizes in `control` count.
int fastcar_count(const void* program, const void* control, const CountSettings* settings, const uint32_t* replays,
                  void* report, OperationCounts* by_opcode);
}

#endif
