// QuantLinear: integer matrix-vector products of all rows with one weight stream.
//
// A port's stream of a matrix, tile by tile of 32 outputs (the last may be narrower), each port 8 of them:
//   2 beats        the 8 outputs' scales, binary32
//   2 beats        their biases, binary32, if the layer has any
//   then for each chunk of inputs (one beat an output: 16 inputs of 8 bit, 32 of 4 bit)
//     4 bit, even chunks: 1 beat of multipliers, 8 for this chunk, 8 for the next
//     one beat for each of the port's outputs
// A 4-bit weight times its group's multiplier is an int8 weight: both kinds run on the same groups.
#ifndef FASTCAR_QUANT_LINEAR_H
#define FASTCAR_QUANT_LINEAR_H

#include "drs.h"
#include "float32.h"
#include "processing_group.h"
#include "stream.h"

namespace fastcar {

constexpr int SCALE_BEATS = 2 * WINDOW_PAIRS * 4 / BEAT_BYTES;

struct LinearShape {
    int inputs;
    int outputs;
    bool int4;
    bool bias;

    int head_beats() const { return bias ? 2 * SCALE_BEATS : SCALE_BEATS; }  // of scales and biases
    int halves() const { return int4 ? 2 : 1; }  // beats of activations, and group clocks, a weight beat takes
    int chunks() const { return ceil_div(inputs, BEAT_BYTES * halves()); }
    int tiles() const { return ceil_div(outputs, TILE_OUTPUTS); }
    int pairs(int tile) const {  // pairs of outputs of a port in a tile
        const int left = ceil_div(outputs - tile * TILE_OUTPUTS, 2 * PORTS);
        return left < WINDOW_PAIRS ? left : WINDOW_PAIRS;
    }
    int tile_beats(int pairs) const { return head_beats() + (int4 ? ceil_div(chunks(), 2) : 0) + chunks() * 2 * pairs; }
    int port_beats() const {
        return (tiles() - 1) * tile_beats(WINDOW_PAIRS) + tile_beats(pairs(tiles() - 1));
    }
};

// Half of a beat of 32 int4 times the multiplier: 16 int8. |value| <= 7 * 18 = 126.
inline beat_t expand_int4(const beat_t& beat, int half, int multiplier) {
#pragma HLS INLINE
    int8_t bytes[BEAT_BYTES];
    int8_t weights[BEAT_BYTES];
    unpack(beat, bytes);
lane:
    for (int lane = 0; lane < BEAT_BYTES / 2; lane++) {
#pragma HLS UNROLL
        const int8_t byte = bytes[half * (BEAT_BYTES / 2) + lane];
        weights[2 * lane] = (int8_t)((int8_t)((uint8_t)byte << 4) >> 4) * multiplier;
        weights[2 * lane + 1] = (int8_t)(byte >> 4) * multiplier;
    }
    return pack(weights);
}

// What a column of groups does with a matrix, clock by clock: while a window works, the next one fills and the
// finished tile before drains. A slot lasts until its window is full and the one before it is worked off.
struct LinearCursor {
    int tile;
    int chunk;

