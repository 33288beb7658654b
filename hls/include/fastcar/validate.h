// Everything the host hands over is checked before the first fetch: a program of this build, shapes within what the
// engine holds, every address inside its buffer. What passes cannot make the engine read or write elsewhere.
#ifndef FASTCAR_VALIDATE_H
#define FASTCAR_VALIDATE_H

#include "config.h"
#include "layout.h"

namespace fastcar {

inline bool within(uint32_t value, uint32_t low, uint32_t high) { return value >= low && value <= high; }

inline Status check_model(const Model& model) {
    if ((model.opcode & 0xFFFFu) != MODEL_HEADER) return BAD_PROGRAM;
    if (model.build_id != BUILD_ID) return BAD_BUILD;
    const bool fits = within(model.layers, 1, MAX_LAYERS) && within(model.hidden, 16, MAX_HIDDEN) &&
                      within(model.heads, 1, MAX_HEADS) && within(model.kv_heads, 1, MAX_KV_HEADS) &&
                      within(model.head_dim, 16, MAX_HEAD_DIM) && within(model.mlp, 8, MAX_MLP) &&
                      within(model.codes, 1, MAX_CODES) && within(model.places, 1, 65536) &&
                      within(model.prompt_length, 1, 65536) && within(model.positions, 1, 1u << 20) &&
                      within(model.vocab, 1, 1u << 24) && within(model.code_offset, 0, 1u << 24);
    const uint32_t modes = model.opcode & ~(MODEL_DEPTH | 0xFFFFu);
    // The highest mode: both bits of the heads at once are beyond it.
    if (!fits || modes > (MODEL_PRE_ROPE | MODEL_HEADS_MIN)) return BAD_MODEL;
    if ((model.opcode & MODEL_DEPTH) != 0 && !has_depth(model)) return BAD_MODEL;  // not of an engine without
    const bool tiles = model.hidden % 16 == 0 && model.mlp % 8 == 0 && model.head_dim % BEAT_BYTES == 0 &&
                       model.heads % model.kv_heads == 0 && model.heads / model.kv_heads <= (uint32_t)MAX_GROUP;
    if (!tiles || model.code_offset + (has_depth(model) ? 0 : model.codes) > model.vocab) return BAD_MODEL;
    return DONE;
}

inline Status check_depth(const Depth& depth) {
    if (depth.opcode != DEPTH_HEADER) return BAD_PROGRAM;
    const bool fits = within(depth.layers, 1, MAX_DEPTH_LAYERS) && within(depth.hidden, 16, MAX_HIDDEN) &&
                      within(depth.heads, 1, MAX_HEADS < MAX_KV_HEADS ? MAX_HEADS : MAX_KV_HEADS) &&
                      within(depth.head_dim, 16, MAX_HEAD_DIM) && within(depth.mlp, 16, MAX_MLP) &&
                      within(depth.codes_per_position, 1, MAX_DEPTH_CODES) && within(depth.projector, 1, MAX_PROJECTOR) &&
                      within(depth.code_dim, 16, MAX_CODE_DIM);
    if (!fits) return BAD_MODEL;
    const bool tiles = depth.hidden == depth.heads * depth.head_dim && depth.head_dim % BEAT_BYTES == 0 &&
                       depth.mlp % 16 == 0 && depth.code_dim % 16 == 0;
    if (!tiles) return BAD_MODEL;
    if (depth.books != 1 && depth.books != depth.codes_per_position) return BAD_MODEL;
    return DONE;
}

inline Status check_network(const Network& network) {
    const Status status = check_model(network.backbone);
    return status == DONE && has_depth(network.backbone) ? check_depth(network.depth) : status;
}

// Behind the headers.
inline int node_count(const Network& network) {
    const int backbone = 1 + LAYER_NODES * (int)network.backbone.layers;
    if (!has_depth(network.backbone)) return backbone + ENDING_NODES;
    const int depth = DEPTH_INPUT_NODES + DEPTH_LAYER_NODES * (int)network.depth.layers + DEPTH_ENDING_NODES;
    return backbone + (int)network.depth.projector + 1 + depth;
}

struct Expected {
    int opcode;
    int layer;
};

// What must stand at place `index` behind the headers.
inline Expected expected_node(const Network& network, int index) {
    const bool deep = has_depth(network.backbone);
    const int projector = deep ? (int)network.depth.projector : 0;
    if (index == 0) return Expected{EMBED, 0};
    if (index <= projector) return Expected{PROJECT, index - 1};
    int within = index - 1 - projector;
    const int layers = LAYER_NODES * (int)network.backbone.layers;
    if (within < layers) return Expected{NORM_ATTENTION + within % LAYER_NODES, within / LAYER_NODES};
    within -= layers;
    if (within == 0 || !deep) return Expected{NORM_FINAL + within, 0};
    within -= 1;
    if (within < DEPTH_INPUT_NODES) return Expected{DEPTH_HIDDEN + within, 0};
    within -= DEPTH_INPUT_NODES;
    const int deep_layers = DEPTH_LAYER_NODES * (int)network.depth.layers;
    if (within < deep_layers) {
        return Expected{DEPTH_NORM_ATTENTION + within % DEPTH_LAYER_NODES, within / DEPTH_LAYER_NODES};
    }
    return Expected{DEPTH_NORM + within - deep_layers, 0};
}

inline Status check_node(const Network& network, const Control& control, const Node& node, int index) {
    const Expected expected = expected_node(network, index);
    if (node.opcode != (uint32_t)expected.opcode || node.layer != (uint32_t)expected.layer) return BAD_PROGRAM;
    LinearShape shape = {0, 0, false, false};
    if (is_linear(node.opcode)) shape = linear_shape(network, node.opcode, node.layer, false, false);
    if (node.inputs != (uint32_t)shape.inputs || node.outputs != (uint32_t)shape.outputs) return BAD_PROGRAM;
    if (node.flags > (NODE_INT4 | NODE_BIAS) || node.beats != (uint32_t)node_beats(network, node)) return BAD_PROGRAM;
    if ((uint64_t)node.address + (uint64_t)PORTS * node.beats > control.weight_beats) return BAD_WEIGHTS;
    return DONE;
}

inline Status check_control(const Network& network, const Control& control) {
    const Model& model = network.backbone;
    if (!within(control.rows, 1, ROWS)) return BAD_ROWS;
    if (!within(control.clips, 1, control.rows)) return BAD_ROWS;  // twice as many could wrap to the rows
    if (control.rows != control.clips && control.rows != 2 * control.clips) return BAD_ROWS;
    const uint32_t quantum = PORTS * BLOCK_SLOTS;  // of slots
    const bool slots = within(control.slots, quantum, MAX_SLOTS) && control.slots % quantum == 0;
    const uint64_t end = (uint64_t)control.position + control.steps;
    if (!slots || end > control.slots || end > model.positions) return BAD_CONTEXT;
    const uint32_t known = FLAG_REASSIGN | FLAG_TEACHER | FLAG_LOGITS | FLAG_TRACE | FLAG_PROMPT;
    const bool settings = control.flags <= known && control.policy <= 2 && control.max_age >= 1 &&
                          within(control.top_p, 1, 65536) && control.top_k >= 1 && control.sinks <= (1u << 30) &&
                          control.window <= (1u << 30) && control.columns <= (uint32_t)MAX_COLUMNS &&
                          control.padding < model.prompt_length && control.texts <= control.steps;
    if (!settings) return BAD_SETTINGS;
    const bool traced = (control.flags & FLAG_TRACE) != 0;
    if (traced && (control.steps != 1 || (control.flags & FLAG_PROMPT) != 0)) return BAD_SETTINGS;

    const uint64_t embedding_end = model.embedding + (uint64_t)model.vocab * (model.hidden / BEAT_HALVES);
    const uint64_t rotary_end = model.rotary + (uint64_t)model.positions * (model.head_dim / BEAT_WORDS * 2);
    if (embedding_end > control.weight_beats || rotary_end > control.weight_beats) return BAD_WEIGHTS;
    uint64_t cached = StateLayout::of(model, control).end();
    if (has_depth(model)) {
        const Depth& depth = network.depth;
        const uint64_t rows = (uint64_t)depth.books * model.codes;
        const uint64_t codebook_end = depth.codebook + rows * (depth.code_dim / BEAT_HALVES);
        const uint64_t positions = (uint64_t)depth.codes_per_position * (depth.hidden / BEAT_WORDS);
        if (codebook_end > control.weight_beats || depth.positions + positions > control.weight_beats) return BAD_WEIGHTS;
        const StateLayout deep = StateLayout::deep_of(network, control);
        cached += deep.end() - deep.first;  // where it begins has 32 bits: known to be right once all of it fits
    }
    const StepRecords records = StepRecords::of(network, control);
    const uint64_t thresholds_end =
        control.thresholds + (uint64_t)ceil_div(model.layers, 2) + ceil_div(control.rows, BEAT_WORDS);
    const uint64_t input_end = control.input + (uint64_t)control.steps * records.input();
    const uint64_t output_end = control.output + (uint64_t)control.steps * records.output(control.clips);
    const uint64_t trace_end = control.trace + trace_beats(network, control);
    const bool traces = !traced || (trace_end <= control.state_beats && cached <= control.trace);
    const bool inside = traces && thresholds_end <= control.state_beats && input_end <= control.state_beats &&
                        output_end <= control.state_beats && cached <= control.thresholds &&
                        cached <= control.input && cached <= control.output;
    return inside ? DONE : BAD_STATE;
}

}  // namespace fastcar

#endif
