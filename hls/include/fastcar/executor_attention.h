// Executor: heads, score, decision, caches and attention.
#ifndef FASTCAR_EXECUTOR_ATTENTION_H
#define FASTCAR_EXECUTOR_ATTENTION_H

#include "executor.h"

namespace fastcar {

static_assert(CACHE_FIFO_BEATS >= 2 * MAX_HEAD_DIM, "two blocks of V are in flight while one is rewritten");
static_assert(CACHE_FIFO_BEATS >= MAX_KV_BEATS + 1, "a row's earlier keys and its age are requested at once");

// q, k and v of a row: rotated, quantized; the query of the score in q_score_.
inline void Executor::rotate_row(int row) {
    const int head_beats = model_.head_dim / BEAT_BYTES;
    const int heads = model_.heads;
    const int kv_heads = model_.kv_heads;
    const bool before_rotation = (model_.opcode & MODEL_PRE_ROPE) != 0;
    rotate_heads<VECTOR, MAX_HEAD_DIM, MAX_QKV_BEATS>(wide_[row], cos_, sin_, head_scale_, heads + 2 * kv_heads,
                                                     heads + kv_heads, model_.head_dim, qkv_[row]);
    if (before_rotation) {
        rotate_heads<VECTOR, MAX_HEAD_DIM, MAX_QKV_BEATS>(wide_[row], cos_, sin_, head_scale_, heads, 0,
                                                         model_.head_dim, q_score_);
    } else {
    copy:
        for (int beat = 0; beat < heads * head_beats; beat++) {
#pragma HLS PIPELINE II=1
#pragma HLS LOOP_TRIPCOUNT min=1 max=MAX_HEADS*MAX_HEAD_BEATS
            q_score_[beat] = qkv_[row][beat];
        }
    }
}

// K and V of a row's position: its key as it is, its value into lane slot mod 16 of the open block.
inline void Executor::store_heads(const StateLayout& layout, int row, int layer, int slot, CacheStreams& cache) {
    const int head_beats = model_.head_dim / BEAT_BYTES;
    const int heads = model_.heads;
    const int kv_heads = model_.kv_heads;
    const int lane = slot % BLOCK_SLOTS;
    if (lane > 0) request(cache, true, layout.block(layer, row, true, 0, slot), model_.head_dim);
cache_head:
    for (int head = 0; head < kv_heads; head++) {
// not pipelined: the beats of a head are
#pragma HLS LOOP_TRIPCOUNT min=1 max=MAX_KV_HEADS
        if (lane > 0 && head + 1 < kv_heads) {
            request(cache, true, layout.block(layer, row, true, head + 1, slot), model_.head_dim);
        }
        store(cache, layout.key(layer, row, head, slot), head_beats, false);
    key_beat:
        for (int beat = 0; beat < head_beats; beat++) {
#pragma HLS PIPELINE II=1
#pragma HLS LOOP_TRIPCOUNT min=1 max=MAX_HEAD_BEATS
            give(cache, qkv_[row][(heads + head) * head_beats + beat]);
        }
        const bool last = row == (int)control_.rows - 1 && head == kv_heads - 1;
        store(cache, layout.block(layer, row, true, head, slot), model_.head_dim, last);
    value_beat:
        for (int dim = 0; dim < (int)model_.head_dim; dim++) {
#pragma HLS PIPELINE II=1
#pragma HLS LOOP_TRIPCOUNT min=16 max=MAX_HEAD_DIM
            beat_t block = lane > 0 ? take(cache) : beat_t(0);
            const beat_t& value = qkv_[row][(heads + kv_heads + head) * head_beats + dim / BEAT_BYTES];
            set_byte(block, lane, (uint8_t)byte_of(value, dim % BEAT_BYTES));
            give(cache, block);
        }
    }
}

// The score needs only q and the key of one frame earlier, so the decision is known before attention starts. K and V
// are in memory before it is sent: whoever fetches on its word may read them.
inline void Executor::heads(const Operation& operation, stream<beat_t> ports[PORTS], CacheStreams& cache, stream<bool>& decisions) {
    read_words(ports, head_words(model_), [this](int index, uint32_t word) { keep_head_word(index, word); });
    const int head_beats = model_.head_dim / BEAT_BYTES;
    const int heads = model_.heads;
    const int kv_heads = model_.kv_heads;
    const int position = operation.position;
    const int layer = operation.layer;
    const int place = place_of(model_, position);
    const HeadReduction reduction = (model_.opcode & MODEL_HEADS_MAX) != 0   ? HEADS_LARGEST
                                    : (model_.opcode & MODEL_HEADS_MIN) != 0 ? HEADS_LEAST
                                                                             : HEADS_SUM;
row:
    for (int row = 0; row < (int)control_.rows; row++) {
// not pipelined: the passes over a row are
#pragma HLS LOOP_TRIPCOUNT min=1 max=ROWS
    request:
        for (int head = 0; head < kv_heads; head++) {
#pragma HLS PIPELINE II=1
#pragma HLS LOOP_TRIPCOUNT min=1 max=MAX_KV_HEADS
            const uint32_t key = layout_.key(layer, row, head, slot_before(model_, position));
            if (position > 0) request(cache, true, key, head_beats);
        }
        request(cache, true, layout_.replay(place, layer, row) + model_.hidden / BEAT_HALVES, 1);
        rotate_row(row);
    earlier:
        for (int beat = 0; beat < kv_heads * head_beats; beat++) {
#pragma HLS PIPELINE II=1
#pragma HLS LOOP_TRIPCOUNT min=1 max=MAX_KV_BEATS
            k_before_[beat] = position > 0 ? take(cache) : beat_t(0);  // the caches hold nothing yet
        }
        age_[row] = (int32_t)word_of(take(cache), 0);
        scores_[layer][row] = temporal_attention_score<MAX_HEADS, MAX_HEAD_BEATS>(
            q_score_, k_before_, multiplier_, heads, heads / kv_heads, head_beats, reduction);
        store_heads(layout_, row, layer, position, cache);
    }
    wait_for_stores(cache);

    const ap_uint<32> replay =
        replay_decision(scores_[layer], thresholds_[layer], has_frame_before(model_, position), age_, control_.max_age,
                        control_.policy, control_.rows);
    replays_[layer] = replay.to_uint();
    const ap_uint<32> everyone = all_rows().index;
    mlp_ = deal(everyone & ~replay, control_.rows, reassigns());
    decisions.write(!skips(mlp_));
count:
    for (int row = 0; row < MAX_ROWS; row++) {
#pragma HLS PIPELINE II=1
        if (replay[row]) counters_.rows_replayed++;
    }
    if (skips(mlp_)) counters_.passes_skipped++;
}

inline void Executor::attention(const Operation& operation, stream<beat_t> ports[PORTS]) {
    const bool padded = operation.opcode == ATTENTION;  // residual codes have no padding
    const int head_beats = model_.head_dim / BEAT_BYTES;
    const int heads = model_.heads;
    const int kv_heads = model_.kv_heads;
    const int group = heads / kv_heads;
row:
    for (int row = 0; row < (int)control_.rows; row++) {
// not pipelined: a row is a walk over its heads
#pragma HLS LOOP_TRIPCOUNT min=1 max=ROWS
        visible_.begin_row(padded ? (int)padding_[row] : 0);
    head:
        for (int head = 0; head < kv_heads; head++) {
// not pipelined: the passes over a head are
#pragma HLS LOOP_TRIPCOUNT min=1 max=MAX_KV_HEADS
            const beat_t* q = qkv_[row] + head * group * head_beats;
            const beat_t* k = qkv_[row] + (heads + head) * head_beats;
            const beat_t* v = k + kv_heads * head_beats;
            counters_.clocks += attention_head<GROUPS, VECTOR>(
                ports, attention_, q, k, v, exponent_ + head * group, v_scale_[head], visible_, group, model_.head_dim,
                wide_[row] + head * group * model_.head_dim, counters_.busy_beats);
        }
        x_scale_[row] = quantize_row<VECTOR, MAX_WIDE>(wide_[row], x8_[row], heads * model_.head_dim);
    }
}

}  // namespace fastcar

#endif
