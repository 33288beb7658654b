// Executor: embedding, norms and linear layers.
#ifndef FASTCAR_EXECUTOR_LAYERS_H
#define FASTCAR_EXECUTOR_LAYERS_H

#include "executor.h"

namespace fastcar {

// Tokens and uniforms of the step, the rows' embeddings, the rotary tables of the position and what it sees.
inline void Executor::embed(const Operation& operation, CacheStreams& cache) {
    see_from(operation.position, model_, control_, visible_);
    const bool continues = operation.step > 0 && (control_.flags & FLAG_TEACHER) == 0;
    request(cache, true, control_.input + operation.step * records_.input(), records_.input());
record:
    for (int beat = 0; beat < (int)records_.input(); beat++) {
#pragma HLS PIPELINE II=1
#pragma HLS LOOP_TRIPCOUNT min=2 max=2*MAX_ROWS*MAX_DEPTH_CODES/BEAT_WORDS
        const beat_t values = take(cache);
    word:
        for (int word = 0; word < BEAT_WORDS; word++) {
#pragma HLS UNROLL
            if (beat < (int)records_.token_beats) {
                tokens_[beat * BEAT_WORDS + word] = word_of(values, word);
            } else {
                uniforms_[(beat - records_.token_beats) * BEAT_WORDS + word] = word_of(values, word);
            }
        }
    }
    const bool reads = reads_codes(network_, control_, operation.step);
    if (reads) read_codes(continues, cache);
row:
    for (int row = 0; row < (reads ? 0 : (int)control_.rows); row++) {
// not pipelined: a row is a burst of its embedding
#pragma HLS LOOP_TRIPCOUNT min=0 max=ROWS
        uint32_t token = tokens_[row * records_.each()];
        if (continues && token == OWN_CODE) token = model_.code_offset + codes_[row % control_.clips];
        if (token >= model_.vocab) {
            counters_.bad_token = true;
            token = 0;
        }
        const int beats = model_.hidden / BEAT_HALVES;
        request(cache, false, model_.embedding + token * beats, beats);
    value:
        for (int beat = 0; beat < beats; beat++) {
#pragma HLS PIPELINE II=1
#pragma HLS LOOP_TRIPCOUNT min=2 max=MAX_HIDDEN/BEAT_HALVES
            const beat_t values = take(cache);
        half:
            for (int half = 0; half < BEAT_HALVES; half++) {
#pragma HLS UNROLL
                const uint16_t bits = (uint16_t)(word_of(values, half / 2) >> (16 * (half % 2)));
                x_[row][beat * BEAT_HALVES + half] = from_half(bits);
            }
        }
    }
    const int table_beats = model_.head_dim / BEAT_WORDS;
    request(cache, false, model_.rotary + operation.position * 2 * table_beats, 2 * table_beats);
rotary:
    for (int beat = 0; beat < 2 * table_beats; beat++) {
#pragma HLS PIPELINE II=1
#pragma HLS LOOP_TRIPCOUNT min=8 max=2*MAX_HEAD_DIM/BEAT_WORDS
        const beat_t values = take(cache);
    angle:
        for (int word = 0; word < BEAT_WORDS; word++) {
#pragma HLS UNROLL
            const float value = float_of(word_of(values, word));
            if (beat < table_beats) {
                cos_[beat * BEAT_WORDS + word] = value;
            } else {
                sin_[(beat - table_beats) * BEAT_WORDS + word] = value;
            }
        }
    }
}

inline void Executor::norm(const Operation& operation, stream<beat_t> ports[PORTS], const Dealing& dealing) {
    const int hidden = model_.hidden;
    read_words(ports, hidden, [this](int index, uint32_t word) { gain_[index] = float_of(word); });
row:
    for (int entry = 0; entry < (int)dealing.count; entry++) {
// not pipelined: the passes over a row are
#pragma HLS LOOP_TRIPCOUNT min=1 max=ROWS
        const int row = dealing.mapping[entry];
        x_scale_[row] = rms_norm<VECTOR, MAX_HIDDEN>(x_[row], gain_, operation.eps, work_, x8_[row], hidden);
    }
}

inline void Executor::norm_mlp(const Operation& operation, stream<beat_t> ports[PORTS]) {
    if (!skips(mlp_)) norm(operation, ports, mlp_);
}

inline void Executor::linear_qkv(const Operation& operation, stream<beat_t> ports[PORTS]) {
    WideSink sink = {wide_, (int)((model_.heads + 2 * model_.kv_heads) * model_.head_dim), false};
    linear(operation, ports, all_rows(), sink);
}

inline void Executor::linear_output(const Operation& operation, stream<beat_t> ports[PORTS]) {
    ResidualSink sink = {x_, (int)model_.hidden, false};
    linear(operation, ports, all_rows(), sink);
}

inline void Executor::linear_gate_up(const Operation& operation, stream<beat_t> ports[PORTS]) {
    if (skips(mlp_)) return;
    SwigluSink<MAX_WIDE> sink = {wide_, (int)(2 * model_.mlp)};
    linear(operation, ports, mlp_, sink);
row:
    for (int entry = 0; entry < (int)mlp_.count; entry++) {
// not pipelined: the passes over a row are
#pragma HLS LOOP_TRIPCOUNT min=1 max=ROWS
        const int row = mlp_.mapping[entry];
        if (mlp_.index[row]) x_scale_[row] = quantize_row<VECTOR, MAX_WIDE>(wide_[row], x8_[row], model_.mlp);
    }
}

// The rows that compute store their outputs with age 0; the rows that replay read theirs and count up its age.
inline void Executor::linear_down(const Operation& operation, stream<beat_t> ports[PORTS], CacheStreams& cache) {
    if (!skips(mlp_)) {
        RoundedSink<MAX_WIDE> sink = {wide_, (int)model_.hidden};
        linear(operation, ports, mlp_, sink);
    }
    const int place = place_of(model_, operation.position);
    const int beats = model_.hidden / BEAT_HALVES;
row:
    for (int row = 0; row < (int)control_.rows; row++) {
// not pipelined: a row is a burst of its output
#pragma HLS LOOP_TRIPCOUNT min=1 max=ROWS
        const uint32_t address = layout_.replay(place, operation.layer, row);
        const bool computes = mlp_.index[row];
        if (computes) {
            store(cache, address, beats + 1, false);
        } else {
            request(cache, true, address, beats);
        }
    output:
        for (int beat = 0; beat < beats; beat++) {
#pragma HLS PIPELINE II=1
#pragma HLS LOOP_TRIPCOUNT min=2 max=MAX_HIDDEN/BEAT_HALVES
            float* x = x_[row] + beat * BEAT_HALVES;
            const float* y = wide_[row] + beat * BEAT_HALVES;
            const beat_t used = computes ? pack_bfloat16(y) : take(cache);
            if (computes) give(cache, used);
        add:
            for (int half = 0; half < BEAT_HALVES; half++) {
#pragma HLS UNROLL
                x[half] = x[half] + unpack_bfloat16(used, half);
            }
        }
        if (!computes) store(cache, address + beats, 1, false);
        beat_t age = 0;
        set_word(age, 0, computes ? 0u : (uint32_t)age_[row] + 1u);
        give(cache, age);
    }
}

inline void Executor::linear_logits(const Operation& operation, stream<beat_t> ports[PORTS]) {
    WideSink sink = {wide_, (int)model_.codes, false};
    linear(operation, ports, all_rows(), sink);
}

}  // namespace fastcar

#endif
