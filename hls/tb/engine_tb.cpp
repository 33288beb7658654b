// Test bench of engine.h: a clip of a small model, one step a start, against the NumPy reference.
//
// In co-simulation each bundle of ports has a memory of its own, filled before a start and read back after it. So a
// start has one step: what the cache port writes, the read ports see in the next one. A step of a depth transformer,
// whose later residual codes read the keys and values of the earlier, is started as often as there are codes. The bench
// keeps the memories apart itself, so that C simulation sees what co-simulation will.
#include "../engine/engine.h"

#include "bench.h"

using namespace bench;

namespace {

enum { TOKENS, UNIFORMS };               // what the host writes, in order
enum { CODES, REPLAY, SCORES, LOGITS };  // what it finds, in order
constexpr int WORD_BYTES = 4;

std::vector<beat_t> program, weights, state(fastcar::STATE_DEPTH, beat_t(0));
fastcar::Control last_control;

// One start over the buffers, which are as long as the interface's depth says.
fastcar::Report start(const fastcar::Control& control) {
    fastcar::Report report;
    beat_t* const w = weights.data();
    const std::vector<beat_t> before = state;
    const beat_t* const s = before.data();
    fastcar_engine(program.data(), w, w, w, w, s, s, s, s, w, state.data(), control, &report);
    return report;
}

std::vector<beat_t> beats_of(const Case& one, const std::string& key, int size, int depth) {
    const std::vector<int64_t> values = one.integers(key);
    const int per_beat = fastcar::BEAT_BYTES / size;
    if ((int)values.size() != depth * per_beat) throw std::runtime_error(key + ": golden vectors of another engine");
    std::vector<beat_t> beats(depth, beat_t(0));
    for (size_t index = 0; index < values.size(); index++) {
        const int low = (int)(index % per_beat) * 8 * size;
        beats[index / per_beat].range(low + 8 * size - 1, low) = (uint64_t)values[index];
    }
    return beats;
}

uint32_t word(uint32_t beat, size_t index) {
    return fastcar::word_of(state.at(beat + index / fastcar::BEAT_WORDS), (int)(index % fastcar::BEAT_WORDS));
}

void put(uint32_t beat, size_t index, uint32_t value) {
    fastcar::set_word(state.at(beat + index / fastcar::BEAT_WORDS), (int)(index % fastcar::BEAT_WORDS), value);
}

// First beats of the parts of a record that starts at `first`.
std::vector<uint32_t> places(uint32_t first, const std::vector<int64_t>& beats) {
    std::vector<uint32_t> found;
    for (const int64_t size : beats) {
        found.push_back(first);
        first += (uint32_t)size;
    }
    return found;
}

std::vector<int64_t> words(uint32_t beat, size_t count) {
    std::vector<int64_t> found(count);
    for (size_t index = 0; index < count; index++) found[index] = word(beat, index);
    return found;
}

std::vector<int64_t> pairs(uint32_t beat, size_t count) {
    std::vector<int64_t> found(count);
    for (size_t index = 0; index < count; index++) {
        found[index] = (int64_t)((uint64_t)word(beat, 2 * index + 1) << 32 | word(beat, 2 * index));
    }
    return found;
}

std::vector<float> floats(uint32_t beat, size_t count) {
    std::vector<float> found(count);
    for (size_t index = 0; index < count; index++) found[index] = fastcar::float_of(word(beat, index));
    return found;
}

fastcar::Control control_of(const Case& one) {
    const std::vector<int64_t> values = one.integers("control");
    fastcar::Control control;
    expect(one.name + " control", 0, values.size() * WORD_BYTES, sizeof control);
    std::vector<uint32_t> image(values.begin(), values.end());
    std::memcpy(&control, image.data(), sizeof control);
    return control;
}

void write_inputs(const Case& one, const fastcar::Control& control) {
    const std::vector<int64_t> thresholds = one.integers("thresholds");
    for (size_t layer = 0; layer < thresholds.size(); layer++) {
        put(control.thresholds, 2 * layer, (uint32_t)thresholds[layer]);
        put(control.thresholds, 2 * layer + 1, (uint32_t)((uint64_t)thresholds[layer] >> 32));
    }
    const std::vector<int64_t> padding = one.integers("padding");
    const uint32_t paddings = control.thresholds + (uint32_t)(thresholds.size() + 1) / 2;
    for (size_t row = 0; row < padding.size(); row++) put(paddings, row, (uint32_t)padding[row]);
    const std::vector<uint32_t> input = places(control.input, one.integers("input_beats"));
    const std::vector<int64_t> tokens = one.integers("tokens"), uniforms = one.integers("uniforms");
    for (size_t word = 0; word < tokens.size(); word++) put(input[TOKENS], word, (uint32_t)tokens[word]);
    for (size_t word = 0; word < uniforms.size(); word++) put(input[UNIFORMS], word, (uint32_t)uniforms[word]);
}

void golden(const Case& one) {
    if (one.name == "model") {
        program = beats_of(one, "program", WORD_BYTES, fastcar::PROGRAM_DEPTH);
        weights = beats_of(one, "weights", 1, fastcar::WEIGHT_DEPTH);
        return;
    }
    const fastcar::Control control = last_control = control_of(one);
    expect(one.name + " state_beats", 0, control.state_beats, (uint32_t)fastcar::STATE_DEPTH);
    write_inputs(one, control);
    for (int64_t again = one.number("starts"); again > 0; again--) {
        const fastcar::Report report = start(control);
        expect(one.name + " status", 0, report.status, (uint32_t)fastcar::DONE);
        expect(one.name + " build_id", 0, report.build_id, fastcar::BUILD_ID);
        expect(one.name + " steps_done", 0, report.steps_done, control.steps);
    }
    const std::vector<uint32_t> output = places(control.output, one.integers("output_beats"));
    const std::vector<float> logits = one.floats("logits");
    expect_all(one.name + " logits", floats(output[LOGITS], logits.size()), logits);
    if (!one.arrays.count("codes")) return;  // of the prompt: nothing was chosen
    const std::vector<int64_t> codes = one.integers("codes"), replay = one.integers("replay");
    const std::vector<int64_t> scores = one.integers("scores");
    expect_all(one.name + " scores", pairs(output[SCORES], scores.size()), scores);
    expect_all(one.name + " replay", words(output[REPLAY], replay.size()), replay);
    expect_all(one.name + " codes", words(output[CODES], codes.size()), codes);
}

// A program of another engine: refused, and the state left as it was.
void seeded() {
    const std::vector<beat_t> before = state;
    const beat_t header = program[0];
    fastcar::set_word(program[0], 1, fastcar::BUILD_ID ^ 1u);
    const fastcar::Report report = start(last_control);
    program[0] = header;
    expect("another build: status", 0, report.status, (uint32_t)fastcar::BAD_BUILD);
    expect_all("another build: state", state, before);
}

}  // namespace

int main(int argc, char** argv) { return run("engine", argc, argv, seeded, golden); }
