// Bad programs: mutants of a valid start, run under the sanitizers. Whatever the host hands over, the engine must stay
// inside its buffers, say what is wrong before it writes anything, and run the valid program afterwards as before.
//
//   fuzz SEED MUTANTS CASE...        CASE as hls/fuzz.py writes it
//   fuzz SEED MUTANTS --only N CASE...    one mutant again
//
// Every buffer is an allocation of its own, exactly as large as the registers say: one beat beyond it is a report.
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "../engine/engine.h"

using namespace fastcar;

extern "C" void __sanitizer_set_death_callback(void (*callback)());

// A start is short: most of its time would be the sanitizer's bookkeeping of its threads and buffers.
extern "C" const char* __asan_default_options() {
    return "detect_leaks=0:quarantine_size_mb=1:thread_local_quarantine_size_kb=64:malloc_context_size=1";
}

// Has a run time of its own, which knows no callback: it aborts instead.
extern "C" const char* __ubsan_default_options() { return "abort_on_error=1:print_stacktrace=1"; }

namespace {

constexpr int CONTROL_WORDS = sizeof(Control) / 4;
constexpr int REPORT_WORDS = sizeof(Report) / 4;
constexpr uint32_t DESCRIPTOR_BYTES = DESCRIPTOR_WORDS * 4;
constexpr uint32_t HEAP_BEATS = 1u << 15;  // larger buffers are mapped, not allocated
constexpr int CHECK_EVERY = 64;            // mutants between two runs of the valid program
constexpr unsigned HANG_SECONDS = 60;
constexpr size_t STACK_BYTES = 512 << 10;  // of a simulated process; the sanitizer clears it at every start

static_assert(sizeof(beat_t) == BEAT_BYTES, "host memory is read as beats");

class Random {
public:
    explicit Random(uint64_t seed) : state_(seed) {}
    uint64_t next() {  // splitmix64
        uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        return z ^ (z >> 31);
    }
    uint32_t below(uint32_t n) { return n ? (uint32_t)(next() % n) : 0; }
    uint32_t between(uint32_t low, uint32_t high) { return low + below(high - low + 1); }
    bool one_in(uint32_t n) { return below(n) == 0; }

private:
    uint64_t state_;
};

// What the host hands over at a start.
struct Start {
    Control control;
    std::vector<uint32_t> program;
    std::vector<uint8_t> weights;
    std::vector<uint8_t> state;

    uint32_t descriptors() const { return (uint32_t)program.size() / DESCRIPTOR_WORDS; }
    uint32_t& word(uint32_t descriptor, uint32_t index) { return program[descriptor * DESCRIPTOR_WORDS + index]; }
    uint32_t* registers() { return reinterpret_cast<uint32_t*>(&control); }
    Model model() const { return Model::from(program.data()); }
    uint32_t headers() const { return has_depth(model()) ? 2 : 1; }

    // What the headers say; of a program that ends before the second, zeros.
    Network network() const {
        const bool deep = has_depth(model()) && program.size() >= 2 * DESCRIPTOR_WORDS;
        return Network::of(model(), deep ? Depth::from(program.data() + DESCRIPTOR_WORDS) : Depth());
    }
};

// Words of the records by their field, so that the order of the fields is nobody's business here.
#define MODEL_WORD(field) (offsetof(Model, field) / 4)
#define DEPTH_WORD(field) (offsetof(Depth, field) / 4)
#define NODE_WORD(field) (offsetof(Node, field) / 4)

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what); }

// ---------------------------------------------------------------- buffers

// A buffer of exactly `beats`: on the heap, or at the end of a mapping that stands in for a memory of up to 64 GiB, of
// which only what is touched exists. Behind both lies what must not be touched.
class Buffer {
public:
    Buffer(const std::vector<uint8_t>& content, uint32_t beats) : beats_(beats) {
        const size_t bytes = (size_t)beats * BEAT_BYTES;
        if (beats <= HEAP_BEATS) {
            data_ = static_cast<uint8_t*>(std::malloc(bytes));
        } else {
            const size_t page = 4096;
            mapped_ = (bytes + page - 1) / page * page + 2 * page;
            const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
            void* where = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, flags, -1, 0);
            if (where == MAP_FAILED) {
                mapped_ = 0;
                return;
            }
            base_ = static_cast<uint8_t*>(where);
            mprotect(base_, page, PROT_NONE);
            mprotect(base_ + mapped_ - page, page, PROT_NONE);
            data_ = base_ + mapped_ - page - bytes;
        }
        const size_t known = content.size() < bytes ? content.size() : bytes;
        if (known) std::memcpy(data_, content.data(), known);
        if (beats <= HEAP_BEATS && known < bytes) std::memset(data_ + known, 0, bytes - known);
    }
    ~Buffer() {
        if (base_) {
            munmap(base_, mapped_);
        } else {
            std::free(data_);
        }
    }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    bool exists() const { return beats_ == 0 || data_ != nullptr; }
    bool on_heap() const { return base_ == nullptr; }
    uint32_t beats() const { return beats_; }
    uint8_t* bytes() { return data_; }
    beat_t* as_beats() { return reinterpret_cast<beat_t*>(data_); }
    std::vector<uint8_t> copy() const { return std::vector<uint8_t>(data_, data_ + (size_t)beats_ * BEAT_BYTES); }

