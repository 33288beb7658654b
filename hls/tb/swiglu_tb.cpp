// Test bench of swiglu.h.
#include <fastcar/swiglu.h>

#include "bench.h"

using namespace bench;

namespace {

// Bin of x among 4096 bins of 1/128 over -16 .. 16, in binary64, where 2048 x is exact.
int bin_of(float x) {
    const double scaled = (double)x * 2048.0;
    if (scaled <= -32768.0) return 0;
    if (scaled >= 32767.0) return 4095;
    return (int)((nearest_even(scaled) + 32768) / 16);
}

// sigmoid of the middle of the 16 indices that share an entry, in 2^-16.
int sigmoid_entry(int bin) {
    const double middle = (16.0 * bin + 7.5 - 32768.0) / 2048.0;
    const int64_t entry = nearest_even(65536.0 / (1.0 + std::exp(-middle)));
    return entry > 65535 ? 65535 : (int)entry;
}

void check(float gate, float up) {
    expect("index of the gate", fastcar::bits_of(gate), fastcar::activation_index(gate), bin_of(gate));
    const float sigmoid = std::ldexp((float)sigmoid_entry(bin_of(gate)), -16);
    const float scaled = gate * sigmoid;
    expect("value of the gate", fastcar::bits_of(gate), fastcar::swiglu(gate, up), scaled * up);
}

void seeded() {
    Random random(4);
    for (int bin = 0; bin < 4096; bin++) expect("table", bin, (int)fastcar::SIGMOID_TABLE[bin], sigmoid_entry(bin));
    for (int index = -32800; index <= 32800; index++) {  // every index, and the ties between two
        check((float)index / 2048.0f, 1.0f);
        check(((float)index + 0.5f) / 2048.0f, -3.0f);
    }
    for (int round = 0; round < 20000; round++) check(random.wide(-20, 8), random.wide(-10, 10));
    for (const float gate : {16.0f, -16.0f, 19.6f, -19.6f, 1.0e9f, -1.0e9f, 1.0e30f, -1.0e30f, 0.0f, -0.0f}) {
        check(gate, 0.75f);
    }
}

void golden(const Case& one) {
    const std::vector<float> gate = one.floats("gate");
    const std::vector<float> up = one.floats("up");
    std::vector<float> y;
    for (size_t index = 0; index < gate.size(); index++) y.push_back(fastcar::swiglu(gate[index], up[index]));
    expect_all(one.name, y, one.floats("y"));
}

}  // namespace

int main(int argc, char** argv) { return run("swiglu", argc, argv, seeded, golden); }
