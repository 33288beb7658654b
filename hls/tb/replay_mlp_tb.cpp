// Test bench of replay_mlp.h: what becomes of the pairs the linear layers give, and how outputs are cached.
#include <fastcar/replay_mlp.h>

#include "bench.h"

using namespace bench;

namespace {

constexpr int CAPACITY = 48;
constexpr float UNTOUCHED = -77.0f;

// Of the two bfloat16 around a value, the nearer one; of two equally near ones the even one.
uint16_t nearest_bfloat16(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    const uint16_t inner = (uint16_t)(bits >> 16);  // towards zero
    const uint16_t outer = (uint16_t)(inner + 1);
    const double to_inner = std::fabs((double)value - (double)fastcar::float_of((uint32_t)inner << 16));
    const double to_outer = std::fabs((double)fastcar::float_of((uint32_t)outer << 16) - (double)value);
    if (to_inner == to_outer) return inner % 2 == 0 ? inner : outer;
    return to_inner < to_outer ? inner : outer;
}

void check_rounding(float value) {
    expect("bfloat16", fastcar::bits_of(value), (int)fastcar::to_bfloat16(value), (int)nearest_bfloat16(value));
}

// A sink is given whole tiles; outputs beyond the layer's must not reach memory.
template <typename Sink, typename Expected>
void check_sink(const std::string& name, Random& random, int outputs, Expected expected) {
    static float memory[2][CAPACITY];
    for (auto& row : memory) std::fill(row, row + CAPACITY, UNTOUCHED);
    Sink sink = {memory, outputs};
    std::vector<float> given = random.reals(CAPACITY, 20.0f);
    for (int output = 0; output < CAPACITY; output += 2) sink(1, output, given[output], given[output + 1]);
    for (int index = 0; index < CAPACITY; index++) {
        expect(name + " row 0", index, memory[0][index], UNTOUCHED);
        expect(name, index, memory[1][index], expected(given, index));
    }
}

void check_sinks(Random& random) {
    for (const int outputs : {8, 34, 48}) {
        const std::string name = std::to_string(outputs) + " outputs";
        check_sink<fastcar::SwigluSink<CAPACITY>>("swiglu, " + name, random, outputs, [=](auto& given, int index) {
            return index < outputs / 2 ? fastcar::swiglu(given[2 * index], given[2 * index + 1]) : UNTOUCHED;
        });
    }
    for (const int outputs : {7, 33, 48}) {
        const std::string name = std::to_string(outputs) + " outputs";
        check_sink<fastcar::RoundedSink<CAPACITY>>("rounded, " + name, random, outputs, [=](auto& given, int index) {
            return index < outputs ? fastcar::float_of((uint32_t)nearest_bfloat16(given[index]) << 16) : UNTOUCHED;
        });
    }
}

// The beat's halves in memory order.
void check_packing(const std::string& name, const std::vector<float>& values, const std::vector<int64_t>& expected) {
    for (size_t first = 0; first + 8 <= values.size(); first += 8) {
        const beat_t beat = fastcar::pack_bfloat16(&values[first]);
        for (int half = 0; half < 8; half++) {
            const int64_t bits = beat.range(16 * half + 15, 16 * half).to_uint();
            expect(name, (int64_t)first + half, bits, expected[first + half]);
            const float value = fastcar::float_of((uint32_t)bits << 16);
            expect(name + " unpacked", (int64_t)first + half, fastcar::unpack_bfloat16(beat, half), value);
        }
    }
}

void seeded() {
    Random random(8);
    for (int round = 0; round < 50000; round++) check_rounding(random.wide(-100, 100));
    for (uint32_t upper = 0x3F00u; upper < 0x4100u; upper++) {  // ties and their neighbours
        for (const uint32_t low : {0x0000u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
            check_rounding(fastcar::float_of(upper << 16 | low));
            check_rounding(fastcar::float_of(0x80000000u | upper << 16 | low));
        }
    }
    check_rounding(0.0f);
    check_rounding(-0.0f);
    for (int round = 0; round < 20; round++) check_sinks(random);
    std::vector<float> values;
    std::vector<int64_t> expected;
    for (int index = 0; index < 512; index++) {
        values.push_back(random.wide(-30, 30));
        expected.push_back(nearest_bfloat16(values.back()));
    }
    check_packing("packing", values, expected);
}

void golden(const Case& one) { check_packing(one.name, one.floats("x"), one.integers("bits")); }

}  // namespace

int main(int argc, char** argv) { return run("replay_mlp", argc, argv, seeded, golden); }