private:
    uint32_t beats_;
    uint8_t* data_ = nullptr;
    uint8_t* base_ = nullptr;
    size_t mapped_ = 0;
};

// ---------------------------------------------------------------- one start

struct Outcome {
    bool ran = false;  // false: the machine has no room for the buffers
    Report report = {};
    std::vector<uint8_t> state;
};

// Beats a start may write: keys, values and replayed outputs of its positions, keys and values of the residual codes, and
// the records of its steps.
std::vector<bool> writable(const Network& network, const Control& control) {
    const Model& model = network.backbone;
    std::vector<bool> allowed(control.state_beats, false);
    auto allow = [&](uint64_t first, uint64_t count) {
        for (uint64_t beat = first; beat < first + count && beat < allowed.size(); beat++) allowed[beat] = true;
    };
    const StateLayout layout = StateLayout::of(model, control);
    const StateLayout deep = StateLayout::deep_of(network, control);
    const StepRecords records = StepRecords::of(network, control);
    const uint32_t deep_layers = has_depth(model) && control.steps > 0 ? network.depth.layers : 0;
    for (uint32_t layer = 0; layer < deep_layers; layer++) {
        for (uint32_t row = 0; row < control.rows; row++) {
            for (uint32_t head = 0; head < network.depth.heads; head++) {
                for (uint32_t code = 0; code < network.depth.codes_per_position; code++) {
                    allow(deep.key(layer, row, head, code), network.depth.head_dim / BEAT_BYTES);
                    allow(deep.block(layer, row, true, head, code), network.depth.head_dim);
                }
            }
        }
    }
    for (uint32_t step = 0; step < control.steps; step++) {
        const int position = (int)(control.position + step);
        for (uint32_t layer = 0; layer < model.layers; layer++) {
            for (uint32_t row = 0; row < control.rows; row++) {
                for (uint32_t head = 0; head < model.kv_heads; head++) {
                    allow(layout.key(layer, row, head, position), model.head_dim / BEAT_BYTES);
                    allow(layout.block(layer, row, true, head, position), model.head_dim);
                }
                allow(layout.replay(place_of(model, position), layer, row), layout.replay_beats());
            }
        }
    }
    allow(control.output, (uint64_t)control.steps * records.output(control.clips));
    if (control.flags & FLAG_TRACE) allow(control.trace, trace_beats(network, control));
    return allowed;
}

// What must hold of a start that was not refused, said once more in the simplest way.
void expect_sane(const Network& network, const Control& control) {
    const Model& model = network.backbone;
    const uint64_t clips = control.clips;
    const uint64_t end = (uint64_t)control.position + control.steps;
    if ((model.opcode & 0xFFFF) != MODEL_HEADER || model.build_id != BUILD_ID) fail("a program of another build ran");
    if (control.rows == 0 || control.rows > (uint32_t)ROWS) fail("more rows than there are ran");
    if (clips != control.rows && 2 * clips != control.rows) fail("clips that do not match the rows ran");
    if (control.slots > (uint32_t)MAX_SLOTS || end > control.slots || end > model.positions) {
        fail("steps beyond the context ran");
    }
    const bool deep = (model.opcode & MODEL_DEPTH) != 0;
    if (deep && MAX_DEPTH_LAYERS == 0) fail("a depth transformer ran where there is none");
    if (!deep && (uint64_t)model.code_offset + model.codes > model.vocab) fail("codes beyond the vocabulary ran");
    if (deep) {
        const Depth& depth = network.depth;
        if (depth.opcode != DEPTH_HEADER) fail("a depth transformer without a header ran");
        if (depth.hidden != depth.heads * depth.head_dim) fail("a depth transformer with gaps between its heads ran");
        if (depth.head_dim % 16 || depth.mlp % 16 || depth.code_dim % 16) fail("a depth transformer in no beats ran");
        if (depth.books != 1 && depth.books != depth.codes_per_position) fail("codebooks that match no code ran");
    }
    if (control.padding >= model.prompt_length) fail("padding beyond the prompt ran");
    if (control.texts > control.steps) fail("more steps that read tokens than there are ran");
    if ((control.flags & FLAG_TRACE) && control.steps != 1) fail("a traced start of other than one step ran");
    if ((control.flags & FLAG_TRACE) && (control.flags & FLAG_PROMPT)) fail("a traced start that predicts nothing ran");
    if (control.flags > 31 || control.policy > 2 || control.max_age < 1 || control.top_k < 1 || control.top_p < 1 ||
        control.top_p > 65536) {
        fail("settings outside of their ranges ran");
    }
}

