// The sequencer walks the program once a step: it tells the read ports what to fetch, in the order the executor will
// use it, and runs ahead of it as far as the FIFOs hold. At the MLP it waits for the layer's decision: if no row
// computes, the weights are never asked for and the next layer's follow at once.
//
// The depth transformer's nodes are walked once for each residual code of the position. At its MLP the sequencer waits
// until K and V of the layer are in memory: the next code's attention reads them.
#ifndef FASTCAR_SEQUENCER_H
#define FASTCAR_SEQUENCER_H

#include "layout.h"
#include "visible.h"

namespace fastcar {

struct Operation {
    int opcode;
    bool int4;
    bool bias;
    int layer;
    int step;
    int position;
    float eps;
    int index;  // residual code that the depth transformer works on
};

// Whether a step reads codes, which the projector brings to the backbone, and not tokens.
inline bool reads_codes(const Network& network, const Control& control, int step) {
    return has_depth(network.backbone) && step >= (int)control.texts;
}

// What only the choice of codes needs; SAMPLE and DEPTH_SAMPLE write the record of the step, too.
inline bool is_prediction(uint32_t opcode) {
    return opcode == LINEAR_LOGITS || (is_deep(opcode) && opcode != DEPTH_SAMPLE);
}

inline bool is_mlp(int opcode) { return opcode == NORM_MLP || opcode == LINEAR_GATE_UP || opcode == LINEAR_DOWN; }

// What a position of a start sees. The prompt has no columns: its places are in no frame.
inline void see_from(int position, const Model& model, const Control& control, Visible& visible) {
    visible.begin(position, control.sinks, control.window, control.padding);
    visible.add_columns(control.columns, model.places, model.prompt_length);
}

// K and V of a step's attention: for each row and head the visible blocks of K, then of V, at most two runs each and
// the blocks of columns. Port by port within a run, within a column's place: no port's commands run far ahead.
template <typename Out>
void fetch_attention(const StateLayout& layout, const Visible& visible, int layer, Out& out) {
    const int columns = visible.most_columns();
row:
    for (int row = 0; row < (int)layout.rows; row++) {
// not pipelined: commands are issued one by one
#pragma HLS LOOP_TRIPCOUNT min=1 max=32
    head:
        for (int item = 0; item < 2 * (int)layout.kv_heads; item++) {
// not pipelined: commands are issued one by one
#pragma HLS LOOP_TRIPCOUNT min=2 max=128
        port:
            for (int port = 0; port < PORTS; port++) {
// up to two runs of blocks, one command each
#pragma HLS PIPELINE II=2
                const uint32_t base = layout.cache(layer, row, item % 2 == 1, item / 2, port);
                const uint32_t second = Visible::below(visible.second_begin, port) * layout.head_dim;
                const uint32_t first_beats = visible.first_blocks(port) * layout.head_dim;
                const uint32_t second_beats = visible.second_blocks(port) * layout.head_dim;
                if (first_beats > 0) out.fetch(port, true, base, first_beats);
                if (second_beats > 0) out.fetch(port, true, base + second, second_beats);
            }
        column:
            for (int column = 0; column < columns; column++) {
// not pipelined: commands are issued one by one
#pragma HLS LOOP_TRIPCOUNT min=0 max=MAX_COLUMNS
            column_port:
                for (int port = 0; port < PORTS; port++) {
#pragma HLS PIPELINE II=1
                    if (column < visible.column_blocks[port]) {
                        const uint32_t base = layout.cache(layer, row, item % 2 == 1, item / 2, port);
                        const uint32_t block = visible.columns[port][column].number / PORTS * layout.head_dim;
                        out.fetch(port, true, base + block, layout.head_dim);
                    }
                }
            }
        }
    }
}

// Out: fetch(port, state, address, beats), operation(Operation), computes(layer): whether a row computes the MLP,
// leaves_out(opcode): nodes to pass over.
template <typename Out>
void sequence(const Network& network, const Node* nodes, int count, const Control& control, Out& out) {
    const Model& model = network.backbone;
    const StateLayout layout = StateLayout::of(model, control);
    const StateLayout deep_layout = StateLayout::deep_of(network, control);
    const int depth_begin =
        count - (DEPTH_INPUT_NODES + DEPTH_LAYER_NODES * (int)network.depth.layers + DEPTH_ENDING_NODES);
    const bool predicts = (control.flags & FLAG_PROMPT) == 0;
    const int last_index = predicts ? (int)network.codes_per_position() - 1 : 0;
    Visible visible;
#pragma HLS ARRAY_PARTITION variable=visible.columns type=complete dim=1
#pragma HLS ARRAY_PARTITION variable=visible.column_blocks type=complete dim=1
step:
    for (int step = 0; step < (int)control.steps; step++) {
// not pipelined: a step is a walk over the program
#pragma HLS LOOP_TRIPCOUNT min=1 max=256
        const int position = control.position + step;
        see_from(position, model, control, visible);
        bool computes = true;
        int index = 0;
        int place = 0;
    node:
        while (place < count) {
// not pipelined: a node is as long as its fetches
#pragma HLS LOOP_TRIPCOUNT min=10 max=1024
            const Node& node = nodes[place];
            const int code = index;
            place++;
            if (place == count && index < last_index) {  // once more, for the next residual code
                index++;
                place = depth_begin;
            }
            const bool unused = (node.opcode == DEPTH_CODES && code == 0) || (node.opcode == DEPTH_HIDDEN && code > 0);
            if (unused || (is_prediction(node.opcode) && !predicts) || out.leaves_out(node.opcode)) continue;
            const Operation operation = {(int)node.opcode, (node.flags & NODE_INT4) != 0,
                                         (node.flags & NODE_BIAS) != 0, (int)node.layer, step, position, node.eps, code};
            if (node.opcode == NORM_MLP) computes = out.computes(node.layer);
            if (node.opcode == DEPTH_NORM_MLP) out.computes(node.layer);
            const bool dropped = (is_mlp(node.opcode) && !computes) ||
                                 (node.opcode == PROJECT && !reads_codes(network, control, step));
            if (!dropped) {
                const uint32_t beats = node.beats;
            port:
                for (int port = 0; port < PORTS; port++) {
#pragma HLS PIPELINE II=1
                    if (beats > 0) out.fetch(port, false, node.address + port * beats, beats);
                }
            }
            out.operation(operation);
            if (node.opcode == ATTENTION || node.opcode == DEPTH_ATTENTION) {
                const StateLayout caches = is_deep(node.opcode) ? deep_layout : layout;
                if (is_deep(node.opcode)) visible.begin(code, 0, 0, 0);  // the residual codes before
                fetch_attention(caches, visible, node.layer, out);
            }
        }
    }
}

}  // namespace fastcar

#endif
