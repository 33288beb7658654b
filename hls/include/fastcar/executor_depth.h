// Executor: the depth transformer, and the codes' way into it and into the backbone.
#ifndef FASTCAR_EXECUTOR_DEPTH_H
#define FASTCAR_EXECUTOR_DEPTH_H

#include "executor.h"

namespace fastcar {

// The code, or entry 0 in place of one that is not in the codebook.
inline uint32_t Executor::known_code(uint32_t code) {
    if (code < model_.codes) return code;
    counters_.bad_token = true;
    return 0;
}

// The entry of residual code `index` onto the sum of the row's.
inline void Executor::add_code(int row, int index, uint32_t code, CacheStreams& cache) {
    const Depth& depth = network_.depth;
    const int beats = depth.code_dim / BEAT_HALVES;
    const uint32_t book = depth.books == 1 ? 0 : index;
    request(cache, false, depth.codebook + (book * model_.codes + code) * beats, beats);
entry:
    for (int beat = 0; beat < beats; beat++) {
#pragma HLS PIPELINE II=1
#pragma HLS LOOP_TRIPCOUNT min=2 max=MAX_CODE_DIM/BEAT_HALVES
        const beat_t values = take(cache);
    half:
        for (int half = 0; half < BEAT_HALVES; half++) {
#pragma HLS UNROLL
            const uint16_t bits = (uint16_t)(word_of(values, half / 2) >> (16 * (half % 2)));
            float& total = total_[row][beat * BEAT_HALVES + half];
            total = (index == 0 ? 0.0f : total) + from_half(bits);
        }
    }
}

// Sums of the codes of the position before: the host's, or the step's own last ones.
inline void Executor::read_codes(bool continues, CacheStreams& cache) {
    const int each = records_.each();
row:
    for (int row = 0; row < (int)control_.rows; row++) {
// not pipelined: a row is a burst for each of its codes
#pragma HLS LOOP_TRIPCOUNT min=1 max=ROWS
        const bool own = continues && tokens_[row * each] == OWN_CODE;
    code:
        for (int index = 0; index < each; index++) {
// not pipelined: a code is a burst
#pragma HLS LOOP_TRIPCOUNT min=1 max=MAX_DEPTH_CODES
            const uint32_t code = own ? codes_[row % control_.clips * each + index] : tokens_[row * each + index];
            add_code(row, index, known_code(code), cache);
        }
    }
}

// The sums as operands.
inline void Executor::quantize_totals() {
row:
    for (int row = 0; row < (int)control_.rows; row++) {
// not pipelined: the passes over a row are
#pragma HLS LOOP_TRIPCOUNT min=1 max=ROWS
        x_scale_[row] = quantize_row<VECTOR, MAX_CODE_DIM>(total_[row], x8_[row], network_.depth.code_dim);
    }
}

// A layer whose outputs are the next one's operand, behind GELU.
inline void Executor::linear_gelu(const Operation& operation, stream<beat_t> ports[PORTS], int outputs) {
    WideSink sink = {wide_, outputs, true};
    linear(operation, ports, all_rows(), sink);
row:
    for (int row = 0; row < (int)control_.rows; row++) {
// not pipelined: the passes over a row are
#pragma HLS LOOP_TRIPCOUNT min=1 max=ROWS
        x_scale_[row] = quantize_row<VECTOR, MAX_WIDE>(wide_[row], x8_[row], outputs);
    }
}

// A layer of the projector, from the codes to the backbone. A step that reads tokens has no use for it.
inline void Executor::project(const Operation& operation, stream<beat_t> ports[PORTS]) {
    if (!reads_codes(network_, control_, operation.step)) return;
    if (operation.layer == 0) quantize_totals();
    if (operation.layer == (int)network_.depth.projector - 1) {
        ResidualSink sink = {x_, (int)model_.hidden, true};
        linear(operation, ports, all_rows(), sink);
    } else {
        linear_gelu(operation, ports, model_.hidden);
    }
}

// Into the depth transformer: the hidden state, which the final norm left as operand, or the sum of the codes before;
// plus the row of the residual code.
inline void Executor::depth_input(const Operation& operation, stream<beat_t> ports[PORTS], CacheStreams& cache) {
    visible_.begin(operation.index, 0, 0, 0);
    if (operation.opcode == DEPTH_CODES) quantize_totals();
    ResidualSink sink = {x_, (int)model_.hidden, true};
    linear(operation, ports, all_rows(), sink);
    const int beats = model_.hidden / BEAT_WORDS;
    request(cache, false, network_.depth.positions + operation.index * beats, beats);
position:
    for (int beat = 0; beat < beats; beat++) {
#pragma HLS PIPELINE II=1
#pragma HLS LOOP_TRIPCOUNT min=4 max=MAX_HIDDEN/BEAT_WORDS
        const beat_t values = take(cache);
    word:
        for (int word = 0; word < BEAT_WORDS; word++) {
#pragma HLS UNROLL
            gain_[beat * BEAT_WORDS + word] = float_of(word_of(values, word));
        }
    }
row:
    for (int row = 0; row < (int)control_.rows; row++) {
// not pipelined: the pass over a row is
#pragma HLS LOOP_TRIPCOUNT min=1 max=ROWS
    add:
        for (int first = 0; first < (int)model_.hidden; first += BEAT_HALVES) {
#pragma HLS PIPELINE II=1
#pragma HLS LOOP_TRIPCOUNT min=2 max=MAX_HIDDEN/BEAT_HALVES
        lane:
            for (int lane = 0; lane < BEAT_HALVES; lane++) {
#pragma HLS UNROLL
                x_[row][first + lane] = x_[row][first + lane] + gain_[first + lane];
            }
        }
    }
}

inline void Executor::deep_norm(const Operation& operation, stream<beat_t> ports[PORTS]) {
    const int hidden = model_.hidden;
    read_words(ports, hidden, [this](int index, uint32_t word) { gain_[index] = float_of(word); });
    read_words(ports, hidden, [this](int index, uint32_t word) { bias_[index] = float_of(word); });
row:
    for (int row = 0; row < (int)control_.rows; row++) {
// not pipelined: the passes over a row are
#pragma HLS LOOP_TRIPCOUNT min=1 max=ROWS
        x_scale_[row] = layer_norm<VECTOR, MAX_HIDDEN>(x_[row], gain_, bias_, operation.eps, work_, x8_[row], hidden);
    }
}

// Heads without rotation. K and V are in memory before it is said: whoever fetches on its word may read them.
inline void Executor::deep_heads(const Operation& operation, stream<beat_t> ports[PORTS], CacheStreams& cache,
                                 stream<bool>& decisions) {
    read_words(ports, deep_head_words(model_), [this](int index, uint32_t word) { keep_head_word(index, word); });
    const int heads = model_.heads + 2 * model_.kv_heads;
row:
    for (int row = 0; row < (int)control_.rows; row++) {
// not pipelined: the passes over a row are
#pragma HLS LOOP_TRIPCOUNT min=1 max=ROWS
        rotate_heads<VECTOR, MAX_HEAD_DIM, MAX_QKV_BEATS>(wide_[row], cos_, sin_, head_scale_, heads, 0,
                                                         model_.head_dim, qkv_[row]);
        store_heads(deep_layout_, row, operation.layer, operation.index, cache);
    }
    wait_for_stores(cache);
    decisions.write(true);
}

}  // namespace fastcar

#endif
