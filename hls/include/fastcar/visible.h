// Which slots of the past a position sees: all of them, or the first ones (sinks) and a window of the last.
#ifndef FASTCAR_VISIBLE_H
#define FASTCAR_VISIBLE_H

#include "types.h"

namespace fastcar {

// Slots s < position with s < sinks or s >= position - window; window 0: all of them. Whole blocks are read; block b
// is the port's b / PORTS-th if b mod PORTS is the port.
struct Visible {
    int position;
    int sinks_end;     // first slot behind the sinks
    int window_begin;  // first slot of the window
    int first_end;     // blocks 0 .. first_end - 1 ...
    int second_begin;  // ... and second_begin .. end - 1 are read
    int end;

    static Visible at(int position, int sinks, int window) {
        Visible visible;
        visible.position = position;
        visible.window_begin = window > 0 && window < position ? position - window : 0;
        visible.sinks_end = sinks < position ? sinks : position;
        visible.end = ceil_div(position, BLOCK_SLOTS);
        visible.first_end = ceil_div(visible.sinks_end, BLOCK_SLOTS);
        visible.second_begin = visible.window_begin / BLOCK_SLOTS;
        if (visible.second_begin <= visible.first_end) {  // they touch: one run of blocks
            visible.first_end = 0;
            visible.second_begin = 0;
        }
        return visible;
    }

    bool slot(int slot) const { return slot < position && (slot < sinks_end || slot >= window_begin); }

    // Number of blocks below `limit` that are the port's.
    static int below(int limit, int port) { return limit > port ? ceil_div(limit - port, PORTS) : 0; }

    int first_blocks(int port) const { return below(first_end, port); }
    int second_blocks(int port) const { return below(end, port) - below(second_begin, port); }
    int blocks(int port) const { return first_blocks(port) + second_blocks(port); }

    // Block number of the port's local-th block that is read.
    int block(int port, int local) const {
        const int first = first_blocks(port);
        const int index = local < first ? local : local - first + below(second_begin, port);
        return index * PORTS + port;
    }
};

}  // namespace fastcar

#endif