Outcome run(const Start& start) {
    const Control& control = start.control;
    const uint32_t heap_descriptors = control.descriptors < MAX_NODES + 16 ? control.descriptors : 0;
    std::vector<uint8_t> words(start.program.size() * 4);
    if (!words.empty()) std::memcpy(words.data(), start.program.data(), words.size());
    Buffer program(words, heap_descriptors * (DESCRIPTOR_BYTES / BEAT_BYTES));
    Buffer weights(start.weights, control.weight_beats);
    Buffer state(start.state, control.state_beats);
    Outcome outcome;
    if (!weights.exists() || !state.exists()) return outcome;
    const std::vector<uint8_t> weights_before = weights.on_heap() ? weights.copy() : std::vector<uint8_t>();
    const std::vector<uint8_t> before = state.on_heap() ? state.copy() : std::vector<uint8_t>();

    const beat_t* read = weights.as_beats();
    beat_t* memory = state.as_beats();
    fastcar_engine(program.as_beats(), read, read, read, read, memory, memory, memory, memory, read, memory, control,
                   &outcome.report);
    outcome.ran = true;

    const uint32_t status = outcome.report.status;
    if (status > BAD_TOKEN) fail("unknown status " + std::to_string(status));
    if (outcome.report.build_id != BUILD_ID) fail("the report names build " + std::to_string(outcome.report.build_id));
    const bool started = status == DONE || status == BAD_TOKEN;
    if (started) expect_sane(start.network(), control);
    if (started && outcome.report.steps_done != control.steps) fail("not all steps were done");
    if (!started) {
        const uint32_t* counters = reinterpret_cast<const uint32_t*>(&outcome.report);
        for (int word = 2; word < REPORT_WORDS; word++) {
            if (counters[word] != 0) fail("a refused program was counted");
        }
    }
    if (weights.on_heap() && weights.copy() != weights_before) fail("the weights were written");
    if (!state.on_heap()) return outcome;
    outcome.state = state.copy();
    if (!started && outcome.state != before) fail("a refused program wrote to the state");
    if (started) {
        const std::vector<bool> allowed = writable(start.network(), control);
        for (uint32_t beat = 0; beat < control.state_beats; beat++) {
            const size_t first = (size_t)beat * BEAT_BYTES;
            if (!allowed[beat] && std::memcmp(&before[first], &outcome.state[first], BEAT_BYTES)) {
                fail("beat " + std::to_string(beat) + " of the state was written");
            }
        }
    }
    return outcome;
}

// ---------------------------------------------------------------- mutation

uint32_t interesting(Random& random, uint32_t now, const Control& control) {
    static const uint32_t values[] = {
        0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 127, 128, 129, 255, 256, 4095, 4096,
        65535, 65536, 65537, 1u << 20, (1u << 20) + 1, (1u << 24) - 1, 1u << 24, (1u << 24) + 1, 1u << 28,
        (1u << 30) - 1, 1u << 30, (1u << 30) + 1, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xC0000000, 0xFFFFFFC0,
        0xFFFFFFF0, 0xFFFFFFFE, 0xFFFFFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00000, 0x00000001 << 23};
    const uint32_t limits[] = {(uint32_t)ROWS, (uint32_t)MAX_LAYERS, (uint32_t)MAX_HIDDEN, (uint32_t)MAX_MLP,
                               (uint32_t)MAX_HEADS, (uint32_t)MAX_KV_HEADS, (uint32_t)MAX_HEAD_DIM,
                               (uint32_t)MAX_SLOTS, (uint32_t)MAX_CODES, (uint32_t)MAX_GROUP, control.weight_beats,
                               control.state_beats, control.slots, BUILD_ID, (uint32_t)MAX_NODES,
                               (uint32_t)MAX_DEPTH_LAYERS, (uint32_t)MAX_DEPTH_CODES, (uint32_t)MAX_CODE_DIM,
                               (uint32_t)MAX_PROJECTOR};
    switch (random.below(8)) {
        case 0: return now ^ 0x80000000u;
        case 1: return now + random.between(1, 4);
        case 2: return now - random.between(1, 4);
        case 3: return random.one_in(2) ? now * 2 : now / 2;
        case 4: return limits[random.below(sizeof(limits) / 4)] + random.between(0, 2) - 1;
        case 5: return now ^ (1u << random.below(32));
        default: return values[random.below(sizeof(values) / 4)];
    }
}

// Random bytes with enough of the values that upset arithmetic: infinities, not-a-numbers, extremes of int8.
void scribble(Random& random, std::vector<uint8_t>& bytes) {
    if (bytes.size() < 4) return;
    static const uint32_t floats[] = {0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00000, 0x7F7FFFFF, 0xFF7FFFFF,
                                      0x80808080, 0x7F7F7F7F, 0xFFFFFFFF, 0, 0x80000000, 0x7FFFFFFF, 0x00000001};
    const uint32_t count = random.between(1, 8);
    for (uint32_t i = 0; i < count; i++) {
        const size_t word = random.next() % (bytes.size() / 4);
        const uint32_t value = random.one_in(2) ? floats[random.below(sizeof(floats) / 4)] : (uint32_t)random.next();
        std::memcpy(&bytes[word * 4], &value, 4);
    }
}

