// Test bench of quant_linear.h: matrices off the tile sizes, every number of rows and dealing, three column heights.
#include <fastcar/quant_linear.h>

#include <algorithm>

#include "bench.h"

using namespace bench;

namespace {

constexpr int ROWS = 32;
constexpr int CAPACITY = 256;
constexpr int PORTS = 4;

struct Layer {
    int inputs;
    int outputs;
    bool int4;
    std::vector<int> values;      // (outputs, inputs), before the multiplier
    std::vector<int> multiplier;  // (outputs, chunks of 32 inputs)
    std::vector<float> scale;     // (outputs)
    bool has_bias;
    std::vector<float> bias;      // (outputs)

    int chunk_inputs() const { return int4 ? 32 : 16; }
    int chunks() const { return (inputs + chunk_inputs() - 1) / chunk_inputs(); }
    int value(int output, int input) const {
        return output < outputs && input < inputs ? values[output * inputs + input] : 0;
    }
    int weight(int output, int input) const {
        return value(output, input) * (int4 ? multiplier[output * chunks() + input / 32] : 1);
    }
};

struct Operand {
    int rows;
    std::vector<int8_t> x;  // (rows, inputs)
    std::vector<float> scale;
    uint32_t index;
    bool reassign;
};

Layer random_layer(Random& random, int inputs, int outputs, bool int4, bool bias) {
    Layer layer = {inputs, outputs, int4, {}, {}, {}, bias, {}};
    const int most = int4 ? 7 : 127;
    for (int8_t value : random.bytes(outputs * inputs, -most, most)) layer.values.push_back(value);
    for (int group = 0; group < outputs * layer.chunks(); group++) {
        layer.multiplier.push_back((int)random.between(1, 18));
    }
    for (int output = 0; output < outputs; output++) layer.scale.push_back(std::fabs(random.wide(-12, -4)));
    for (int output = 0; output < outputs; output++) layer.bias.push_back(random.wide(-10, 10));
    return layer;
}

Operand random_operand(Random& random, int rows, int inputs, uint32_t index, bool reassign) {
    Operand operand = {rows, random.bytes(rows * inputs, -127, 127), {}, index, reassign};
    for (int row = 0; row < rows; row++) operand.scale.push_back(std::fabs(random.wide(-10, 2)));
    return operand;
}

int64_t factor_of(const Layer& layer, int output, int chunk) {
    return output < layer.outputs && chunk < layer.chunks() ? layer.multiplier[output * layer.chunks() + chunk] : 0;
}

// One chunk of one output's weights: 16 bytes, or 32 nibbles, the first in the low half of a byte.
beat_t weight_beat(const Layer& layer, int output, int chunk) {
    int8_t bytes[16];
    for (int lane = 0; lane < 16; lane++) {
        if (layer.int4) {
            const int low = layer.value(output, chunk * 32 + 2 * lane) & 15;
            bytes[lane] = (int8_t)(low | layer.value(output, chunk * 32 + 2 * lane + 1) * 16);
        } else {
            bytes[lane] = (int8_t)layer.value(output, chunk * 16 + lane);
        }
    }
    return beat_of(bytes);
}

// What a port is sent, written out from the header's comment.
std::vector<beat_t> port_stream(const Layer& layer, int port) {
    std::vector<beat_t> beats;
    for (int first = 0; first < layer.outputs; first += 32) {
        const int each = std::min(8, (layer.outputs - first + 7) / 8 * 2);  // outputs of a port, an even number
        const int own = first + port * each;
        for (int half = 0; half < (layer.has_bias ? 4 : 2); half++) {
            const std::vector<float>& given = half < 2 ? layer.scale : layer.bias;
            beat_t words = 0;
            for (int word = 0; word < 4; word++) {
                const int lane = half % 2 * 4 + word;
                const bool exists = lane < each && own + lane < layer.outputs;
                words.range(32 * word + 31, 32 * word) = exists ? fastcar::bits_of(given[own + lane]) : 0u;
            }
            beats.push_back(words);
        }
        for (int chunk = 0; chunk < layer.chunks(); chunk++) {
            if (layer.int4 && chunk % 2 == 0) {
                int8_t factors[16] = {};
                for (int lane = 0; lane < each; lane++) {
                    factors[lane] = (int8_t)factor_of(layer, own + lane, chunk);
                    factors[8 + lane] = (int8_t)factor_of(layer, own + lane, chunk + 1);
                }
                beats.push_back(beat_of(factors));
            }
            for (int lane = 0; lane < each; lane++) beats.push_back(weight_beat(layer, own + lane, chunk));
        }
    }
    return beats;
}

struct Collected {
    int outputs;  // those of the last, padded tile included
    std::vector<float> y;
    std::vector<int> times;

