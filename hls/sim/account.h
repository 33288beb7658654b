// What each operation moves and how long it keeps the executor busy: counted with the engine's own shapes, dealing,
// cursors and layout, without the arithmetic. The C simulation's counters must equal these.
#ifndef FASTCAR_ACCOUNT_H
#define FASTCAR_ACCOUNT_H

#include <map>
#include <tuple>

#include "../include/fastcar/engine.h"
#include "timing.h"

namespace fastcar {

// Work of one operation, in clocks and beats.
struct Work {
    bool gated = false;         // its fetches wait for the layer's decision
    int64_t beats[PORTS] = {};  // read by each port
    int64_t before = 0;         // clocks ahead of the port's first beat
    int64_t clocks = 0;         // clocks in which the ports' beats are used, if they arrive in time
    int64_t after = 0;          // clocks behind the last one
    int64_t reads = 0;          // beats of the cache port
    int64_t writes = 0;
    int64_t busy = 0;           // group clocks worked
    int64_t loop = 0;           // clocks of loops that use the groups
};

// What an engine works with; the program says what it works on.
struct Parallelism {
    int groups = GROUPS;  // of each port's column
    int vector = VECTOR;  // values a clock of norms and quantization
    int fifo_beats = WEIGHT_FIFO_BEATS;
    int port_width = 1;   // beats a clock of one port; more: planned for hardware with wider ports
};

// Clocks of quant_linear's loop: the same walk of windows, without the data.
inline int64_t linear_clocks(const LinearShape& shape, int count, const Parallelism& engine) {
    LinearCursor filling = {0, 0};
    LinearCursor working = {0, 0};
    bool works = false;
    int64_t clocks = 0;
    int64_t drain = 0;  // clocks of draining left
    while (filling.tile < shape.tiles() || works) {
        const bool fills = filling.tile < shape.tiles();
        const int64_t fill = fills ? ceil_div(filling.fill_beats(shape), engine.port_width) : 0;
        const int64_t work = works ? (int64_t)ceil_div(count * shape.pairs(working.tile), engine.groups) * shape.halves() : 0;
        const bool ends_tile = works && working.chunk == shape.chunks() - 1;
        int64_t slot = std::max<int64_t>({fill, work, 1});
        if (ends_tile) slot = std::max(slot, drain);
        clocks += slot;
        drain = std::max<int64_t>(drain - slot, 0);
        if (ends_tile) drain = (int64_t)count * PORTS * shape.pairs(working.tile);
        working = filling;
        works = fills;
        if (fills) filling.advance(shape);
    }
    return clocks + drain;
}

// Group clocks worked by the rows that compute.
inline int64_t linear_busy(const LinearShape& shape, int computing) {
    int64_t pairs = 0;
    for (int tile = 0; tile < shape.tiles(); tile++) pairs += shape.pairs(tile);
    return pairs * shape.chunks() * shape.halves() * computing * PORTS;
}

// Clocks of paired_products' loop, as it steps.
inline int64_t paired_clocks(const int64_t most, int chunks, int count, const Parallelism& engine) {
    if (most == 0) return 0;
    const int64_t fill = ceil_div(2 * chunks, engine.port_width);
    const int64_t work = (int64_t)ceil_div(count, engine.groups) * chunks;
    return fill + (most - 1) * std::max(fill, work) + work;
}

class Accountant {
public:
    Accountant(const Network& network, const Control& control, const Timing& timing, const Parallelism& engine)
        : network_(network), control_(control), timing_(timing), engine_(engine),
          records_(StepRecords::of(network, control)) {}

