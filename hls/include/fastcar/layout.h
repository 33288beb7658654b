// Where things lie in the state buffer, in beats: K and V, replayed outputs with their ages, K and V of the depth
// transformer.
//
// toolkit/program/memory.py is the same for the host.
#ifndef FASTCAR_LAYOUT_H
#define FASTCAR_LAYOUT_H

#include "config.h"
#include "descriptor.h"
#include "quant_linear.h"
#include "types.h"

namespace fastcar {

// Element words of 16 bits in a beat: hidden / 8 beats hold a row of bfloat16 or binary16.
constexpr int BEAT_HALVES = 8;

inline bool has_depth(const Model& model) { return MAX_DEPTH_LAYERS > 0 && (model.opcode & MODEL_DEPTH) != 0; }

// Whether an operation is the depth transformer's own.
inline bool is_deep(uint32_t opcode) { return MAX_DEPTH_LAYERS > 0 && opcode >= DEPTH_HIDDEN; }

// A model: its backbone, its depth transformer with its header, and that one's shape as if it were a backbone's.
struct Network {
    Model backbone;
    Model deep;
    Depth depth;

    static Network of(const Model& model, const Depth& depth) {
        Network network = {model, model, depth};
        network.deep.layers = depth.layers;
        network.deep.hidden = depth.hidden;
        network.deep.heads = depth.heads;
        network.deep.kv_heads = depth.heads;
        network.deep.head_dim = depth.head_dim;
        network.deep.mlp = depth.mlp;
        return network;
    }

    Model model_of(int opcode) const { return is_deep(opcode) ? deep : backbone; }

    // Residual codes of a position; words that a row reads and a clip makes a step.
    uint32_t codes_per_position() const { return has_depth(backbone) ? depth.codes_per_position : 1; }
};

// K and V of a row and head lie in one run on each port: its blocks in order, head_dim beats each. A block of K holds
// its 16 slots one after the other, a block of V the 16 slots of one dimension in each beat.
struct StateLayout {
    uint32_t first;  // of its caches
    uint32_t rows;
    uint32_t layers;
    uint32_t kv_heads;
    uint32_t head_dim;
    uint32_t hidden;
    uint32_t places;
    uint32_t port_beats;  // K or V of one row and head on one port

    static StateLayout of(const Model& model, const Control& control) {
        StateLayout layout;
        layout.first = 0;
        layout.rows = control.rows;
        layout.layers = model.layers;
        layout.kv_heads = model.kv_heads;
        layout.head_dim = model.head_dim;
        layout.hidden = model.hidden;
        layout.places = model.places;
        layout.port_beats = control.slots / (PORTS * BLOCK_SLOTS) * model.head_dim;
        return layout;
    }

    // Of the depth transformer, behind the backbone's; it replays nothing.
    static StateLayout deep_of(const Network& network, const Control& control) {
        StateLayout layout = of(network.deep, control);
        layout.first = (uint32_t)of(network.backbone, control).end();
        layout.places = 0;
        layout.port_beats = DEPTH_SLOTS / (PORTS * BLOCK_SLOTS) * layout.head_dim;
        return layout;
    }

    uint32_t replay_beats() const { return hidden / BEAT_HALVES + 1; }  // an output and, behind it, its age

    uint64_t cache_end() const { return first + (uint64_t)layers * rows * 2 * kv_heads * PORTS * port_beats; }
    uint64_t end() const { return cache_end() + (uint64_t)places * layers * rows * replay_beats(); }

