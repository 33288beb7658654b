// Where things lie in the state buffer, in beats: K and V, replayed outputs with their ages.
//
// toolkit/program/memory.py is the same for the host.
#ifndef FASTCAR_LAYOUT_H
#define FASTCAR_LAYOUT_H

#include "descriptor.h"
#include "quant_linear.h"
#include "types.h"

namespace fastcar {

// Element words of 16 bits in a beat: hidden / 8 beats hold a row of bfloat16 or binary16.
constexpr int BEAT_HALVES = 8;

// K and V of a row and head lie in one run on each port: its blocks in order, head_dim beats each. A block of K holds
// its 16 slots one after the other, a block of V the 16 slots of one dimension in each beat.
struct StateLayout {
    uint32_t rows;
    uint32_t layers;
    uint32_t kv_heads;
    uint32_t head_dim;
    uint32_t hidden;
    uint32_t places;
    uint32_t port_beats;  // K or V of one row and head on one port

    static StateLayout of(const Model& model, const Control& control) {
        StateLayout layout;
        layout.rows = control.rows;
        layout.layers = model.layers;
        layout.kv_heads = model.kv_heads;
        layout.head_dim = model.head_dim;
        layout.hidden = model.hidden;
        layout.places = model.places;
        layout.port_beats = control.slots / (PORTS * BLOCK_SLOTS) * model.head_dim;
        return layout;
    }

    uint32_t replay_beats() const { return hidden / BEAT_HALVES + 1; }  // an output and, behind it, its age

    uint64_t cache_end() const { return (uint64_t)layers * rows * 2 * kv_heads * PORTS * port_beats; }
    uint64_t end() const { return cache_end() + (uint64_t)places * layers * rows * replay_beats(); }

    uint32_t cache(int layer, int row, bool value, int head, int port) const {
        return ((((layer * rows + row) * 2 + (value ? 1 : 0)) * kv_heads + head) * PORTS + port) * port_beats;
    }
    uint32_t block(int layer, int row, bool value, int head, int slot) const {
        const int number = slot / BLOCK_SLOTS;
        return cache(layer, row, value, head, number % PORTS) + number / PORTS * head_dim;
    }
    uint32_t key(int layer, int row, int head, int slot) const {
        return block(layer, row, false, head, slot) + slot % BLOCK_SLOTS * (head_dim / BEAT_BYTES);
    }
    uint32_t replay(int place, int layer, int row) const {
        return (uint32_t)cache_end() + ((place * layers + layer) * rows + row) * replay_beats();
    }
};

// Records of a step in the state buffer, in beats.
struct StepRecords {
    uint32_t token_beats;
    uint32_t uniform_beats;
    uint32_t code_beats;
    uint32_t replay_beats;
    uint32_t score_beats;
    uint32_t logit_beats;  // of one clip; 0 when logits are not recorded

    static StepRecords of(const Model& model, const Control& control) {
        StepRecords records;
        records.token_beats = ceil_div(control.rows, BEAT_WORDS);
        records.uniform_beats = ceil_div(control.clips, BEAT_WORDS);
        records.code_beats = ceil_div(control.clips, BEAT_WORDS);
        records.replay_beats = ceil_div(model.layers, BEAT_WORDS);
        records.score_beats = ceil_div(model.layers * control.rows, 2);
        records.logit_beats = (control.flags & FLAG_LOGITS) ? ceil_div(model.codes, BEAT_WORDS) : 0;
        return records;
    }

