// Test bench of quantize_rows.h.
#include <fastcar/quantize_rows.h>

#include "rows.h"

using namespace bench;

namespace {

constexpr int CAPACITY = 128;

// What lies behind the row is larger than the row: reading it would show.
template <int VECTOR>
void check(const std::string& name, const std::vector<float>& x, const QuantizedRow& expected) {
    std::vector<float> memory(CAPACITY, 3.0e38f);
    std::copy(x.begin(), x.end(), memory.begin());
    const beat_t untouched = 0x5A;
    std::vector<beat_t> y(CAPACITY / 16, untouched);
    const float scale = fastcar::quantize_row<VECTOR, CAPACITY>(memory.data(), y.data(), (int)x.size());
    expect_row(name + ", vector " + std::to_string(VECTOR), y, scale, expected, untouched);
}

void check_all(const std::string& name, const std::vector<float>& x, const QuantizedRow& expected) {
    check<1>(name, x, expected);
    check<4>(name, x, expected);
    check<16>(name, x, expected);
}

void seeded() {
    Random random(1);
    for (const int n : {1, 2, 15, 16, 17, 31, 100, 127, 128}) {
        for (int round = 0; round < 20; round++) {
            const std::vector<float> x = random_row(random, n);
            check_all("row of " + std::to_string(n), x, quantized(x));
            const std::vector<float> near = near_ties(random, n, 127);
            check_all("near ties", near, quantized(near));
        }
        const std::vector<float> zeros(n, 0.0f);
        check_all("zeros", zeros, quantized(zeros));
        const std::vector<float> faint(n, std::ldexp(-1.0f, -48));  // below the floor
        check_all("below the floor", faint, quantized(faint));
        std::vector<float> ties(n, 127.0f);  // scale 1: every quotient but the first lies between two integers
        for (int index = 1; index < n; index++) ties[index] = (float)random.between(-127, 126) + 0.5f;
        check_all("ties", ties, quantized(ties));
    }
}

void golden(const Case& one) {
    const std::vector<float> x = one.floats("x");
    check_all(one.name, x, QuantizedRow{one.integers("values"), one.real("scale")});
}

}  // namespace

int main(int argc, char** argv) { return run("quantize_rows", argc, argv, seeded, golden); }