    // take(Work) once, or for an attention once a row, head and pass. all, mlp: dealings of all rows, of the MLP's.
    template <typename Take>
    void work(const Operation& operation, const Dealing& all, const Dealing& mlp, Take take) const {
        const Model model = network_.model_of(operation.opcode);
        const int rows = control_.rows;
        const bool projects = reads_codes(network_, control_, operation.step);
        Work work;
        if (operation.opcode != ATTENTION && operation.opcode != DEPTH_ATTENTION) {
            Node node = {};
            node.opcode = operation.opcode;
            node.layer = operation.layer;
            node.flags = (operation.int4 ? NODE_INT4 : 0u) | (operation.bias ? NODE_BIAS : 0u);
            const bool dropped = (is_mlp(operation.opcode) && skips(mlp)) || (operation.opcode == PROJECT && !projects);
            for (int64_t& beats : work.beats) beats = dropped ? 0 : node_beats(network_, node);
            work.gated = operation.opcode == NORM_MLP || operation.opcode == DEPTH_NORM_MLP;
        }
        switch (operation.opcode) {
            case EMBED: {
                const int64_t rotary = 2 * (model.head_dim / BEAT_WORDS);
                const int64_t bursts = (int64_t)rows * (projects ? records_.each() : 1);
                const int64_t values = projects ? network_.depth.code_dim : model.hidden;
                work.reads = records_.input() + bursts * (values / BEAT_HALVES) + rotary;
                work.after = (2 + bursts) * (timing_.read_latency + timing_.loop_depth) + work.reads;
                if (control_.columns > 0) work.after += control_.columns + timing_.loop_depth;
                break;
            }
            case NORM_ATTENTION:
            case NORM_FINAL: norm(model, all.count, work); break;
            case NORM_MLP: if (!skips(mlp)) norm(model, mlp.count, work); break;
            case DEPTH_NORM_ATTENTION:
            case DEPTH_NORM_MLP:
            case DEPTH_NORM:
                norm(model, all.count, work);
                work.clocks *= 2;  // gains and biases
                work.after += timing_.loop_depth;
                work.after += all.count * (vectors(model.hidden) + timing_.loop_depth);  // the mean needs a pass more
                break;
            case LINEAR_QKV:
            case LINEAR_OUTPUT:
            case LINEAR_LOGITS:
            case DEPTH_QKV:
            case DEPTH_OUTPUT:
            case DEPTH_FC2:
            case DEPTH_LOGITS: linear(operation, all, rows, work); break;
            case PROJECT:
                if (!projects) break;
                if (operation.layer == 0) work.before = rows * quantize_clocks(network_.depth.code_dim);
                linear(operation, all, rows, work);
                if (operation.layer < (int)network_.depth.projector - 1) work.after += rows * quantize_clocks(model.hidden);
                break;
            case DEPTH_HIDDEN:
            case DEPTH_CODES:
                if (operation.opcode == DEPTH_CODES) work.before = rows * quantize_clocks(network_.depth.code_dim);
                linear(operation, all, rows, work);
                work.reads = model.hidden / BEAT_WORDS;
                work.after += timing_.read_latency + work.reads + timing_.loop_depth +
                              rows * (model.hidden / BEAT_HALVES + timing_.loop_depth);
                break;
            case DEPTH_FC1:
                linear(operation, all, rows, work);
                work.after += rows * quantize_clocks(model.mlp);
                break;
            case LINEAR_GATE_UP:
                if (!skips(mlp)) {
                    const int computing = computing_rows(mlp);
                    linear(operation, mlp, computing, work);
                    work.after += computing * quantize_clocks(model.mlp);
                }
                break;
            case LINEAR_DOWN: down(operation, mlp, work); break;
            case HEADS: heads(operation, work); break;
            case DEPTH_HEADS: deep_heads(operation, work); break;
            case ATTENTION:
            case DEPTH_ATTENTION: attention(operation, take); return;  // with its trace
            case SAMPLE:
            case DEPTH_SAMPLE: sampling(operation, work); break;
            default: break;
        }
        trace(operation, work);
        take(work);
    }

    int computing_rows(const Dealing& dealing) const {
        int computing = 0;
        for (int row = 0; row < (int)control_.rows; row++) computing += dealing.index[row] ? 1 : 0;
        return computing;
    }

private:
    int64_t vectors(int64_t values) const { return (values + engine_.vector - 1) / engine_.vector; }

    // A loop over a row's maximum, and one that divides.
    int64_t quantize_clocks(int64_t values) const {
        return vectors(values) + ceil_div((int)values, BEAT_BYTES) * (BEAT_BYTES / engine_.vector) + 2 * timing_.loop_depth +
               timing_.divide;
    }