void write_words(Start& start, uint64_t beat, uint32_t word, uint32_t value) {
    const uint64_t byte = beat * BEAT_BYTES + (uint64_t)word * 4;
    if (byte + 4 <= start.state.size()) std::memcpy(&start.state[byte], &value, 4);
}

// Whether the sizes of the records can be computed at all; the engine computes them after it has checked this.
bool has_records(const Start& start) {
    if (start.program.size() < DESCRIPTOR_WORDS) return false;
    const Model model = start.model();
    return model.layers <= 256 && model.codes <= (1u << 24) && start.control.rows <= 256 &&
           start.control.clips <= 256 && start.network().codes_per_position() <= 256;
}

// Tokens or codes, uniforms or given codes, thresholds and paddings as a host would write them, most of them.
void write_inputs(Random& random, Start& start) {
    if (!has_records(start)) return;
    const Model model = start.model();
    const bool deep = has_depth(model);
    const StepRecords records = StepRecords::of(start.network(), start.control);
    const uint32_t steps = start.control.steps < 256 ? start.control.steps : 256;
    for (uint32_t step = 0; step < steps; step++) {
        const uint64_t record = start.control.input + (uint64_t)step * records.input();
        const bool codes = deep && step >= start.control.texts;
        for (uint32_t word = 0; word < 4 * records.input() && word < 128; word++) {
            const bool token = word < 4 * records.token_beats;
            uint32_t value = token ? random.below(codes ? model.codes : model.vocab) : random.below(1u << 24);
            if (deep && !token && random.one_in(4)) value = GIVEN | random.below(model.codes + random.one_in(50));
            if (token && (step > 0 ? random.one_in(2) : random.one_in(400))) value = OWN_CODE;
            if (random.one_in(400)) value = interesting(random, model.vocab, start.control);
            write_words(start, record, word, value);
        }
    }
    for (uint32_t layer = 0; layer < model.layers && layer < 256; layer++) {
        static const uint64_t thresholds[] = {0, 1ull << 40, ~(1ull << 40) + 1, 1ull << 20, 1ull << 63, ~0ull >> 1};
        uint64_t value = thresholds[random.below(random.one_in(16) ? 6 : 4)];
        if (random.one_in(2)) value = (uint64_t)-(int64_t)random.below(1u << 20);
        write_words(start, start.control.thresholds, layer * 2, (uint32_t)value);
        write_words(start, start.control.thresholds, layer * 2 + 1, (uint32_t)(value >> 32));
    }
    const uint64_t paddings = (uint64_t)start.control.thresholds + (model.layers + 1) / 2;
    for (uint32_t row = 0; row < start.control.rows; row++) {
        const uint32_t most = start.control.padding;
        uint32_t value = random.below(most + 1);
        if (random.one_in(20)) value = random.one_in(2) ? 0x7FFFFFFF : interesting(random, most, start.control);
        write_words(start, paddings, row, value);
    }
}

// Other settings within their ranges: what is accepted must run as safely as what is refused.
void change_settings(Random& random, Start& start) {
    Control& control = start.control;
    switch (random.below(10)) {
        case 0: control.flags = random.below(16); break;
        case 8: control.padding = random.below(start.model().prompt_length); break;
        case 9: control.texts = random.below(control.steps + 1); break;
        case 1: control.policy = random.below(3); break;
        case 2: control.max_age = (int32_t)random.between(1, 0x7FFFFFFF) >> random.below(31); break;
        case 3:
            control.sinks = random.below(control.slots + 2);
            control.window = random.below(control.slots + 2);
            control.columns = random.below(MAX_COLUMNS + 1);
            break;
        case 4: control.top_k = random.between(1, 40); break;
        case 5: control.top_p = random.between(1, 65536); break;
        case 6: {
            const uint32_t bits = interesting(random, 0x3F800000, control);
            std::memcpy(random.one_in(2) ? &control.guidance : &control.inverse_temperature, &bits, 4);
            break;
        }
        default:
            control.steps = random.between(0, 2);
            control.texts = random.below(control.steps + 1);
            control.position = random.below(start.model().positions + 1 - control.steps);
            if (random.one_in(4)) control.position = start.model().positions - control.steps;
    }
}