    uint32_t cache(int layer, int row, bool value, int head, int port) const {
        return first + ((((layer * rows + row) * 2 + (value ? 1 : 0)) * kv_heads + head) * PORTS + port) * port_beats;
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
    uint32_t logit_beats;  // of one code of a clip; 0 when logits are not recorded
    uint32_t codes_per_position;

    static StepRecords of(const Network& network, const Control& control) {
        const Model& model = network.backbone;
        StepRecords records;
        records.codes_per_position = network.codes_per_position();
        records.token_beats = ceil_div(control.rows * records.each(), BEAT_WORDS);
        records.uniform_beats = ceil_div(control.clips * records.each(), BEAT_WORDS);
        records.code_beats = records.uniform_beats;
        records.replay_beats = ceil_div(model.layers, BEAT_WORDS);
        records.score_beats = ceil_div(model.layers * control.rows, 2);
        records.logit_beats = (control.flags & FLAG_LOGITS) ? ceil_div(model.codes, BEAT_WORDS) : 0;
        return records;
    }

    // Words a row reads and a clip makes. Known at build time, and no product in hardware, without depth transformers.
    uint32_t each() const { return MAX_DEPTH_LAYERS > 0 ? codes_per_position : 1; }

    uint32_t input() const { return token_beats + uniform_beats; }
    uint32_t output(uint32_t clips) const {
        return code_beats + replay_beats + score_beats + clips * each() * logit_beats;
    }
};

// What an operation of a traced step leaves behind of a row: toolkit/program/trace.py names it.
inline uint32_t trace_row_beats(const Network& network, int opcode, int layer) {
    const Model model = network.model_of(opcode);
    const uint32_t q = model.heads * model.head_dim;
    const uint32_t qkv = q + 2 * model.kv_heads * model.head_dim;
    switch (opcode) {
        // with a depth transformer the residual stream is complete behind the projector, not before
        case EMBED: return has_depth(model) ? 0 : model.hidden / BEAT_WORDS;
        case PROJECT: return layer < (int)network.depth.projector - 1 ? 0 : model.hidden / BEAT_WORDS;
        case LINEAR_OUTPUT:
        case LINEAR_DOWN:
        case DEPTH_HIDDEN:
        case DEPTH_CODES:
        case DEPTH_OUTPUT:
        case DEPTH_FC2: return model.hidden / BEAT_WORDS;
        case LINEAR_QKV:
        case DEPTH_QKV: return qkv / BEAT_WORDS;
        case LINEAR_LOGITS:
        case DEPTH_LOGITS: return ceil_div(model.codes, BEAT_WORDS);
        case HEADS:
        case DEPTH_HEADS: return qkv / BEAT_BYTES;
        case NORM_ATTENTION:
        case NORM_MLP:
        case NORM_FINAL:
        case DEPTH_NORM_ATTENTION:
        case DEPTH_NORM_MLP:
        case DEPTH_NORM: return model.hidden / BEAT_BYTES + 1;
        case ATTENTION:
        case DEPTH_ATTENTION: return q / BEAT_BYTES + 1;
        case LINEAR_GATE_UP:
        case DEPTH_FC1: return ceil_div(model.mlp, BEAT_BYTES) + 1;
        default: return 0;
    }
}

// Of a whole step, in the order of its operations.
inline uint64_t trace_beats(const Network& network, const Control& control) {
    uint64_t layer = 0;
layer_opcode:
    for (int opcode = NORM_ATTENTION; opcode <= LINEAR_DOWN; opcode++) {
#pragma HLS PIPELINE II=1
        layer += trace_row_beats(network, opcode, 0);
    }
    uint64_t deep_layer = 0;
deep_opcode:
    for (int opcode = DEPTH_NORM_ATTENTION; opcode <= DEPTH_FC2; opcode++) {
#pragma HLS PIPELINE II=1
        deep_layer += trace_row_beats(network, opcode, 0);
    }
    uint64_t first = trace_row_beats(network, EMBED, 0);
    uint64_t ending = trace_row_beats(network, LINEAR_LOGITS, 0);
    if (has_depth(network.backbone)) {
        first = trace_row_beats(network, PROJECT, network.depth.projector - 1);
        const uint64_t outside = trace_row_beats(network, DEPTH_CODES, 0) + trace_row_beats(network, DEPTH_NORM, 0) +
                                 trace_row_beats(network, DEPTH_LOGITS, 0);
        ending = network.depth.codes_per_position * (outside + network.depth.layers * deep_layer);
    }
    const uint64_t norm = trace_row_beats(network, NORM_FINAL, 0);
    return control.rows * (first + network.backbone.layers * layer + norm + ending);
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
           opcode == LINEAR_LOGITS || opcode == PROJECT || opcode == DEPTH_HIDDEN || opcode == DEPTH_CODES ||
           opcode == DEPTH_QKV || opcode == DEPTH_OUTPUT || opcode == DEPTH_FC1 || opcode == DEPTH_FC2 ||
           opcode == DEPTH_LOGITS;
}

inline LinearShape linear_shape(const Network& network, int opcode, int layer, bool int4, bool bias) {
    const Model model = network.model_of(opcode);
    const Depth& depth = network.depth;
    const int q = model.heads * model.head_dim;
    const int kv = model.kv_heads * model.head_dim;
    switch (opcode) {
        case LINEAR_QKV:
        case DEPTH_QKV: return LinearShape{(int)model.hidden, q + 2 * kv, int4, bias};
        case LINEAR_OUTPUT:
        case DEPTH_OUTPUT: return LinearShape{q, (int)model.hidden, int4, bias};
        case LINEAR_GATE_UP: return LinearShape{(int)model.hidden, 2 * (int)model.mlp, int4, bias};
        case DEPTH_FC1: return LinearShape{(int)model.hidden, (int)model.mlp, int4, bias};
        case LINEAR_DOWN:
        case DEPTH_FC2: return LinearShape{(int)model.mlp, (int)model.hidden, int4, bias};
        case PROJECT:
            return LinearShape{layer == 0 ? (int)depth.code_dim : (int)model.hidden, (int)model.hidden, int4, bias};
        case DEPTH_HIDDEN: return LinearShape{(int)network.backbone.hidden, (int)model.hidden, int4, bias};
        case DEPTH_CODES: return LinearShape{(int)depth.code_dim, (int)model.hidden, int4, bias};
        default: return LinearShape{(int)model.hidden, (int)model.codes, int4, bias};
    }
}

// Constants of HEADS: scales of q, k and v, exponents, scales of v, multipliers of the score; 32-bit words. Those of
// DEPTH_HEADS end before the multipliers.
inline int head_words(const Model& model) { return 3 * model.heads + 3 * model.kv_heads; }
inline int deep_head_words(const Model& model) { return 2 * model.heads + 3 * model.kv_heads; }

// Beats a port reads of n 32-bit words dealt to the ports beat by beat.
inline int word_beats(int words) { return ceil_div(words, PORTS * BEAT_WORDS); }

inline int node_beats(const Network& network, const Node& node) {
    const Model model = network.model_of(node.opcode);
    switch (node.opcode) {
        case NORM_ATTENTION:
        case NORM_MLP:
        case NORM_FINAL: return word_beats(model.hidden);
        case DEPTH_NORM_ATTENTION:
        case DEPTH_NORM_MLP:
        case DEPTH_NORM: return 2 * word_beats(model.hidden);  // gains, then biases
        case HEADS: return word_beats(head_words(model));
        case DEPTH_HEADS: return word_beats(deep_head_words(model));
        default: break;
    }
    if (!is_linear(node.opcode)) return 0;
    const bool int4 = (node.flags & NODE_INT4) != 0;
    return linear_shape(network, node.opcode, node.layer, int4, (node.flags & NODE_BIAS) != 0).port_beats();
}

}  // namespace fastcar

#endif