    void norm(const Model& model, int count, Work& work) const {
        work.clocks = word_beats(model.hidden);
        const int64_t row = 2 * (vectors(model.hidden) + timing_.loop_depth) + timing_.divide +
                            quantize_clocks(model.hidden) + 2 * timing_.divide + timing_.square_root;
        work.after = timing_.loop_depth + count * row;
    }

    // Layers are alike, and so are steps.
    int64_t clocks_of(const LinearShape& shape, int count) const {
        const auto key = std::make_tuple(shape.inputs, shape.outputs, shape.int4, shape.bias, count);
        const auto known = clocks_.find(key);
        if (known != clocks_.end()) return known->second;
        return clocks_[key] = linear_clocks(shape, count, engine_);
    }

    void linear(const Operation& operation, const Dealing& dealing, int computing, Work& work) const {
        const LinearShape shape =
            linear_shape(network_, operation.opcode, operation.layer, operation.int4, operation.bias);
        work.loop = clocks_of(shape, dealing.count);
        work.clocks = work.loop;
        work.after = timing_.loop_depth;
        work.busy = linear_busy(shape, computing);
    }

    void down(const Operation& operation, const Dealing& mlp, Work& work) const {
        if (!skips(mlp)) linear(operation, mlp, computing_rows(mlp), work);
        const int64_t output = network_.backbone.hidden / BEAT_HALVES;
        const int computing = computing_rows(mlp);
        const int replaying = (int)control_.rows - computing;
        work.reads = replaying * output;
        work.writes = computing * (output + 1) + replaying;
        work.after += control_.rows * (output + timing_.loop_depth) + replaying * timing_.read_latency;
    }

    // Reading, if it is open, and writing the block of V of each head, and the keys.
    int64_t store_clocks(const Model& model, bool open) const {
        const int64_t keys = model.kv_heads * (model.head_dim / BEAT_BYTES + timing_.loop_depth);
        return (open ? timing_.read_latency : 0) + 2 * model.kv_heads * model.head_dim + keys;
    }

    void deep_heads(const Operation& operation, Work& work) const {
        const Model& model = network_.deep;
        const int64_t rows = control_.rows;
        const int64_t head_beats = model.head_dim / BEAT_BYTES;
        const bool open = operation.index % BLOCK_SLOTS > 0;
        const int64_t blocks = model.kv_heads * model.head_dim;
        work.clocks = word_beats(deep_head_words(model));
        work.reads = open ? rows * blocks : 0;
        work.writes = rows * (model.kv_heads * head_beats + blocks);
        const int64_t heads = model.heads + 2 * model.kv_heads;
        const int64_t quantize = heads * head_beats * (BEAT_BYTES / engine_.vector) + timing_.loop_depth;
        work.after = rows * (quantize + store_clocks(model, open)) + timing_.write_latency + timing_.loop_depth;
    }

    void heads(const Operation& operation, Work& work) const {
        const Model& model = network_.backbone;
        const int64_t rows = control_.rows;
        const int64_t heads = model.heads;
        const int64_t kv_heads = model.kv_heads;
        const int64_t head_beats = model.head_dim / BEAT_BYTES;
        const bool open = operation.position % BLOCK_SLOTS > 0;
        const bool earlier = operation.position > 0;
        const int64_t blocks = kv_heads * model.head_dim;
        work.clocks = word_beats(head_words(model));
        work.reads = rows * ((earlier ? kv_heads * head_beats : 0) + 1 + (open ? blocks : 0));
        work.writes = rows * (kv_heads * head_beats + blocks);
        const int64_t rotate = (heads + 2 * kv_heads) * head_beats * (BEAT_BYTES / engine_.vector) + timing_.loop_depth;
        const int64_t query = heads * head_beats + timing_.loop_depth;  // copied, or quantized before rotation
        const int64_t score = heads * head_beats + timing_.loop_depth;
        // the earlier keys arrive while the heads are rotated; the open blocks of V are read and rewritten
        const int64_t wait = std::max(timing_.read_latency + kv_heads * head_beats, rotate + query);
        const int64_t store = store_clocks(model, open);
        work.after = rows * (kv_heads + wait + kv_heads * head_beats + timing_.loop_depth + score + store) +
                     timing_.write_latency + 4 * MAX_ROWS + timing_.loop_depth;
    }

