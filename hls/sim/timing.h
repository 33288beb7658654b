// The assumptions that turn beats and loop clocks into cycles. Everything estimated about time is here.
//
// 1. A loop with II = 1 takes its trip count plus its depth. Assumed: single-precision operators at the highest latency
//    that AMD's Floating-Point Operator core is offered with (add 11, multiply 8, divide 28, conversions 6 clocks), so
//    the longest chain of a loop here, multiply - divide - round, is below 64; square_root takes as long as a division.
//    Not read from a synthesis report.
// 2. A read returns its first beat read_latency clocks after its command, a write is acknowledged after write_latency.
//    Assumed: 150 clocks of 300 MHz, 0.5 us, through HP port and controller under load.
// 3. Commands queue ahead, so bursts that follow each other have no gap. The memory as a whole delivers ddr_rate beats
//    a clock, the board file's sustained bandwidth; a port at most one.
// 4. Beats of the cache port take their share of the memory, and delay what is prefetched by as much.
// 5. Read ports run ahead of the executor by the depth of their FIFOs, and no further than a decision that is missing.
// 6. From one operation to the next: 8 clocks, assumed.
// 7. Refresh, page misses and other masters of the memory are in the sustained bandwidth, and nowhere else.
#ifndef FASTCAR_TIMING_H
#define FASTCAR_TIMING_H

#include <stdint.h>

namespace fastcar {

struct Timing {
    double ddr_rate = 3.4;        // beats a clock
    int64_t read_latency = 150;
    int64_t write_latency = 150;
    int64_t loop_depth = 64;
    int64_t divide = 28;
    int64_t square_root = 28;
    int64_t operation = 8;        // from one operation to the next
};

}  // namespace fastcar

#endif
