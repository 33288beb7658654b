// Which slots of the past a position sees: all of them, or the first ones (sinks), a window of the last, and columns,
// the same place of earlier frames.
#ifndef FASTCAR_VISIBLE_H
#define FASTCAR_VISIBLE_H

#include "descriptor.h"
#include "types.h"

namespace fastcar {

// A block that is read for columns alone.
struct ColumnBlock {
    uint16_t number;
    uint16_t lanes;  // bit l: its slot l is a column
};

// A block that is read: its first slot, and in which of its lanes are columns.
struct SeenBlock {
    int first_slot;
    uint32_t columns;
};

// Slots s < position with s < sinks or s >= position - window, window 0: all of them; and the columns. Of a row whose
// first slots are padding none of these, and its sinks come behind them. Whole blocks are read; block b is the port's
// b / PORTS-th if b mod PORTS is the port. A port reads the blocks of the sinks, those of the window, then those that
// hold columns alone, the last first.
struct Visible {
    int position;
    int sinks;
    int sinks_end;      // first slot behind the sinks of the row that has most padding
    int row_begin;      // of a row: its padding, ...
    int row_sinks_end;  // ... and the first slot behind its sinks
    int window_begin;   // first slot of the window
    int first_end;      // blocks 0 .. first_end - 1 ...
    int second_begin;   // ... and second_begin .. end - 1 are read
    int end;
    uint32_t sinks_columns;   // lanes of columns in the block in which the sinks end, ...
    uint32_t window_columns;  // ... and in that in which the window begins: both are read anyway
    int column_blocks[PORTS];
    ColumnBlock columns[PORTS][MAX_COLUMNS];

    // Without columns. The first `padding` slots hold nothing, of the row that has most; `begin_row` says how many.
    void begin(int from, int sinks_seen, int window, int padding) {
        position = from;
        sinks = sinks_seen;
        window_begin = window > 0 && window < position ? position - window : 0;
        sinks_end = end_of_sinks(padding);
        begin_row(0);
        end = ceil_div(position, BLOCK_SLOTS);
        first_end = ceil_div(sinks_end, BLOCK_SLOTS);
        second_begin = window_begin / BLOCK_SLOTS;
        if (second_begin <= first_end) {  // they touch: one run of blocks
            first_end = 0;
            second_begin = 0;
        }
        sinks_columns = 0;
        window_columns = 0;
    no_columns:
        for (int port = 0; port < PORTS; port++) {
#pragma HLS UNROLL
            column_blocks[port] = 0;
        }
    }

    // What is read is the same for all rows.
    void begin_row(int padding) {
        row_begin = padding;
        row_sinks_end = end_of_sinks(padding);
    }

    int end_of_sinks(int padding) const {
        const int behind = sinks > 0 ? padding + sinks : 0;
        return behind < position ? behind : position;
    }

    // After begin(), once: the slots `places`, 2 * `places`, ... `count` * `places` before the position that are not before `first`.
    void add_columns(int count, int places, int first) {
        int slot = position;
        int number = -1;  // block of the column before, if it is read for columns alone
        uint32_t lanes = 0;
    column:
        for (int column = 0; column < count; column++) {
#pragma HLS PIPELINE II=1
#pragma HLS LOOP_TRIPCOUNT min=0 max=MAX_COLUMNS
            slot -= places;
            if (slot >= first && !in_runs(slot)) {
                const int block = slot / BLOCK_SLOTS;
                const int port = block % PORTS;
                const uint32_t lane = 1u << slot % BLOCK_SLOTS;
                if (block == window_begin / BLOCK_SLOTS) {
                    window_columns |= lane;
                } else if (block * BLOCK_SLOTS < sinks_end) {
                    sinks_columns |= lane;
                } else {
                    lanes = block == number ? lanes | lane : lane;
                    if (block != number) column_blocks[port]++;
                    columns[port][column_blocks[port] - 1] = ColumnBlock{(uint16_t)block, (uint16_t)lanes};
                    number = block;
                }
            }
        }
    }

    // Sinks and window, of the row with most padding.
    bool in_runs(int slot) const { return slot < position && (slot < sinks_end || slot >= window_begin); }

    bool sees(const SeenBlock& block, int lane) const {
        const int slot = block.first_slot + lane;
        const bool run = slot >= row_begin && slot < position && (slot < row_sinks_end || slot >= window_begin);
        return run || ((block.columns >> lane) & 1u) != 0;
    }

    // Number of blocks below `limit` that are the port's.
    static int below(int limit, int port) { return limit > port ? ceil_div(limit - port, PORTS) : 0; }

    int first_blocks(int port) const { return below(first_end, port); }
    int second_blocks(int port) const { return below(end, port) - below(second_begin, port); }
    int blocks(int port) const { return first_blocks(port) + second_blocks(port) + column_blocks[port]; }

    // The port's local-th block that is read.
    SeenBlock block(int port, int local) const {
        const int first = first_blocks(port);
        const int runs = first + second_blocks(port);
        if (local >= runs) {
            const ColumnBlock& column = columns[port][local - runs];
            return SeenBlock{column.number * BLOCK_SLOTS, column.lanes};
        }
        const int number = (local < first ? local : local - first + below(second_begin, port)) * PORTS + port;
        uint32_t lanes = 0;
        if (number == window_begin / BLOCK_SLOTS) {
            lanes = window_columns;
        } else if (number == sinks_end / BLOCK_SLOTS) {
            lanes = sinks_columns;
        }
        return SeenBlock{number * BLOCK_SLOTS, lanes};
    }

    // The most blocks that a port reads for columns alone.
    int most_columns() const {
        int most = 0;
    most_port:
        for (int port = 0; port < PORTS; port++) {
#pragma HLS UNROLL
            if (column_blocks[port] > most) most = column_blocks[port];
        }
        return most;
    }
};

}  // namespace fastcar

#endif