// Addresses in order behind the tables, sizes exactly what is needed.
void repair(Random& random, Start& start) {
    const Model model = start.model();
    const Network network = start.network();
    Control& control = start.control;
    const uint32_t headers = start.headers();
    const uint32_t count = (uint32_t)node_count(network);
    start.program.resize((count + headers) * DESCRIPTOR_WORDS, 0);
    control.descriptors = count + headers;
    uint32_t end = random.below(3);
    start.word(0, MODEL_WORD(embedding)) = end;
    end += model.vocab * (model.hidden / BEAT_HALVES);
    start.word(0, MODEL_WORD(rotary)) = end;
    end += model.positions * (model.head_dim / BEAT_WORDS * 2);
    if (has_depth(model)) {
        start.word(1, DEPTH_WORD(codebook)) = end;
        end += network.depth.books * model.codes * (network.depth.code_dim / BEAT_HALVES);
        start.word(1, DEPTH_WORD(positions)) = end;
        end += network.depth.codes_per_position * (network.depth.hidden / BEAT_WORDS);
    }
    for (uint32_t index = 0; index < count; index++) {
        const uint32_t place = index + headers;
        const Expected expected = expected_node(network, (int)index);
        Node node = Node();
        node.opcode = (uint32_t)expected.opcode;
        node.layer = (uint32_t)expected.layer;
        node.flags = (random.one_in(3) ? NODE_INT4 : 0u) | (random.one_in(3) ? NODE_BIAS : 0u);
        start.word(place, NODE_WORD(opcode)) = node.opcode;
        start.word(place, NODE_WORD(flags)) = node.flags;
        start.word(place, NODE_WORD(layer)) = node.layer;
        LinearShape shape = {0, 0, false, false};
        if (is_linear(node.opcode)) shape = linear_shape(network, expected.opcode, expected.layer, false, false);
        start.word(place, NODE_WORD(inputs)) = (uint32_t)shape.inputs;
        start.word(place, NODE_WORD(outputs)) = (uint32_t)shape.outputs;
        start.word(place, NODE_WORD(beats)) = (uint32_t)node_beats(network, node);
        start.word(place, NODE_WORD(address)) = end;
        const float eps = 1e-5f;
        std::memcpy(&start.word(place, NODE_WORD(eps)), &eps, 4);
        end += PORTS * (uint32_t)node_beats(network, node);
    }
    control.weight_beats = end;
    const StepRecords records = StepRecords::of(network, control);
    const uint64_t limits = ceil_div((int)model.layers, 2) + ceil_div((int)control.rows, BEAT_WORDS);
    const uint64_t parts[4] = {limits, (uint64_t)control.steps * records.input(),
                               (uint64_t)control.steps * records.output(control.clips),
                               control.flags & FLAG_TRACE ? trace_beats(network, control) : 0};
    uint32_t* const addresses[4] = {&control.thresholds, &control.input, &control.output, &control.trace};
    const uint32_t first = random.below(4);  // the records in any order
    uint64_t beat = StateLayout::of(model, control).end();
    if (has_depth(model)) beat = StateLayout::deep_of(network, control).end();
    for (uint32_t i = 0; i < 4; i++) {
        *addresses[(first + i) % 4] = (uint32_t)beat;
        beat += parts[(first + i) % 4];
    }
    control.state_beats = (uint32_t)beat;
}

