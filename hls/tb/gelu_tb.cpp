// Test bench of gelu.h.
#include <fastcar/gelu.h>

#include "bench.h"

using namespace bench;

namespace {

// Phi of the middle of the 16 indices that share an entry, in 2^-16; erfc keeps its digits in the lower tail.
int phi_entry(int bin) {
    const double middle = (16.0 * bin + 7.5 - 32768.0) / 2048.0;
    const int64_t entry = nearest_even(32768.0 * std::erfc(-middle / std::sqrt(2.0)));
    return entry > 65535 ? 65535 : (int)entry;
}

// Bins lie half an index below the multiples of 1/128, a tie going to the even index.
float reference(float x) {
    const double scaled = (double)x * 2048.0;
    const int bin = scaled < -32768.0 ? 0 : scaled > 32767.0 ? 4095 : (int)((nearest_even(scaled) + 32768) / 16);
    return x * std::ldexp((float)phi_entry(bin), -16);
}

void check(float x) { expect("value", fastcar::bits_of(x), fastcar::gelu(x), reference(x)); }

void seeded() {
    Random random(16);
    for (int bin = 0; bin < 4096; bin++) expect("table", bin, (int)fastcar::PHI_TABLE[bin], phi_entry(bin));
    for (int index = -32800; index <= 32800; index++) {  // every index, and the ties between two
        check((float)index / 2048.0f);
        check(((float)index + 0.5f) / 2048.0f);
    }
    for (int round = 0; round < 20000; round++) check(random.wide(-20, 8));
    for (const float x : {16.0f, -16.0f, 19.6f, -19.6f, 1.0e9f, -1.0e9f, 1.0e30f, -1.0e30f, 0.0f, -0.0f}) check(x);
}

void golden(const Case& one) {
    std::vector<float> y;
    for (const float x : one.floats("x")) y.push_back(fastcar::gelu(x));
    expect_all(one.name, y, one.floats("y"));
}

}  // namespace

int main(int argc, char** argv) { return run("gelu", argc, argv, seeded, golden); }
