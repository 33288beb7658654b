// The executor runs the operations of a step in order on what the ports bring: one accelerator, all rows of a step.
#ifndef FASTCAR_EXECUTOR_H
#define FASTCAR_EXECUTOR_H

#include "attention.h"
#include "cache_access.h"
#include "config.h"
#include "gelu.h"
#include "layer_norm.h"
#include "layout.h"
#include "quantize_rows.h"
#include "replay_decision.h"
#include "replay_mlp.h"
#include "rms_norm.h"
#include "rotary_embedding.h"
#include "sample.h"
#include "sequencer.h"
#include "temporal_attention_score.h"

namespace fastcar {

static_assert(ROWS >= 1 && ROWS <= MAX_ROWS, "the index register has a bit for each of at most 32 rows");
static_assert(MAX_HIDDEN % BEAT_BYTES == 0 && MAX_WIDE % BEAT_BYTES == 0, "a row of values must be whole beats");
static_assert(MAX_INPUTS >= MAX_HIDDEN && MAX_INPUTS >= MAX_MLP, "a quantized row must hold what any layer reads");
static_assert(MAX_CODE_DIM <= MAX_INPUTS, "a quantized row must hold a sum of codes");
static_assert(MAX_WIDE >= MAX_MLP && MAX_WIDE >= MAX_CODES, "a row of results must hold what any layer makes");

constexpr int MAX_HEAD_BEATS = MAX_HEAD_DIM / BEAT_BYTES;
constexpr int MAX_KV_BEATS = MAX_KV_HEADS * MAX_HEAD_BEATS;
constexpr int MAX_QKV_BEATS = MAX_HEADS * MAX_HEAD_BEATS + 2 * MAX_KV_BEATS;

// The sinks choose at run time what a depth transformer does otherwise: a sink of another type would be another copy of
// the whole loop, groups included.

// Adds the outputs to the residual stream, or, into a transformer, begins it with them.
struct ResidualSink {
    float (*x)[MAX_HIDDEN];
    int outputs;
    bool begins;
    void operator()(int row, int output, float y0, float y1) {
#pragma HLS INLINE
        if (output < outputs) x[row][output] = onto(x[row][output], y0);
        if (output + 1 < outputs) x[row][output + 1] = onto(x[row][output + 1], y1);
    }
    float onto(float stream, float y) const {
#pragma HLS INLINE
        const float sum = stream + y;
        return MAX_DEPTH_LAYERS > 0 && begins ? y : sum;
    }
};

// Keeps the outputs, as they are or through GELU.
struct WideSink {
    float (*y)[MAX_WIDE];
    int outputs;
    bool activates;
    void operator()(int row, int output, float y0, float y1) {
#pragma HLS INLINE
        if (output < outputs) y[row][output] = kept(y0);
        if (output + 1 < outputs) y[row][output + 1] = kept(y1);
    }
    float kept(float value) const {
#pragma HLS INLINE
        return MAX_DEPTH_LAYERS > 0 && activates ? gelu(value) : value;
    }
};

struct ExecutorCounters {
    int64_t busy_beats = 0;
    int64_t clocks = 0;  // of the loops that use the groups
    uint32_t rows_replayed = 0;
    uint32_t passes_skipped = 0;
    uint32_t steps = 0;
    bool bad_token = false;
};

// Banks of a row of values: a vector a clock, and a beat of 16-bit words.
constexpr int ROW_BANKS = VECTOR > BEAT_HALVES ? VECTOR : BEAT_HALVES;

constexpr int MAX_BIASES = MAX_DEPTH_LAYERS > 0 ? MAX_HIDDEN : ROW_BANKS;  // without a depth transformer nothing has any

class Executor {
public:
    Executor() {
#pragma HLS ARRAY_PARTITION variable=x_ type=cyclic factor=ROW_BANKS dim=2
#pragma HLS ARRAY_PARTITION variable=wide_ type=cyclic factor=ROW_BANKS dim=2
#pragma HLS ARRAY_PARTITION variable=x8_ type=complete dim=1
#pragma HLS ARRAY_PARTITION variable=gain_ type=cyclic factor=ROW_BANKS dim=1
#pragma HLS ARRAY_PARTITION variable=bias_ type=cyclic factor=ROW_BANKS dim=1
#pragma HLS ARRAY_PARTITION variable=total_ type=cyclic factor=ROW_BANKS dim=2
#pragma HLS ARRAY_PARTITION variable=tokens_ type=cyclic factor=BEAT_WORDS dim=1
#pragma HLS ARRAY_PARTITION variable=uniforms_ type=cyclic factor=BEAT_WORDS dim=1
#pragma HLS ARRAY_PARTITION variable=codes_ type=cyclic factor=BEAT_WORDS dim=1
#pragma HLS ARRAY_PARTITION variable=padding_ type=cyclic factor=BEAT_WORDS dim=1
#pragma HLS ARRAY_PARTITION variable=work_ type=cyclic factor=VECTOR dim=1
#pragma HLS ARRAY_PARTITION variable=cos_ type=cyclic factor=BEAT_BYTES dim=1
#pragma HLS ARRAY_PARTITION variable=sin_ type=cyclic factor=BEAT_BYTES dim=1
#pragma HLS ARRAY_PARTITION variable=attention_.scores type=cyclic factor=GROUPS dim=1
#pragma HLS ARRAY_PARTITION variable=attention_.scores type=complete dim=2
#pragma HLS ARRAY_PARTITION variable=attention_.scores type=complete dim=4
#pragma HLS ARRAY_PARTITION variable=attention_.weights type=cyclic factor=GROUPS dim=1
#pragma HLS ARRAY_PARTITION variable=attention_.weights type=complete dim=2
#pragma HLS ARRAY_PARTITION variable=attention_.mixed type=complete dim=1
#pragma HLS ARRAY_PARTITION variable=attention_.mixed type=cyclic factor=GROUPS dim=3
#pragma HLS ARRAY_PARTITION variable=attention_.mixed type=complete dim=4
#pragma HLS ARRAY_PARTITION variable=visible_.columns type=complete dim=1
#pragma HLS ARRAY_PARTITION variable=visible_.column_blocks type=complete dim=1
    }