// Another model and another start, with any bytes for weights. True: within the limits of the engine, so it must be
// accepted; else one dimension is beyond them, and the rest fits it.
bool reshape(Random& random, Start& start) {
    const bool deep = MAX_DEPTH_LAYERS > 0 && !random.one_in(3);
    uint32_t until_beyond = random.one_in(4) ? random.below(deep ? 16 : 9) : ~0u;
    bool valid = true;
    auto pick = [&](uint32_t low, uint32_t high, uint32_t unit) {
        if (until_beyond-- == 0) {
            valid = false;
            return high + unit * random.between(1, 2);
        }
        return random.one_in(4) ? high : random.between(low / unit, high / unit) * unit;
    };
    start.program.assign((deep ? 2 : 1) * DESCRIPTOR_WORDS, 0);
    start.word(0, MODEL_WORD(build_id)) = BUILD_ID;
    const uint32_t kv_heads = pick(1, MAX_KV_HEADS, 1);
    const uint32_t even = MAX_HEADS / kv_heads > 1 ? MAX_HEADS / kv_heads : 1;
    const uint32_t most = even < (uint32_t)MAX_GROUP ? even : (uint32_t)MAX_GROUP;
    const uint32_t reductions[] = {0, MODEL_HEADS_MAX, MODEL_HEADS_MIN};
    const uint32_t modes = reductions[random.below(3)] | (random.one_in(2) ? MODEL_PRE_ROPE : 0);
    const bool foreign = MAX_DEPTH_LAYERS == 0 && random.one_in(32);  // a depth transformer for an engine without
    if (foreign) valid = false;
    start.word(0, MODEL_WORD(opcode)) = MODEL_HEADER | modes | (deep || foreign ? MODEL_DEPTH : 0);
    start.word(0, MODEL_WORD(layers)) = pick(1, MAX_LAYERS, 1);
    start.word(0, MODEL_WORD(hidden)) = pick(16, MAX_HIDDEN, 16);
    start.word(0, MODEL_WORD(kv_heads)) = kv_heads;
    start.word(0, MODEL_WORD(heads)) = kv_heads * pick(1, most, 1);
    start.word(0, MODEL_WORD(head_dim)) = pick(16, MAX_HEAD_DIM, 16);
    start.word(0, MODEL_WORD(mlp)) = pick(8, MAX_MLP, 8);
    start.word(0, MODEL_WORD(codes)) = pick(1, MAX_CODES, 1);
    start.word(0, MODEL_WORD(code_offset)) = random.below(5);
    const uint32_t coded = deep ? random.below(2) : start.model().codes;
    start.word(0, MODEL_WORD(vocab)) = coded + start.model().code_offset + (coded == 0 ? 1 : random.below(2));
    start.word(0, MODEL_WORD(prompt_length)) = random.one_in(8) ? 65536 : random.between(1, 5);
    start.word(0, MODEL_WORD(places)) = random.between(1, 7);
    start.word(0, MODEL_WORD(positions)) = random.between(2, MAX_SLOTS);
    if (deep) {
        const uint32_t head_dim = pick(16, MAX_HEAD_DIM, 16);
        const uint32_t several = MAX_HEADS < MAX_KV_HEADS ? MAX_HEADS : MAX_KV_HEADS;
        const uint32_t wide = MAX_HIDDEN / head_dim > 1 ? MAX_HIDDEN / head_dim : 1;
        const uint32_t heads = pick(1, several < wide ? several : wide, 1);
        start.word(1, DEPTH_WORD(opcode)) = DEPTH_HEADER;
        start.word(1, DEPTH_WORD(layers)) = pick(1, MAX_DEPTH_LAYERS, 1);
        const bool gaps = random.one_in(32) && heads * head_dim < (uint32_t)MAX_HIDDEN;
        if (gaps) valid = false;
        start.word(1, DEPTH_WORD(hidden)) = heads * head_dim + (gaps ? 16 : 0);
        start.word(1, DEPTH_WORD(heads)) = heads;
        start.word(1, DEPTH_WORD(head_dim)) = head_dim;
        start.word(1, DEPTH_WORD(mlp)) = pick(16, MAX_MLP, 16);
        start.word(1, DEPTH_WORD(codes_per_position)) = pick(1, MAX_DEPTH_CODES, 1);
        start.word(1, DEPTH_WORD(code_dim)) = pick(16, MAX_CODE_DIM, 16);
        start.word(1, DEPTH_WORD(projector)) = pick(1, MAX_PROJECTOR, 1);
        start.word(1, DEPTH_WORD(books)) = random.one_in(2) ? 1 : start.network().depth.codes_per_position;
    }
    Control& control = start.control;
    control.clips = pick(1, ROWS, 1);
    control.rows = control.clips * 2 <= (uint32_t)ROWS && random.one_in(2) ? control.clips * 2 : control.clips;
    control.slots = pick(PORTS * BLOCK_SLOTS, MAX_SLOTS, PORTS * BLOCK_SLOTS);
    const uint32_t positions = start.model().positions < control.slots ? start.model().positions : control.slots;
    control.flags = random.below(16);
    control.steps = control.flags & FLAG_TRACE ? 1 : random.one_in(8) ? 0 : random.one_in(4) ? 2 : 1;
    control.position = random.one_in(3) ? positions - control.steps : random.below(positions + 1 - control.steps);
    control.policy = random.below(3);
    control.sinks = random.one_in(2) ? 0 : random.below(control.slots);
    control.window = random.one_in(2) ? 0 : random.below(control.slots);
    control.columns = random.one_in(2) ? 0 : random.below(MAX_COLUMNS + 1);
    control.padding = random.one_in(2) ? 0 : random.below(start.model().prompt_length);
    control.texts = random.below(control.steps + 1);
    repair(random, start);
    const size_t bytes = (size_t)control.weight_beats * BEAT_BYTES;
    const size_t known = start.weights.size();
    start.weights.resize(bytes);
    for (size_t byte = known; byte < bytes; byte++) start.weights[byte] = start.weights[byte - known];
    start.state.assign((size_t)control.state_beats * BEAT_BYTES, (uint8_t)random.next());
    write_inputs(random, start);
    return valid;
}

