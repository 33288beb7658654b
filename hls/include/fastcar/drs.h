// Dynamic Resource Scheduling: which group serves which row, decided on chip from the replay flags.
//
// The index register holds one bit a row (1: the row computes, 0: it replays), the mapping registers the rows that
// are dealt. Work on a window of channel pairs is dealt round-robin: item i = wave * groups + group serves entry
// i mod count and pair i div count, so the groups split as rows x output channels whatever the number of computing
// rows. Without reassignment every row keeps its items, and those of replayed rows idle.
// rtl/drs_unit.sv is the same in RTL, as a unit of its own; the kernels deal with GroupRegisters, inside their loops.
#ifndef FASTCAR_DRS_H
#define FASTCAR_DRS_H

#include "types.h"

namespace fastcar {

struct Dealing {
    ap_uint<32> index;              // index register
    ap_uint<6> rows;                // rows of the step
    ap_uint<6> count;               // entries that are dealt: computing rows, or all rows without reassignment
    ap_uint<5> mapping[MAX_ROWS];   // mapping registers: row of each entry, ascending
    bool reassign;
};

struct Assignment {
    bool busy;
    ap_uint<5> row;
    ap_uint<7> pair;
};

inline Dealing deal(ap_uint<32> index, ap_uint<6> rows, bool reassign) {
    Dealing dealing;
    dealing.index = index;
    dealing.rows = rows;
    dealing.reassign = reassign;
    int count = 0;
clear:
    for (int entry = 0; entry < MAX_ROWS; entry++) {
#pragma HLS UNROLL
        dealing.mapping[entry] = 0;
    }
scan:
    for (int row = 0; row < MAX_ROWS; row++) {
#pragma HLS PIPELINE II=1
        if (row < (int)rows && (!reassign || index[row])) {
            dealing.mapping[count] = row;
            count++;
        }
    }
    dealing.count = count;
    return dealing;
}

// Whether no row computes: the MLP's instructions are dropped.
inline bool skips(const Dealing& dealing) { return dealing.reassign && dealing.count == 0; }

inline int waves(const Dealing& dealing, int pairs, int groups) {
    return ceil_div((int)dealing.count * pairs, groups);
}

// The definition; groups step their registers instead of dividing (GroupRegisters).
inline Assignment assign(const Dealing& dealing, int wave, int group, int groups, int pairs) {
    const int item = wave * groups + group;
    const int count = dealing.count;
    Assignment assignment = {false, 0, 0};
    if (item < count * pairs) {
        assignment.row = dealing.mapping[item % count];
        assignment.pair = item / count;
        assignment.busy = dealing.index[assignment.row];
    }
    return assignment;
}

// Where each group stands in the dealing. A wave advances all of them by GROUPS items: a step of (entry, pair) that is
// known once the count is, so no group divides.
// GROUPS: processing groups of a port's column.
template <int GROUPS>
struct GroupRegisters {
    static_assert(GROUPS >= 1 && GROUPS <= 32, "a column has 1 to 32 groups");

    int entry[GROUPS];
    int pair[GROUPS];
    int first_entry[GROUPS];
    int first_pair[GROUPS];
    int entry_step;
    int pair_step;

    // For a count of at least 1.
    void prepare(int count) {
        int next_entry = 0;
        int next_pair = 0;
    place:
        for (int group = 0; group < GROUPS; group++) {
#pragma HLS UNROLL
            first_entry[group] = next_entry;
            first_pair[group] = next_pair;
            next_entry++;
            if (next_entry == count) {
                next_entry = 0;
                next_pair++;
            }
        }
        entry_step = next_entry;
        pair_step = next_pair;
        start();
    }

    void start() {
    restart:
        for (int group = 0; group < GROUPS; group++) {
#pragma HLS UNROLL
            entry[group] = first_entry[group];
            pair[group] = first_pair[group];
        }
    }

    void advance(int count) {
    step:
        for (int group = 0; group < GROUPS; group++) {
#pragma HLS UNROLL
            entry[group] += entry_step;
            pair[group] += pair_step;
            if (entry[group] >= count) {
                entry[group] -= count;
                pair[group]++;
            }
        }
    }
};

}  // namespace fastcar

#endif