    int fill_beats(const LinearShape& shape) const {
        return (chunk == 0 ? shape.head_beats() : 0) + (shape.int4 && chunk % 2 == 0 ? 1 : 0) + 2 * shape.pairs(tile);
    }
    void advance(const LinearShape& shape) {
        chunk++;
        if (chunk == shape.chunks()) {
            chunk = 0;
            tile++;
        }
    }
};

// y[o] = float(sum_i x[i] w[i, o]) * scale[o] * x_scale + bias[o], for the rows that compute; given to `sink` two
// outputs at a time: sink(row, output, y0, y1), outputs beyond the shape's included. The accumulator is int32:
// 127 * 127 * inputs < 2^31 up to 133144 inputs. Adds the group clocks worked to busy_beats; returns the clocks of the
// loop.
template <int ROWS, int GROUPS, int CAPACITY, typename Sink>
int64_t quant_linear(stream<beat_t> ports[PORTS], const LinearShape& shape, const Dealing& dealing,
                     const beat_t x[ROWS][CAPACITY / BEAT_BYTES], const float x_scale[ROWS], Sink& sink,
                     int64_t& busy_beats) {
    static_assert(CAPACITY % (2 * BEAT_BYTES) == 0, "a row must hold whole chunks of 32 inputs");
    static_assert(CAPACITY <= 133144, "127 * 127 * inputs must stay below 2^31");
    static_assert(GROUPS >= 1 && ROWS >= 1 && ROWS <= MAX_ROWS, "a column has groups, a step 1 to 32 rows");
    beat_t scales[4][PORTS][2 * SCALE_BEATS];  // and biases; a tile may fill while one works and another drains
#pragma HLS ARRAY_PARTITION variable=scales type=complete dim=0
    beat_t multipliers[PORTS];
#pragma HLS ARRAY_PARTITION variable=multipliers type=complete dim=1
    beat_t window[2][PORTS][2 * WINDOW_PAIRS][2];
#pragma HLS ARRAY_PARTITION variable=window type=complete dim=0
    int32_t accumulator[2][PORTS][WINDOW_PAIRS][ROWS][2];
#pragma HLS ARRAY_PARTITION variable=accumulator type=complete dim=2
#pragma HLS ARRAY_PARTITION variable=accumulator type=complete dim=3
#pragma HLS ARRAY_PARTITION variable=accumulator type=complete dim=4
    GroupRegisters<GROUPS> registers;

    const int count = dealing.count;
    registers.prepare(count);
    const int chunks = shape.chunks();
    LinearCursor filling = {0, 0};
    LinearCursor working = {0, 0};
    bool works = false;
    int bank = 0;  // window that fills
    int step = 0;
    int drain_tile = 0;
    int drain_entry = count;  // count: nothing left to drain
    int drain_item = 0;
    int64_t clocks = 0;
    bool more = true;
clock:
    while (more) {
// one beat a port, one wave of the groups and one pair of results a clock
#pragma HLS PIPELINE II=1
#pragma HLS LOOP_TRIPCOUNT min=32 max=1000000
        const bool fills = filling.tile < shape.tiles();
        const int fill_beats = fills ? filling.fill_beats(shape) : 0;
        if (step < fill_beats) {
            const int output = step - (fill_beats - 2 * shape.pairs(filling.tile));
            const bool is_scale = filling.chunk == 0 && step < shape.head_beats();
        fill_port:
            for (int port = 0; port < PORTS; port++) {
#pragma HLS UNROLL
                const beat_t beat = ports[port].read();
                if (is_scale) {
                    scales[filling.tile % 4][port][step] = beat;
                } else if (output < 0) {
                    multipliers[port] = beat;
                } else if (shape.int4) {
                    const int multiplier = byte_of(multipliers[port], filling.chunk % 2 * 8 + output);
                    window[bank][port][output][0] = expand_int4(beat, 0, multiplier);
                    window[bank][port][output][1] = expand_int4(beat, 1, multiplier);
                } else {
                    window[bank][port][output][0] = beat;
                }
            }
        }
        const int pairs = works ? shape.pairs(working.tile) : 0;
        const int work_clocks = works ? waves(dealing, pairs, GROUPS) * shape.halves() : 0;
        if (step < work_clocks) {
            const int half = step % shape.halves();
        group:
            for (int group = 0; group < GROUPS; group++) {
#pragma HLS UNROLL
                const int pair = registers.pair[group];
                const int row = dealing.mapping[registers.entry[group]];
                if (pair < pairs && dealing.index[row]) {
                    busy_beats += PORTS;
                port:
                    for (int port = 0; port < PORTS; port++) {
#pragma HLS UNROLL
                        sum_t sum0, sum1;
                        const beat_t (*outputs)[2] = window[1 - bank][port] + 2 * pair;
                        group_products(outputs[0][half], outputs[1][half],
                                       x[row][working.chunk * shape.halves() + half], false, sum0, sum1);
                        int32_t* cell = accumulator[working.tile % 2][port][pair][row];
                        const bool first = working.chunk == 0 && half == 0;
                        cell[0] = (first ? 0 : cell[0]) + (int32_t)sum0;
                        cell[1] = (first ? 0 : cell[1]) + (int32_t)sum1;
                    }
                }
            }
            if (half == shape.halves() - 1) registers.advance(count);
        }
        if (drain_entry < count) {
            const int drain_pairs = shape.pairs(drain_tile);
            const int row = dealing.mapping[drain_entry];
            const int port = drain_item / drain_pairs;
            const int pair = drain_item % drain_pairs;
            if (dealing.index[row]) {
                const beat_t& scale = scales[drain_tile % 4][port][pair / 2];
                const int32_t* cell = accumulator[drain_tile % 2][port][pair][row];
                float y0 = (float)cell[0] * float_of(word_of(scale, pair % 2 * 2)) * x_scale[row];
                float y1 = (float)cell[1] * float_of(word_of(scale, pair % 2 * 2 + 1)) * x_scale[row];
                if (shape.bias) {  // without, -0 stays -0
                    const beat_t& bias = scales[drain_tile % 4][port][SCALE_BEATS + pair / 2];
                    y0 = y0 + float_of(word_of(bias, pair % 2 * 2));
                    y1 = y1 + float_of(word_of(bias, pair % 2 * 2 + 1));
                }
                sink(row, drain_tile * TILE_OUTPUTS + 2 * drain_item, y0, y1);
            }
            drain_item++;
            if (drain_item == PORTS * drain_pairs) {
                drain_item = 0;
                drain_entry++;
            }
        }
        step++;
        clocks++;
        const bool ends_tile = works && working.chunk == chunks - 1;
        const bool waits = ends_tile && drain_entry < count;  // the next tile's sums go to the bank that drains
        if (step >= fill_beats && step >= work_clocks && !waits) {
            if (ends_tile) {
                drain_tile = working.tile;
                drain_entry = 0;
            }
            working = filling;
            works = fills;
            bank = 1 - bank;
            step = 0;
            if (fills) filling.advance(shape);
            registers.start();
        }
        more = filling.tile < shape.tiles() || works || drain_entry < count;
    }
    return clocks;
}

}  // namespace fastcar

#endif
