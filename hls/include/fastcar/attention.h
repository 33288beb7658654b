// Attention of one position over its past and itself, for the query heads that share one key/value head.
//
// Two passes over an on-chip score buffer: scores and their maximum, then integer exponentials, their sum and p.V.
// An online softmax would rescale as it goes, and its result would depend on the order. Slots lie in blocks of 16,
// dealt to the ports by block number, so every port holds a share of every head; sums over ports are integer.
#ifndef FASTCAR_ATTENTION_H
#define FASTCAR_ATTENTION_H

#include "float32.h"
#include "processing_group.h"
#include "stream.h"
#include "tables.h"
#include "visible.h"

namespace fastcar {

// 2^15 * exp of a score given as its distance below the peak; 0 from 2^-16 on. At most 2^15 for any exponent.
inline int32_t attention_weight(int32_t below_peak, float exponent) {
    const float steps = (float)below_peak * exponent;
    const float last = (float)((ATTENTION_BITS + 1) << EXP_FRACTION_BITS);
    const int32_t index = (int32_t)(steps < 0.0f ? 0.0f : (steps < last ? steps : last));
    return (int32_t)ATTENTION_MANTISSA[index & ((1 << EXP_FRACTION_BITS) - 1)] >> (index >> EXP_FRACTION_BITS);
}

// Products of a pair of streamed vectors of `chunks` beats with `count` operands: operand(port, unit, entry, chunk)
// gives the operand's beat, emit(port, unit, entry, sum0, sum1) takes the two sums. Port p streams units[p] pairs.
// Returns the clocks of the loop: while one pair works, the next one fills.
// GROUPS: processing groups of a column; MAX_CHUNKS: beats of the longest vector.
template <int GROUPS, int MAX_CHUNKS, typename Operand, typename Emit>
int64_t paired_products(stream<beat_t> ports[PORTS], const int units[PORTS], int chunks, int count, bool x_unsigned,
                        Operand& operand, Emit& emit, int64_t& busy_beats) {
    static_assert(GROUPS >= 1 && MAX_CHUNKS >= 1, "a column has groups, a vector beats");
    beat_t window[2][PORTS][2 * MAX_CHUNKS];
#pragma HLS ARRAY_PARTITION variable=window type=complete dim=0
    int32_t sums[PORTS][GROUPS][2];
#pragma HLS ARRAY_PARTITION variable=sums type=complete dim=0
    int most = 0;
longest:
    for (int port = 0; port < PORTS; port++) {
#pragma HLS UNROLL
        if (units[port] > most) most = units[port];
    }
    const int fill_beats = 2 * chunks;
    const int work_clocks = ceil_div(count, GROUPS) * chunks;
    const int slot_clocks = fill_beats > work_clocks ? fill_beats : work_clocks;
    int64_t clocks = 0;
    int unit = 0;  // that fills; the one before it works
    int step = 0;
clock:
    while (unit <= most && most > 0) {
#pragma HLS PIPELINE II=1
#pragma HLS LOOP_TRIPCOUNT min=0 max=100000
        const int bank = unit % 2;
        if (step < fill_beats) {
        fill_port:
            for (int port = 0; port < PORTS; port++) {
#pragma HLS UNROLL
                if (unit < units[port]) window[bank][port][step] = ports[port].read();
            }
        }
        if (unit > 0 && step < work_clocks) {
            const int chunk = step % chunks;
        group:
            for (int group = 0; group < GROUPS; group++) {
#pragma HLS UNROLL
                const int entry = step / chunks * GROUPS + group;
            port:
                for (int port = 0; port < PORTS; port++) {
#pragma HLS UNROLL
                    if (entry < count && unit - 1 < units[port]) {
                        sum_t sum0, sum1;
                        group_products(window[1 - bank][port][chunk], window[1 - bank][port][chunks + chunk],
                                       operand(port, unit - 1, entry, chunk), x_unsigned, sum0, sum1);
                        int32_t* sum = sums[port][group];
                        sum[0] = (chunk == 0 ? 0 : sum[0]) + (int32_t)sum0;
                        sum[1] = (chunk == 0 ? 0 : sum[1]) + (int32_t)sum1;
                        if (chunk == chunks - 1) emit(port, unit - 1, entry, sum[0], sum[1]);
                        busy_beats++;
                    }
                }
            }
        }
        clocks++;
        step++;
        if (step == slot_clocks || (unit == most && step == work_clocks) || (unit == 0 && step == fill_beats)) {
            step = 0;
            unit++;
        }
    }
    return clocks;
}

// Buffers of one key/value head, sized for the largest model of the configuration: query heads that share it, slots of
// a cache, values of a head.
template <int MAX_GROUP, int MAX_SLOTS, int MAX_HEAD_DIM>
struct AttentionBuffers {
    static_assert(MAX_SLOTS % (PORTS * BLOCK_SLOTS) == 0, "slots must be whole blocks on every port");
    static_assert(MAX_SLOTS <= 65536, "the sum of weights must stay below 2^31");
    static_assert(MAX_HEAD_DIM % BEAT_BYTES == 0 && MAX_HEAD_DIM <= 512, "a head is whole beats, a score below 2^23");
    static_assert(MAX_GROUP >= 1, "a key has at least one query head");
    static constexpr int BLOCKS = MAX_SLOTS / BLOCK_SLOTS / PORTS;