    // Before the first operation of a start: shapes, settings, the layers' thresholds and the rows' paddings.
    void start(const Network& network, const Control& control, CacheStreams& cache) {
        network_ = network;
        model_ = network.backbone;
        control_ = control;
        layout_ = StateLayout::of(model_, control);
        deep_layout_ = StateLayout::deep_of(network, control);
        records_ = StepRecords::of(network, control);
        trace_ = control.trace;
        counters_ = ExecutorCounters();
        request(cache, true, control_.thresholds, ceil_div(model_.layers, 2) + ceil_div(control_.rows, BEAT_WORDS));
    threshold:
        for (int beat = 0; beat < ceil_div(model_.layers, 2); beat++) {
#pragma HLS PIPELINE II=1
#pragma HLS LOOP_TRIPCOUNT min=1 max=MAX_LAYERS/2
            const beat_t values = take(cache);
            thresholds_[2 * beat] = limit_threshold((int64_t)values.range(63, 0).to_uint64());
            thresholds_[2 * beat + 1] = limit_threshold((int64_t)values.range(127, 64).to_uint64());
        }
    padding:
        for (int beat = 0; beat < ceil_div(control_.rows, BEAT_WORDS); beat++) {
#pragma HLS PIPELINE II=1
#pragma HLS LOOP_TRIPCOUNT min=1 max=MAX_ROWS/BEAT_WORDS
            const beat_t values = take(cache);
        padding_word:
            for (int word = 0; word < BEAT_WORDS; word++) {
#pragma HLS UNROLL
                const uint32_t padding = word_of(values, word);
                padding_[beat * BEAT_WORDS + word] = padding < control_.padding ? padding : control_.padding;
            }
        }
    }

