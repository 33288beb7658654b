// Test bench of rms_norm.h.
#include <fastcar/rms_norm.h>

#include "rows.h"

using namespace bench;

namespace {

constexpr int CAPACITY = 512;

template <int VECTOR>
void check(const std::string& name, const std::vector<float>& x, const std::vector<float>& gain, float eps,
           const QuantizedRow& expected) {
    std::vector<float> memory(CAPACITY, 3.0e38f);
    std::vector<float> gains(CAPACITY, 3.0e38f);
    std::vector<float> work(CAPACITY, 3.0e38f);
    std::copy(x.begin(), x.end(), memory.begin());
    std::copy(gain.begin(), gain.end(), gains.begin());
    const beat_t untouched = 0x5A;
    std::vector<beat_t> y(CAPACITY / 16, untouched);
    const float scale = fastcar::rms_norm<VECTOR, CAPACITY>(memory.data(), gains.data(), eps, work.data(), y.data(),
                                                            (int)x.size());
    expect_row(name + ", vector " + std::to_string(VECTOR), y, scale, expected, untouched);
}

void check_all(const std::string& name, const std::vector<float>& x, const std::vector<float>& gain, float eps,
               const QuantizedRow& expected) {
    check<1>(name, x, gain, eps, expected);
    check<8>(name, x, gain, eps, expected);
    check<16>(name, x, gain, eps, expected);
}

// The definition in its own order: integers, their mean square, the root, the scaled row.
QuantizedRow reference(const std::vector<float>& x, const std::vector<float>& gain, float eps) {
    const float step = peak_of(x) / 32767.0f;
    std::vector<float> scaled;
    int64_t squares = 0;
    for (size_t index = 0; index < x.size(); index++) {
        const int64_t integer = nearest_even(x[index] / step);
        squares += integer * integer;
        scaled.push_back((float)integer * gain[index]);
    }
    const float mean = (float)squares / (float)x.size();
    const float relative_eps = eps / (step * step);
    QuantizedRow row = quantized(scaled);
    row.scale = row.scale / std::sqrt(mean + relative_eps);
    return row;
}

void seeded() {
    Random random(2);
    for (const int n : {1, 16, 17, 96, 100, 511, 512}) {
        for (int round = 0; round < 12; round++) {
            const float eps = round % 2 == 0 ? 1e-5f : 1e-6f;
            const std::vector<float> x = round < 6 ? random_row(random, n) : near_ties(random, n, 32767);
            const std::vector<float> gain = random.reals(n, 3.0f);
            check_all("row of " + std::to_string(n), x, gain, eps, reference(x, gain, eps));
        }
        const std::vector<float> gain = random.reals(n, 1.0f);
        const std::vector<float> zeros(n, 0.0f);
        check_all("zeros", zeros, gain, 1e-5f, reference(zeros, gain, 1e-5f));
        const std::vector<float> equal(n, -2.5f);  // the largest sum of squares
        check_all("equal values", equal, gain, 1e-5f, reference(equal, gain, 1e-5f));
    }
}

void golden(const Case& one) {
    check_all(one.name, one.floats("x"), one.floats("gain"), one.real("eps"),
              QuantizedRow{one.integers("values"), one.real("scale")});
}

}  // namespace

int main(int argc, char** argv) { return run("rms_norm", argc, argv, seeded, golden); }