    int32_t scores[MAX_GROUP][PORTS][BLOCKS][BLOCK_SLOTS];
    beat_t weights[2 * MAX_GROUP][PORTS][BLOCKS];  // high bytes, then low bytes, of a head
    int32_t mixed[PORTS][MAX_HEAD_DIM / 2][2 * MAX_GROUP][2];
    int32_t peak[MAX_GROUP];
    int32_t own[MAX_GROUP];
};

// Walks the blocks that are read: of each head, port by port.
struct BlockCursor {
    int head;
    int port;
    int local;

    // From the end of a port's blocks to the next port that has some, or the next head.
    void settle(const Visible& visible) {
    next_port:
        for (int skipped = 0; skipped < PORTS; skipped++) {
#pragma HLS UNROLL
            if (port < PORTS && local >= visible.blocks(port)) {
                local = 0;
                port++;
            }
        }
    }
    void advance(const Visible& visible) {
        local++;
        settle(visible);
        if (port == PORTS) {
            port = 0;
            head++;
            settle(visible);
        }
    }
};

struct ScoreOperand {
    const beat_t* q;
    int head_beats;
    const beat_t& operator()(int, int, int entry, int chunk) const { return q[entry * head_beats + chunk]; }
};

template <typename Buffers>
struct ScoreSink {
    Buffers& buffers;
    const Visible& visible;
    void operator()(int port, int unit, int entry, int32_t sum0, int32_t sum1) {
        const int local = unit / (BLOCK_SLOTS / 2);
        const int lane = unit % (BLOCK_SLOTS / 2) * 2;
        const SeenBlock block = visible.block(port, local);
        buffers.scores[entry][port][local][lane] = sum0;
        buffers.scores[entry][port][local][lane + 1] = sum1;
        if (visible.sees(block, lane) && sum0 > buffers.peak[entry]) buffers.peak[entry] = sum0;
        if (visible.sees(block, lane + 1) && sum1 > buffers.peak[entry]) buffers.peak[entry] = sum1;
    }
};

template <typename Buffers>
struct WeightOperand {
    const Buffers& buffers;
    int pairs;
    const beat_t& operator()(int port, int unit, int entry, int) const {
        return buffers.weights[entry][port][unit / pairs];
    }
};

template <typename Buffers>
struct MixedSink {
    Buffers& buffers;
    int pairs;
    void operator()(int port, int unit, int entry, int32_t sum0, int32_t sum1) {
        int32_t* cell = buffers.mixed[port][unit % pairs][entry];
        cell[0] = (unit < pairs ? 0 : cell[0]) + sum0;
        cell[1] = (unit < pairs ? 0 : cell[1]) + sum1;
    }
};

// y (group * head_dim) = softmax(q.k / sqrt(head_dim)) v over the visible slots and the position itself.
// q holds group * head_beats beats, k and v one head's; exponent a head: score -> steps of 2^-10 in log2.
// Streams of a port: its visible blocks of K (a slot's beats one after the other), then those of V (one beat a
// dimension). Weights are at most 2^15, so high bytes at most 128: sums stay in int32 for 65535 slots.
template <int GROUPS, int VECTOR, int MAX_GROUP, int MAX_SLOTS, int MAX_HEAD_DIM>
int64_t attention_head(stream<beat_t> ports[PORTS], AttentionBuffers<MAX_GROUP, MAX_SLOTS, MAX_HEAD_DIM>& buffers,
                       const beat_t* q, const beat_t* k, const beat_t* v, const float* exponent, float v_scale,
                       const Visible& visible, int group, int head_dim, float* y, int64_t& busy_beats) {
    using Buffers = AttentionBuffers<MAX_GROUP, MAX_SLOTS, MAX_HEAD_DIM>;
    static_assert(BEAT_BYTES % VECTOR == 0, "a head must be whole vectors");
    const int head_beats = head_dim / BEAT_BYTES;
clear:
    for (int head = 0; head < group; head++) {
#pragma HLS PIPELINE II=1
#pragma HLS LOOP_TRIPCOUNT min=1 max=MAX_GROUP
        buffers.own[head] = 0;
    }
own_beat:
    for (int beat = 0; beat < group * head_beats; beat++) {
// read, add, write back of one head's sum
#pragma HLS PIPELINE II=2
#pragma HLS LOOP_TRIPCOUNT min=1 max=MAX_GROUP*MAX_HEAD_DIM/BEAT_BYTES
        sum_t sum0, sum1;
        group_products(k[beat % head_beats], 0, q[beat], false, sum0, sum1);
        buffers.own[beat / head_beats] += (int32_t)sum0;
    }
first_peak:
    for (int head = 0; head < group; head++) {
#pragma HLS PIPELINE II=1
#pragma HLS LOOP_TRIPCOUNT min=1 max=MAX_GROUP
        buffers.peak[head] = buffers.own[head];
    }

    int units[PORTS];
#pragma HLS ARRAY_PARTITION variable=units type=complete dim=1
score_units:
    for (int port = 0; port < PORTS; port++) {
#pragma HLS UNROLL
        units[port] = visible.blocks(port) * (BLOCK_SLOTS / 2);
    }
    ScoreOperand score_operand = {q, head_beats};
    ScoreSink<Buffers> score_sink = {buffers, visible};
    int64_t clocks = paired_products<GROUPS, MAX_HEAD_DIM / BEAT_BYTES>(ports, units, head_beats, group, false,
                                                                       score_operand, score_sink, busy_beats);

    int64_t total[MAX_GROUP];
    int32_t own_weight[MAX_GROUP];
own_weight:
    for (int head = 0; head < group; head++) {
#pragma HLS PIPELINE II=1
#pragma HLS LOOP_TRIPCOUNT min=1 max=MAX_GROUP
        own_weight[head] = attention_weight(buffers.peak[head] - buffers.own[head], exponent[head]);
        total[head] = own_weight[head];
    }
    BlockCursor cursor = {0, 0, 0};
    cursor.settle(visible);
weight:
    while (cursor.head < group && cursor.port < PORTS) {
// a block of 16 slots a clock, one exponential a lane; the next block of a head adds to the same total
#pragma HLS PIPELINE II=1
#pragma HLS LOOP_TRIPCOUNT min=0 max=MAX_GROUP*MAX_SLOTS/BLOCK_SLOTS
        const int head = cursor.head;
        const int port = cursor.port;
        const int local = cursor.local;
        const SeenBlock block = visible.block(port, local);
        int8_t high[BLOCK_SLOTS];
#pragma HLS ARRAY_PARTITION variable=high type=complete dim=1
        int8_t low[BLOCK_SLOTS];
#pragma HLS ARRAY_PARTITION variable=low type=complete dim=1
        int32_t block_sum = 0;
    lane:
        for (int lane = 0; lane < BLOCK_SLOTS; lane++) {
#pragma HLS UNROLL
            const bool seen = visible.sees(block, lane);
            const int32_t below = buffers.peak[head] - buffers.scores[head][port][local][lane];
            const int32_t weight = seen ? attention_weight(below, exponent[head]) : 0;
            high[lane] = (int8_t)(weight >> 8);
            low[lane] = (int8_t)weight;
            block_sum += weight;
        }
        buffers.weights[2 * head][port][local] = pack(high);
        buffers.weights[2 * head + 1][port][local] = pack(low);
        total[head] += block_sum;
        cursor.advance(visible);
    }

    const int pairs = head_dim / 2;
value_units:
    for (int port = 0; port < PORTS; port++) {
#pragma HLS UNROLL
        units[port] = visible.blocks(port) * pairs;
    }
    WeightOperand<Buffers> weight_operand = {buffers, pairs};
    MixedSink<Buffers> mixed_sink = {buffers, pairs};
    clocks += paired_products<GROUPS, 1>(ports, units, 1, 2 * group, true, weight_operand, mixed_sink, busy_beats);

    const int head_vectors = head_dim / VECTOR;
output:
    for (int item = 0; item < group * head_vectors; item++) {
#pragma HLS PIPELINE II=1
#pragma HLS LOOP_TRIPCOUNT min=1 max=MAX_GROUP*MAX_HEAD_DIM/VECTOR
        const int head = item / head_vectors;
    output_lane:
        for (int lane = 0; lane < VECTOR; lane++) {
#pragma HLS UNROLL
            const int dim = item % head_vectors * VECTOR + lane;
            int64_t mixed = (int64_t)own_weight[head] * byte_of(v[dim / BEAT_BYTES], dim % BEAT_BYTES);
        output_port:
            for (int port = 0; port < PORTS; port++) {
#pragma HLS UNROLL
                if (units[port] > 0) {
                    mixed += (int64_t)buffers.mixed[port][dim / 2][2 * head][dim % 2] * 256;
                    mixed += buffers.mixed[port][dim / 2][2 * head + 1][dim % 2];
                }
            }
            y[head * head_dim + dim] = (float)mixed / (float)total[head] * v_scale;
        }
    }
    return clocks;
}

}  // namespace fastcar

#endif