    void run(const Operation& operation, stream<beat_t> ports[PORTS], CacheStreams& cache, stream<bool>& decisions) {
        if (MAX_DEPTH_LAYERS > 0) model_ = network_.model_of(operation.opcode);
        switch (operation.opcode) {  // what both transformers do is called once: a second call may be a second circuit
            case EMBED: embed(operation, cache); break;
            case NORM_ATTENTION:
            case NORM_FINAL: norm(operation, ports, all_rows()); break;
            case NORM_MLP: norm_mlp(operation, ports); break;
            case LINEAR_QKV:
            case DEPTH_QKV: linear_qkv(operation, ports); break;
            case HEADS: heads(operation, ports, cache, decisions); break;
            case ATTENTION:
            case DEPTH_ATTENTION: attention(operation, ports); break;
            case LINEAR_OUTPUT:
            case DEPTH_OUTPUT:
            case DEPTH_FC2: linear_output(operation, ports); break;
            case LINEAR_GATE_UP: linear_gate_up(operation, ports); break;
            case LINEAR_DOWN: linear_down(operation, ports, cache); break;
            case LINEAR_LOGITS:
            case DEPTH_LOGITS: linear_logits(operation, ports); break;
            case SAMPLE:
            case DEPTH_SAMPLE: sample_codes(operation, cache); break;
            default:
                if (MAX_DEPTH_LAYERS > 0) run_depth(operation, ports, cache, decisions);
                break;
        }
        if ((control_.flags & FLAG_TRACE) != 0) trace(operation, cache);
    }

    const ExecutorCounters& counters() const { return counters_; }

private:
    // What only a depth transformer does.
    void run_depth(const Operation& operation, stream<beat_t> ports[PORTS], CacheStreams& cache,
                   stream<bool>& decisions) {
#pragma HLS INLINE
        switch (operation.opcode) {
            case PROJECT: project(operation, ports); break;
            case DEPTH_HIDDEN:
            case DEPTH_CODES: depth_input(operation, ports, cache); break;
            case DEPTH_NORM_ATTENTION:
            case DEPTH_NORM_MLP:
            case DEPTH_NORM: deep_norm(operation, ports); break;
            case DEPTH_HEADS: deep_heads(operation, ports, cache, decisions); break;
            case DEPTH_FC1: linear_gelu(operation, ports, model_.mlp); break;
            default: break;
        }
    }

    Dealing all_rows() const {
        const int rows = control_.rows;
        return deal(rows == MAX_ROWS ? 0xFFFFFFFFu : (1u << rows) - 1u, rows, true);
    }

    bool reassigns() const { return (control_.flags & FLAG_REASSIGN) != 0; }

    // n 32-bit words dealt to the ports beat by beat.
    template <typename Store>
    void read_words(stream<beat_t> ports[PORTS], int words, Store keep) {
    word_beat:
        for (int beat = 0; beat < word_beats(words); beat++) {
#pragma HLS PIPELINE II=1
#pragma HLS LOOP_TRIPCOUNT min=1 max=MAX_HIDDEN/PORTS/BEAT_WORDS
        word_port:
            for (int port = 0; port < PORTS; port++) {
#pragma HLS UNROLL
                const beat_t values = ports[port].read();
            word:
                for (int word = 0; word < BEAT_WORDS; word++) {
#pragma HLS UNROLL
                    const int index = (beat * PORTS + port) * BEAT_WORDS + word;
                    if (index < words) keep(index, word_of(values, word));
                }
            }
        }
    }

    // The constants of HEADS in their order: scales of q, k, v; exponents; scales of v; multipliers of the score.
    void keep_head_word(int index, uint32_t word) {
#pragma HLS INLINE
        const int scales = model_.heads + 2 * model_.kv_heads;
        const int exponents = scales + model_.heads;
        const int values = exponents + model_.kv_heads;
        if (index < scales) {
            head_scale_[index] = float_of(word);
        } else if (index < exponents) {
            exponent_[index - scales] = float_of(word);
        } else if (index < values) {
            v_scale_[index - exponents] = float_of(word);
        } else {
            multiplier_[index - values] = (int8_t)(word & 255u);  // 8 bits: the score stays within 2^36
        }
    }

    template <typename Sink>
    void linear(const Operation& operation, stream<beat_t> ports[PORTS], const Dealing& dealing, Sink& sink) {
        const LinearShape shape =
            linear_shape(network_, operation.opcode, operation.layer, operation.int4, operation.bias);
        counters_.clocks += quant_linear<ROWS, GROUPS, MAX_INPUTS>(ports, shape, dealing, x8_, x_scale_, sink,
                                                                  counters_.busy_beats);
    }