// An address to where what it names just fits, or just does not.
void move_address(Random& random, Start& start) {
    if (!has_records(start)) return;
    const Model model = start.model();
    Control& control = start.control;
    const uint32_t slack = random.between(0, 4) - 2;
    const Network network = start.network();
    const Depth& depth = network.depth;
    const StepRecords records = StepRecords::of(network, control);
    const uint32_t headers = start.headers();
    const uint32_t node = start.descriptors() > headers ? random.between(headers, start.descriptors() - 1) : 0;
    const uint32_t weights_end = control.weight_beats + slack;
    const uint32_t state_end = control.state_beats + slack;
    const bool deep = headers == 2 && start.descriptors() >= 2;
    switch (random.below(deep ? 9 : 7)) {
        case 7: {
            const uint32_t books = random.one_in(2) ? depth.books : 1;
            start.word(1, DEPTH_WORD(codebook)) = weights_end - books * model.codes * (depth.code_dim / BEAT_HALVES);
            break;
        }
        case 8:
            start.word(1, DEPTH_WORD(positions)) = weights_end - depth.codes_per_position * (depth.hidden / BEAT_WORDS);
            break;
        case 0:
            start.word(0, MODEL_WORD(embedding)) = weights_end - model.vocab * (model.hidden / BEAT_HALVES);
            break;
        case 1:
            start.word(0, MODEL_WORD(rotary)) = weights_end - model.positions * (model.head_dim / BEAT_WORDS * 2);
            break;
        case 2:
            start.word(node, NODE_WORD(address)) = weights_end - PORTS * start.word(node, NODE_WORD(beats));
            break;
        case 3: control.thresholds = state_end - (model.layers + 1) / 2 - (control.rows + 3) / 4; break;
        case 4: control.input = state_end - control.steps * records.input(); break;
        case 5:
            if (model.mlp <= (1u << 24) && depth.mlp <= (1u << 24)) {
                control.trace = state_end - (uint32_t)trace_beats(network, control);
            }
            break;
        default: control.output = state_end - control.steps * records.output(control.clips); break;
    }
}

void move_descriptors(Random& random, Start& start) {
    const uint32_t count = start.descriptors();
    if (count < 3) return;
    const uint32_t a = random.below(count);
    const uint32_t b = random.below(count);
    auto at = [&](uint32_t descriptor) { return start.program.begin() + descriptor * DESCRIPTOR_WORDS; };
    const std::vector<uint32_t> copy(at(a), at(a) + DESCRIPTOR_WORDS);
    switch (random.below(4)) {
        case 0: std::swap_ranges(at(a), at(a) + DESCRIPTOR_WORDS, at(b)); break;
        case 1: start.program.erase(at(a), at(a) + DESCRIPTOR_WORDS); break;
        case 2: start.program.insert(at(b), copy.begin(), copy.end()); break;
        default: std::copy(copy.begin(), copy.end(), at(b)); break;
    }
    if (random.one_in(2)) start.control.descriptors = start.descriptors();
}

void mutate(Random& random, Start& start) {
    Control& control = start.control;
    uint32_t* registers = start.registers();
    const bool has_program = start.program.size() >= 2 * DESCRIPTOR_WORDS;
    switch (random.below(15)) {
        case 0:
            if (has_program) start.program[random.below(start.program.size())] ^= 1u << random.below(32);
            break;
        case 1:
            if (has_program) {
                uint8_t* bytes = reinterpret_cast<uint8_t*>(start.program.data());
                bytes[random.below(start.program.size() * 4)] = (uint8_t)random.next();
            }
            break;
        case 2:
            if (has_program) {
                uint32_t& word = start.program[random.below(start.program.size())];
                word = interesting(random, word, control);
            }
            break;
        case 3:  // the headers are a twentieth of the program, but most of what can go wrong
            if (has_program) {
                uint32_t& word = start.program[random.below(start.headers() * DESCRIPTOR_WORDS)];
                word = interesting(random, word, control);
            }
            break;
        case 4: move_descriptors(random, start); break;
        case 5: registers[random.below(CONTROL_WORDS)] ^= 1u << random.below(32); break;
        case 6: {
            uint32_t& word = registers[random.below(CONTROL_WORDS)];
            word = interesting(random, word, control);
            break;
        }
        case 7: {  // without steps no size stands in the way: the value itself must be refused
            control.steps = 0;
            uint32_t& word = registers[random.below(CONTROL_WORDS)];
            word = random.one_in(2) ? word ^ 0x80000000u : interesting(random, word, control);
            break;
        }
        case 8:
            if (random.one_in(2)) {
                control.weight_beats -= random.one_in(2) ? random.between(1, 3) : random.below(control.weight_beats);
            } else {
                control.state_beats -= random.one_in(2) ? random.between(1, 3) : random.below(control.state_beats);
            }
            break;
        case 9: scribble(random, start.weights); break;
        case 10: scribble(random, start.state); break;
        case 11: write_inputs(random, start); break;
        case 12:
            if (has_program) move_address(random, start);
            break;
        default:
            if (has_program) change_settings(random, start);
            break;
    }
}

// Many steps are the same as few, only slower.
void bound(Random& random, Start& start) {
    if (start.control.steps > 3 && start.control.steps <= (uint32_t)MAX_SLOTS && !random.one_in(64)) {
        start.control.steps = random.between(1, 2);
    }
}

// The mutant; `valid` says that it must be accepted.
Start make_mutant(Random& random, const Start& original, bool& valid) {
    Start start = original;
    const bool other = random.one_in(3);
    valid = other && reshape(random, start);
    if (!other || random.one_in(3)) {
        valid = false;
        uint32_t count = 1;
        while (count < 6 && random.one_in(3)) count++;
        for (uint32_t i = 0; i < count; i++) mutate(random, start);
    }
    bound(random, start);
    return start;
}

