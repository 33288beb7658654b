// Test bench of layer_norm.h.
#include <fastcar/layer_norm.h>

#include <algorithm>

#include "rows.h"

using namespace bench;

namespace {

constexpr int CAPACITY = 512;

struct Affine {
    std::vector<float> gain;
    std::vector<float> bias;
    float eps;
};

template <int VECTOR>
void check(const std::string& name, const std::vector<float>& x, const Affine& affine, const QuantizedRow& expected) {
    std::vector<float> memory[4];
    for (std::vector<float>& values : memory) values.assign(CAPACITY, 3.0e38f);
    std::copy(x.begin(), x.end(), memory[0].begin());
    std::copy(affine.gain.begin(), affine.gain.end(), memory[1].begin());
    std::copy(affine.bias.begin(), affine.bias.end(), memory[2].begin());
    const beat_t untouched = 0x5A;
    std::vector<beat_t> y(CAPACITY / 16, untouched);
    const float scale =
        fastcar::layer_norm<VECTOR, CAPACITY>(memory[0].data(), memory[1].data(), memory[2].data(), affine.eps,
                                              memory[3].data(), y.data(), (int)x.size());
    expect_row(name + ", vector " + std::to_string(VECTOR), y, scale, expected, untouched);
}

void check_all(const std::string& name, const std::vector<float>& x, const Affine& affine,
               const QuantizedRow& expected) {
    check<1>(name, x, affine, expected);
    check<8>(name, x, affine, expected);
    check<16>(name, x, affine, expected);
}

// n^2 var(x) as the sum over pairs of their squared differences, each pair once.
int64_t spread(const std::vector<int64_t>& integers) {
    int64_t total = 0;
    for (size_t one = 0; one < integers.size(); one++) {
        for (size_t other = 0; other < one; other++) {
            total += (integers[one] - integers[other]) * (integers[one] - integers[other]);
        }
    }
    return total;
}

QuantizedRow reference(const std::vector<float>& x, const Affine& affine) {
    const float step = peak_of(x) / 32767.0f;
    std::vector<int64_t> integers;
    for (const float value : x) integers.push_back(nearest_even(value / step));
    const float n = (float)x.size();
    const float relative_eps = affine.eps / (step * step);
    const float eps_n2 = n * n * relative_eps;
    const float root = std::sqrt(std::max((float)spread(integers) + eps_n2, 1.0f));
    std::vector<float> y;
    for (size_t index = 0; index < x.size(); index++) {
        int64_t centered = 0;
        for (const int64_t other : integers) centered += integers[index] - other;
        const float turned = (float)centered / root * affine.gain[index];
        y.push_back(turned + affine.bias[index]);
    }
    return quantized(y);
}

void seeded() {
    Random random(3);
    for (const int n : {1, 2, 16, 17, 96, 100, 511, 512}) {
        for (int round = 0; round < 8; round++) {
            // Without a bias every bit of the root is in the scale, also where eps is most of it.
            const float bias = round % 2 == 0 ? 0.5f : 0.0f;
            const Affine affine = {random.reals(n, 3.0f), random.reals(n, bias), round < 3 ? 1e-5f : 1e-6f};
            std::vector<float> x = round < 4 ? random_row(random, n) : near_ties(random, n, 32767);
            const float offset = round % 4 < 2 ? 0.0f : 8.0f * peak_of(x);  // a mean far above the deviation
            for (float& value : x) value += offset;
            check_all("row of " + std::to_string(n), x, affine, reference(x, affine));
        }
        const Affine affine = {random.reals(n, 1.0f), random.reals(n, 1.0f), 1e-5f};
        const std::vector<float> zeros(n, 0.0f);
        check_all("zeros", zeros, affine, reference(zeros, affine));
        for (const float value : {-2.5f, 1e9f}) {  // no variance at all; eps vanishes beside the larger one
            const std::vector<float> equal(n, value);
            check_all("equal values", equal, affine, reference(equal, affine));
        }
    }
}

void golden(const Case& one) {
    const Affine affine = {one.floats("gain"), one.floats("bias"), one.real("eps")};
    check_all(one.name, one.floats("x"), affine, QuantizedRow{one.integers("values"), one.real("scale")});
}

}  // namespace

int main(int argc, char** argv) { return run("layer_norm", argc, argv, seeded, golden); }