    void operator()(int row, int output, float y0, float y1) {
        const bool exists = row >= 0 && row < ROWS && output >= 0 && output + 1 < outputs;
        if (!exists) throw std::runtime_error("no output " + std::to_string(output) + " of row " + std::to_string(row));
        y[row * outputs + output] = y0;
        y[row * outputs + output + 1] = y1;
        times[row * outputs + output]++;
        times[row * outputs + output + 1]++;
    }
};

using Streams = std::vector<std::vector<beat_t>>;

template <int GROUPS>
void check(const std::string& name, const Layer& layer, const Operand& operand, const Streams& streams,
           const std::vector<float>& expected) {
    static beat_t x[ROWS][CAPACITY / 16];
    static Random garbage(17);
    fastcar::stream<beat_t> ports[PORTS];
    for (int port = 0; port < PORTS; port++) {
        for (const beat_t& beat : streams[port]) ports[port].write(beat);
    }
    for (auto& row : x) {
        for (beat_t& beat : row) beat = garbage.beat();  // what lies behind the inputs must not count
    }
    float scale[ROWS] = {};
    for (int row = 0; row < operand.rows; row++) {
        for (int input = 0; input < layer.inputs; input++) {
            beat_t& beat = x[row][input / 16];
            beat.range(input % 16 * 8 + 7, input % 16 * 8) = (uint8_t)operand.x[row * layer.inputs + input];
        }
        scale[row] = operand.scale[row];
    }
    const int padded = (layer.outputs + 7) / 8 * 8;
    Collected sink = {padded, std::vector<float>(ROWS * padded), std::vector<int>(ROWS * padded)};
    const fastcar::LinearShape shape = {layer.inputs, layer.outputs, layer.int4, layer.has_bias};
    int64_t busy_beats = 1000;
    const int64_t clocks = fastcar::quant_linear<ROWS, GROUPS, CAPACITY>(
        ports, shape, fastcar::deal(operand.index, operand.rows, operand.reassign), x, scale, sink, busy_beats);

    const std::string full = name + ", groups " + std::to_string(GROUPS);
    int computing = 0;
    for (int row = 0; row < ROWS; row++) {
        const bool computes = row < operand.rows && (operand.index >> row & 1u);
        computing += computes;
        for (int output = 0; output < padded; output++) {
            const int64_t place = row * padded + output;
            expect(full + " times given", place, sink.times[place], computes ? 1 : 0);
            if (!computes) continue;
            const float wanted = output < layer.outputs ? expected[row * layer.outputs + output] : 0.0f;
            expect(full + " y", place, sink.y[place], wanted);
        }
    }
    for (int port = 0; port < PORTS; port++) expect(full + " left in port", port, ports[port].empty(), true);
    expect(full + " port beats", 0, shape.port_beats(), (int)streams[0].size());

    // A pair of outputs of a row takes a group clock for every 16 inputs.
    const int64_t products = (int64_t)computing * (padded / 2) * layer.chunks() * (layer.int4 ? 2 : 1);
    expect(full + " busy beats", 0, busy_beats - 1000, products);
    const int64_t least = std::max((int64_t)streams[0].size(), (products + GROUPS * PORTS - 1) / (GROUPS * PORTS));
    expect(full + " not faster than its ports and groups", 0, clocks >= least, true);
}

void check_all(const std::string& name, const Layer& layer, const Operand& operand, const Streams& streams,
               const std::vector<float>& expected) {
    check<1>(name, layer, operand, streams, expected);
    check<3>(name, layer, operand, streams, expected);
    check<8>(name, layer, operand, streams, expected);
}

std::vector<float> reference(const Layer& layer, const Operand& operand) {
    std::vector<float> y;
    for (int row = 0; row < operand.rows; row++) {
        for (int output = 0; output < layer.outputs; output++) {
            int64_t sum = 0;
            for (int input = 0; input < layer.inputs; input++) {
                sum += operand.x[row * layer.inputs + input] * layer.weight(output, input);
            }
            const float scaled = (float)sum * layer.scale[output];
            const float product = scaled * operand.scale[row];
            y.push_back(layer.has_bias ? product + layer.bias[output] : product);
        }
    }
    return y;
}

void check_shape(Random& random, int inputs, int outputs, bool int4, bool bias) {
    const Layer layer = random_layer(random, inputs, outputs, int4, bias);
    Streams streams;
    for (int port = 0; port < PORTS; port++) streams.push_back(port_stream(layer, port));
    for (const int rows : {1, 2, 5, 10, 32}) {
        const uint32_t all = rows == 32 ? 0xFFFFFFFFu : (1u << rows) - 1u;
        for (const uint32_t index : {all, (uint32_t)random.next() & all, 1u << random.between(0, rows - 1), 0u}) {
            for (const bool reassign : {true, false}) {
                const Operand operand = random_operand(random, rows, inputs, index, reassign);
                const std::string name = std::string(int4 ? "int4 " : "int8 ") + (bias ? "biased " : "") + std::to_string(outputs) + " x " +
                                         std::to_string(inputs) + ", rows " + std::to_string(rows) + ", index " +
                                         std::to_string(index) + (reassign ? ", reassigned" : "");
                check_all(name, layer, operand, streams, reference(layer, operand));
            }
        }
    }
}

void seeded() {
    Random random(18);
    for (const bool int4 : {false, true}) {
        for (const int inputs : {16, 100}) {
            for (const int outputs : {40, 48, 75}) check_shape(random, inputs, outputs, int4, outputs != 48);
        }
        check_shape(random, 256, 8, int4, false);
        check_shape(random, 32, 96, int4, true);
        check_shape(random, 65, 7, int4, false);
        check_shape(random, 16, 7, int4, true);  // more beats of words than of weights
    }
    Layer largest = random_layer(random, CAPACITY, 32, false, false);
    std::fill(largest.values.begin(), largest.values.end(), -127);
    Operand operand = random_operand(random, 2, CAPACITY, 3u, true);
    std::fill(operand.x.begin(), operand.x.end(), (int8_t)127);
    Streams streams;
    for (int port = 0; port < PORTS; port++) streams.push_back(port_stream(largest, port));
    check_all("largest sums", largest, operand, streams, reference(largest, operand));
}

void golden(const Case& one) {
    const Layer layer = {(int)one.number("inputs"), (int)one.number("outputs"), one.number("int4") != 0, {}, {}, {},
                         one.number("bias") != 0, {}};
    const Operand operand = {(int)one.number("rows"), one.bytes("x"), one.floats("x_scale"),
                             (uint32_t)one.number("index"), one.number("reassign") != 0};
    const std::vector<int8_t> bytes = one.bytes("stream");  // (ports, beats, 16)
    const size_t beats = bytes.size() / 16 / PORTS;
    Streams streams(PORTS);
    for (size_t beat = 0; beat < PORTS * beats; beat++) streams[beat / beats].push_back(beat_of(&bytes[16 * beat]));
    check_all(one.name, layer, operand, streams, one.floats("y"));
}

}  // namespace

int main(int argc, char** argv) { return run("quant_linear", argc, argv, seeded, golden); }