// ---------------------------------------------------------------- driver

std::vector<uint32_t> read_words(FILE* file, size_t count) {
    std::vector<uint32_t> words(count);
    if (count && std::fread(words.data(), 4, count, file) != count) fail("a case ends early");
    return words;
}

std::vector<uint8_t> read_bytes(FILE* file, size_t count) {
    std::vector<uint8_t> bytes(count);
    if (count && std::fread(bytes.data(), 1, count, file) != count) fail("a case ends early");
    return bytes;
}

// Control words, then program, weights and state as the registers size them.
Start read_case(const char* path) {
    FILE* file = std::fopen(path, "rb");
    if (!file) fail(std::string("cannot read ") + path);
    Start start;
    const std::vector<uint32_t> registers = read_words(file, CONTROL_WORDS);
    std::memcpy(&start.control, registers.data(), sizeof(Control));
    start.program = read_words(file, (size_t)start.control.descriptors * DESCRIPTOR_WORDS);
    start.weights = read_bytes(file, (size_t)start.control.weight_beats * BEAT_BYTES);
    start.state = read_bytes(file, (size_t)start.control.state_beats * BEAT_BYTES);
    std::fclose(file);
    return start;
}

char now[64] = "no mutant yet";

void say_which() { std::fprintf(stderr, "fuzz: stopped at %s\n", now); }

void aborts(int) {
    say_which();
    _exit(1);
}

void hangs(int) {
    say_which();
    std::fprintf(stderr, "fuzz: no end after %u s\n", HANG_SECONDS);
    _exit(1);
}

bool same(const Outcome& a, const Outcome& b) {
    return std::memcmp(&a.report, &b.report, sizeof(Report)) == 0 && a.state == b.state;
}

int fuzz(uint64_t seed, uint64_t mutants, int64_t only, const std::vector<Start>& cases) {
    std::vector<Outcome> first;
    for (const Start& start : cases) {
        first.push_back(run(start));
        if (first.back().report.status != DONE) fail("the unchanged program is refused");
    }
    uint64_t by_status[BAD_TOKEN + 1] = {};
    uint64_t no_room = 0, replayed = 0, skipped = 0, steps = 0;
    const auto began = std::chrono::steady_clock::now();
    for (uint64_t index = only >= 0 ? only : 0; index < mutants; index++) {
        std::snprintf(now, sizeof(now), "mutant %llu of seed %llu", (unsigned long long)index,
                      (unsigned long long)seed);
        alarm(HANG_SECONDS);
        Random random(seed * 0x100000001B3u + index);
        bool valid;
        const Start mutant = make_mutant(random, cases[index % cases.size()], valid);
        const Outcome outcome = run(mutant);
        const uint32_t status = outcome.report.status;
        if (outcome.ran) {
            by_status[status]++;
            if (valid && status != DONE && status != BAD_TOKEN) {
                fail("a valid program is refused: status " + std::to_string(status));
            }
            replayed += outcome.report.rows_replayed;
            skipped += outcome.report.passes_skipped;
            steps += outcome.report.steps_done;
        } else {
            no_room++;
        }
        if (index % CHECK_EVERY == 0 || only >= 0) {
            const size_t which = index / CHECK_EVERY % cases.size();
            if (!same(run(cases[which]), first[which])) fail("the unchanged program has other results than at first");
        }
        if (only >= 0) break;
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    std::printf("mutants %llu\nno_room %llu\n", (unsigned long long)mutants, (unsigned long long)no_room);
    for (int status = 0; status <= BAD_TOKEN; status++) {
        std::printf("status%d %llu\n", status, (unsigned long long)by_status[status]);
    }
    std::printf("steps %llu\nrows_replayed %llu\npasses_skipped %llu\nseconds %.1f\n", (unsigned long long)steps,
                (unsigned long long)replayed, (unsigned long long)skipped, seconds);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        if (argc < 4) fail("usage: fuzz SEED MUTANTS [--only N] CASE...");
        const bool single = std::strcmp(argv[3], "--only") == 0;
        if (single && argc < 6) fail("--only needs a number and a case");
        __sanitizer_set_death_callback(say_which);
        std::signal(SIGABRT, aborts);
        std::signal(SIGALRM, hangs);
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_attr_setstacksize(&attributes, STACK_BYTES);
        pthread_setattr_default_np(&attributes);
        std::vector<Start> cases;
        for (int i = single ? 5 : 3; i < argc; i++) cases.push_back(read_case(argv[i]));
        return fuzz(std::strtoull(argv[1], nullptr, 0), std::strtoull(argv[2], nullptr, 0),
                    single ? std::strtoll(argv[4], nullptr, 0) : -1, cases);
    } catch (const std::exception& failure) {
        say_which();
        std::fprintf(stderr, "fuzz: %s\n", failure.what());
        return 1;
    }
}