    void embed(const Operation& operation, CacheStreams& cache);
    void norm(const Operation& operation, stream<beat_t> ports[PORTS], const Dealing& dealing);
    void norm_mlp(const Operation& operation, stream<beat_t> ports[PORTS]);
    void linear_qkv(const Operation& operation, stream<beat_t> ports[PORTS]);
    void heads(const Operation& operation, stream<beat_t> ports[PORTS], CacheStreams& cache, stream<bool>& decisions);
    void rotate_row(int row);
    void store_heads(const StateLayout& layout, int row, int layer, int slot, CacheStreams& cache);
    void attention(const Operation& operation, stream<beat_t> ports[PORTS]);
    void linear_output(const Operation& operation, stream<beat_t> ports[PORTS]);
    void linear_gate_up(const Operation& operation, stream<beat_t> ports[PORTS]);
    void linear_down(const Operation& operation, stream<beat_t> ports[PORTS], CacheStreams& cache);
    void linear_logits(const Operation& operation, stream<beat_t> ports[PORTS]);
    void sample_codes(const Operation& operation, CacheStreams& cache);
    void write_record(const Operation& operation, CacheStreams& cache);
    void write_logits(const Operation& operation, int clip, CacheStreams& cache);
    uint32_t known_code(uint32_t code);
    void add_code(int row, int index, uint32_t code, CacheStreams& cache);
    void read_codes(bool continues, CacheStreams& cache);
    void project(const Operation& operation, stream<beat_t> ports[PORTS]);
    void linear_gelu(const Operation& operation, stream<beat_t> ports[PORTS], int outputs);
    void quantize_totals();
    void depth_input(const Operation& operation, stream<beat_t> ports[PORTS], CacheStreams& cache);
    void deep_norm(const Operation& operation, stream<beat_t> ports[PORTS]);
    void deep_heads(const Operation& operation, stream<beat_t> ports[PORTS], CacheStreams& cache, stream<bool>& decisions);
    void trace(const Operation& operation, CacheStreams& cache);

    Network network_;
    Model model_;  // the backbone, or the depth transformer while it runs
    Control control_;
    StateLayout layout_;
    StateLayout deep_layout_;
    StepRecords records_;
    ExecutorCounters counters_;
    Visible visible_;  // of the step's position
    uint32_t trace_;  // where the next node of a traced step is written

    float x_[ROWS][MAX_HIDDEN];         // residual stream
    float wide_[ROWS][MAX_WIDE];        // results of the linear layer or of attention
    beat_t x8_[ROWS][MAX_INPUTS / BEAT_BYTES];  // operand of the next linear layer
    float x_scale_[ROWS];
    float gain_[MAX_HIDDEN];
    float bias_[MAX_BIASES];                   // of LayerNorm
    float total_[ROWS][MAX_CODE_DIM];          // sum of a row's codes
    float work_[MAX_HIDDEN];
    float cos_[MAX_HEAD_DIM];
    float sin_[MAX_HEAD_DIM];
    beat_t qkv_[ROWS][MAX_QKV_BEATS];                // q, then k, then v of the position
    beat_t q_score_[MAX_HEADS * MAX_HEAD_BEATS];     // the query of the score: before or after rotation
    beat_t k_before_[MAX_KV_BEATS];                  // one frame earlier
    float head_scale_[MAX_HEADS + 2 * MAX_KV_HEADS];
    float exponent_[MAX_HEADS];
    float v_scale_[MAX_KV_HEADS];
    int32_t multiplier_[MAX_HEADS];
    AttentionBuffers<MAX_GROUP, MAX_SLOTS, MAX_HEAD_DIM> attention_;
    SampleBuffers<MAX_CODES> sample_;
    float logits_[MAX_CODES];
    int64_t thresholds_[MAX_LAYERS + 1];
    int64_t scores_[MAX_LAYERS][MAX_ROWS];
    uint32_t replays_[MAX_LAYERS];
    int32_t age_[MAX_ROWS];
    Dealing mlp_;                       // of the layer's computing rows
    uint32_t padding_[MAX_ROWS];
    uint32_t tokens_[MAX_ROWS * MAX_DEPTH_CODES];    // or codes, D of a row
    uint32_t uniforms_[MAX_ROWS * MAX_DEPTH_CODES];  // D of a clip
    uint32_t codes_[MAX_ROWS * MAX_DEPTH_CODES];
};

}  // namespace fastcar

#include "executor_attention.h"
#include "executor_depth.h"
#include "executor_layers.h"
#include "executor_sampling.h"
#include "executor_trace.h"

#endif