    uint32_t input() const { return token_beats + uniform_beats; }
    uint32_t output(uint32_t clips) const { return code_beats + replay_beats + score_beats + clips * logit_beats; }
};

// What an operation of a traced step leaves behind of a row: toolkit/program/trace.py names it.
inline uint32_t trace_row_beats(const Model& model, int opcode) {
    const uint32_t q = model.heads * model.head_dim;
    const uint32_t qkv = q + 2 * model.kv_heads * model.head_dim;
    switch (opcode) {
        case EMBED:
        case LINEAR_OUTPUT:
        case LINEAR_DOWN: return model.hidden / BEAT_WORDS;
        case LINEAR_QKV: return qkv / BEAT_WORDS;
        case LINEAR_LOGITS: return ceil_div(model.codes, BEAT_WORDS);
        case HEADS: return qkv / BEAT_BYTES;
        case NORM_ATTENTION:
        case NORM_MLP:
        case NORM_FINAL: return model.hidden / BEAT_BYTES + 1;
        case ATTENTION: return q / BEAT_BYTES + 1;
        case LINEAR_GATE_UP: return ceil_div(model.mlp, BEAT_BYTES) + 1;
        default: return 0;
    }
}

// Of a whole step, in the order of its operations.
inline uint64_t trace_beats(const Model& model, const Control& control) {
    uint64_t layer = 0;
layer_opcode:
    for (int opcode = NORM_ATTENTION; opcode <= LINEAR_DOWN; opcode++) {
#pragma HLS PIPELINE II=1
        layer += trace_row_beats(model, opcode);
    }
    const uint32_t ending = trace_row_beats(model, NORM_FINAL) + trace_row_beats(model, LINEAR_LOGITS);
    return control.rows * (trace_row_beats(model, EMBED) + model.layers * layer + ending);
}

// Place of a position in its frame; prompt positions use the places before the first one.
inline int place_of(const Model& model, int position) {
    const int offset = position - (int)model.prompt_length;
    const int place = offset % (int)model.places;
    return place < 0 ? place + (int)model.places : place;
}

inline bool has_frame_before(const Model& model, int position) {
    return position - (int)model.places >= (int)model.prompt_length;
}

// Slot of the same place one frame earlier; slot 0 where there is none.
inline int slot_before(const Model& model, int position) {
    return position > (int)model.places ? position - (int)model.places : 0;
}

inline bool is_linear(uint32_t opcode) {
    return opcode == LINEAR_QKV || opcode == LINEAR_OUTPUT || opcode == LINEAR_GATE_UP || opcode == LINEAR_DOWN ||
           opcode == LINEAR_LOGITS;
}

inline LinearShape linear_shape(const Model& model, int opcode, bool int4, bool bias) {
    const int q = model.heads * model.head_dim;
    const int kv = model.kv_heads * model.head_dim;
    switch (opcode) {
        case LINEAR_QKV: return LinearShape{(int)model.hidden, q + 2 * kv, int4, bias};
        case LINEAR_OUTPUT: return LinearShape{q, (int)model.hidden, int4, bias};
        case LINEAR_GATE_UP: return LinearShape{(int)model.hidden, 2 * (int)model.mlp, int4, bias};
        case LINEAR_DOWN: return LinearShape{(int)model.mlp, (int)model.hidden, int4, bias};
        default: return LinearShape{(int)model.hidden, (int)model.codes, int4, bias};
    }
}

// Constants of HEADS: scales of q, k and v, exponents, scales of v, multipliers of the score; 32-bit words.
inline int head_words(const Model& model) { return 3 * model.heads + 3 * model.kv_heads; }

// Beats a port reads of n 32-bit words dealt to the ports beat by beat.
inline int word_beats(int words) { return ceil_div(words, PORTS * BEAT_WORDS); }

inline int node_beats(const Model& model, const Node& node) {
    switch (node.opcode) {
        case NORM_ATTENTION:
        case NORM_MLP:
        case NORM_FINAL: return word_beats(model.hidden);
        case HEADS: return word_beats(head_words(model));
        case LINEAR_QKV:
        case LINEAR_OUTPUT:
        case LINEAR_GATE_UP:
        case LINEAR_DOWN:
        case LINEAR_LOGITS:
            return linear_shape(model, node.opcode, (node.flags & NODE_INT4) != 0, (node.flags & NODE_BIAS) != 0)
                .port_beats();
        default: return 0;
    }
}

}  // namespace fastcar

#endif
