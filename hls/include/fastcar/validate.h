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
    // The highest mode: both bits of the heads at once are beyond it.
    if (!fits || model.opcode > (MODEL_HEADER | MODEL_PRE_ROPE | MODEL_HEADS_MIN)) return BAD_MODEL;
    const bool tiles = model.hidden % 16 == 0 && model.mlp % 8 == 0 && model.head_dim % BEAT_BYTES == 0 &&
                       model.heads % model.kv_heads == 0 && model.heads / model.kv_heads <= (uint32_t)MAX_GROUP;
    if (!tiles || model.code_offset + model.codes > model.vocab) return BAD_MODEL;
    return DONE;
}

// What must stand at place `index` behind the model header.
inline int expected_opcode(const Model& model, int index) {
    const int layers_end = 1 + (int)model.layers * LAYER_NODES;
    if (index == 0) return EMBED;
    if (index < layers_end) return NORM_ATTENTION + (index - 1) % LAYER_NODES;
    return NORM_FINAL + index - layers_end;
}

inline Status check_node(const Model& model, const Control& control, const Node& node, int index) {
    const bool in_layer = index >= 1 && index < 1 + (int)model.layers * LAYER_NODES;
    if (node.opcode != (uint32_t)expected_opcode(model, index)) return BAD_PROGRAM;
    if (node.layer != (in_layer ? (uint32_t)(index - 1) / LAYER_NODES : 0u)) return BAD_PROGRAM;
    LinearShape shape = {0, 0, false, false};
    if (is_linear(node.opcode)) shape = linear_shape(model, node.opcode, false, false);
    if (node.inputs != (uint32_t)shape.inputs || node.outputs != (uint32_t)shape.outputs) return BAD_PROGRAM;
    if (node.flags > (NODE_INT4 | NODE_BIAS) || node.beats != (uint32_t)node_beats(model, node)) return BAD_PROGRAM;
    if ((uint64_t)node.address + (uint64_t)PORTS * node.beats > control.weight_beats) return BAD_WEIGHTS;
    return DONE;
}

inline Status check_control(const Model& model, const Control& control) {
    if (!within(control.rows, 1, ROWS)) return BAD_ROWS;
    if (!within(control.clips, 1, control.rows)) return BAD_ROWS;  // twice as many could wrap to the rows
    if (control.rows != control.clips && control.rows != 2 * control.clips) return BAD_ROWS;
    const uint32_t quantum = PORTS * BLOCK_SLOTS;  // of slots
    const bool slots = within(control.slots, quantum, MAX_SLOTS) && control.slots % quantum == 0;
    const uint64_t end = (uint64_t)control.position + control.steps;
    if (!slots || end > control.slots || end > model.positions) return BAD_CONTEXT;
    const uint32_t known = FLAG_REASSIGN | FLAG_TEACHER | FLAG_LOGITS | FLAG_TRACE;
    const bool settings = control.flags <= known && control.policy <= 2 && control.max_age >= 1 &&
                          within(control.top_p, 1, 65536) && control.top_k >= 1 && control.sinks <= (1u << 30) &&
                          control.window <= (1u << 30) && control.columns <= (uint32_t)MAX_COLUMNS;
    if (!settings) return BAD_SETTINGS;
    const bool traced = (control.flags & FLAG_TRACE) != 0;
    if (traced && control.steps != 1) return BAD_SETTINGS;

    const uint64_t embedding_end = model.embedding + (uint64_t)model.vocab * (model.hidden / BEAT_HALVES);
    const uint64_t rotary_end = model.rotary + (uint64_t)model.positions * (model.head_dim / BEAT_WORDS * 2);
    if (embedding_end > control.weight_beats || rotary_end > control.weight_beats) return BAD_WEIGHTS;

    const uint64_t cached = StateLayout::of(model, control).end();
    const StepRecords records = StepRecords::of(model, control);
    const uint64_t thresholds_end = control.thresholds + (uint64_t)ceil_div(model.layers, 2);
    const uint64_t input_end = control.input + (uint64_t)control.steps * records.input();
    const uint64_t output_end = control.output + (uint64_t)control.steps * records.output(control.clips);
    const uint64_t trace_end = control.trace + trace_beats(model, control);
    const bool traces = !traced || (trace_end <= control.state_beats && cached <= control.trace);
    const bool inside = traces && thresholds_end <= control.state_beats && input_end <= control.state_beats &&
                        output_end <= control.state_beats && cached <= control.thresholds &&
                        cached <= control.input && cached <= control.output;
    return inside ? DONE : BAD_STATE;
}

}  // namespace fastcar

#endif