    template <typename Take>
    void attention(const Operation& operation, Take take) const {
        const Model model = network_.model_of(operation.opcode);
        Visible visible;
        if (is_deep(operation.opcode)) {
            visible.begin(operation.index, 0, 0, 0);
        } else {
            see_from(operation.position, model, control_, visible);
        }
        const int group = model.heads / model.kv_heads;
        const int head_beats = model.head_dim / BEAT_BYTES;
        int64_t blocks = 0;
        int64_t most = 0;
        for (int port = 0; port < PORTS; port++) {
            blocks += visible.blocks(port);
            most = std::max<int64_t>(most, visible.blocks(port));
        }
        const int64_t total = (int64_t)control_.rows * model.kv_heads;
        for (int64_t item = 0; item < total; item++) {
            Work scores;
            for (int port = 0; port < PORTS; port++) {
                scores.beats[port] = (int64_t)visible.blocks(port) * model.head_dim;
            }
            scores.before = 2 * group * head_beats + 2 * group + 3 * timing_.loop_depth;
            scores.loop = paired_clocks(most * (BLOCK_SLOTS / 2), head_beats, group, engine_);
            scores.clocks = scores.loop;
            scores.busy = blocks * (BLOCK_SLOTS / 2) * head_beats * group;
            scores.after = 2 * timing_.loop_depth + group + group * blocks;
            take(scores);
            Work values = scores;
            values.before = 0;
            values.loop = paired_clocks(most * (model.head_dim / 2), 1, 2 * group, engine_);
            values.clocks = values.loop;
            values.busy = blocks * (model.head_dim / 2) * 2 * group;
            values.after = 2 * timing_.loop_depth + group * vectors(model.head_dim);
            const bool row_done = (item + 1) % model.kv_heads == 0;
            if (row_done) values.after += quantize_clocks((int64_t)model.heads * model.head_dim);
            if (item == total - 1) trace(operation, values);
            take(values);
        }
    }

    void trace(const Operation& operation, Work& work) const {
        const int64_t beats = trace_row_beats(network_, operation.opcode, operation.layer);
        if (!(control_.flags & FLAG_TRACE) || beats == 0) return;
        work.writes += control_.rows * beats;
        work.after += control_.rows * (beats + timing_.loop_depth);
    }

    void sampling(const Operation& operation, Work& work) const {
        const int64_t codes = network_.backbone.codes;
        const bool predicts = (control_.flags & FLAG_PROMPT) == 0;
        const bool last = operation.index == (int)records_.each() - 1 || !predicts;
        const int64_t logits = control_.clips * records_.logit_beats;
        const int64_t others = records_.output(control_.clips) - records_.each() * logits;
        const int64_t records = records_.replay_beats + 2 * records_.score_beats + records_.code_beats;
        const int64_t sort = 3 * (2 * DIGITS + 4 * codes + 4 * timing_.loop_depth);
        const int64_t clip = 5 * (codes + timing_.loop_depth) + sort + records_.logit_beats;
        work.writes = (predicts ? logits : 0) + (last ? others : 0);
        work.after = predicts ? control_.clips * clip : 0;
        if (last) {
            work.after += records + 3 * timing_.loop_depth;
        } else {  // the codes onto the rows' sums
            work.reads = (int64_t)control_.rows * (network_.depth.code_dim / BEAT_HALVES);
            work.after += control_.rows * (timing_.read_latency + timing_.loop_depth) + work.reads;
        }
    }

    const Network& network_;
    const Control& control_;
    const Timing& timing_;
    const Parallelism& engine_;
    StepRecords records_;
    mutable std::map<std::tuple<int, int, bool, bool, int>, int64_t> clocks_;
};

}  // namespace fastcar

#endif
