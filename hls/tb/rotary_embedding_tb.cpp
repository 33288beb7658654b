// Test bench of rotary_embedding.h.
#include <fastcar/rotary_embedding.h>

#include "bench.h"

using namespace bench;

namespace {

constexpr int MAX_HEAD_DIM = 96;
constexpr int MAX_BEATS = 64;

// The heads of a row, of which the first `turned` are rotated.
struct Row {
    int heads;
    int turned;
    int head_dim;
    std::vector<float> x;      // (heads, head_dim)
    std::vector<float> cos;    // (head_dim)
    std::vector<float> sin;    // (head_dim), the first half negative
    std::vector<float> scale;  // (heads)
};

template <int VECTOR>
void check(const std::string& name, const Row& row, const std::vector<int64_t>& expected) {
    const beat_t untouched = 0x5A;
    std::vector<beat_t> y(MAX_BEATS, untouched);
    fastcar::rotate_heads<VECTOR, MAX_HEAD_DIM, MAX_BEATS>(row.x.data(), row.cos.data(), row.sin.data(),
                                                           row.scale.data(), row.heads, row.turned, row.head_dim,
                                                           y.data());
    for (int index = 0; index < 16 * MAX_BEATS; index++) {
        const bool written = index < row.heads * row.head_dim;
        const int64_t wanted = written ? expected[index] : lane_of(untouched, index % 16);
        expect(name + ", vector " + std::to_string(VECTOR), index, (int64_t)lane_of(y[index / 16], index % 16), wanted);
    }
}

void check_all(const std::string& name, const Row& row, const std::vector<int64_t>& expected) {
    check<1>(name, row, expected);
    check<8>(name, row, expected);
    check<16>(name, row, expected);
}

int64_t quantized(float value, float scale) {
    const float quotient = value / scale;
    if (quotient <= -128.0f) return -128;
    if (quotient >= 127.0f) return 127;
    return nearest_even(quotient);
}

// Pairs (i, i + half), each turned by its angle: (a cos - b sin, b cos + a sin).
std::vector<int64_t> reference(const Row& row) {
    const int half = row.head_dim / 2;
    std::vector<float> y = row.x;
    for (int head = 0; head < row.turned; head++) {
        float* low = &y[head * row.head_dim];
        float* high = low + half;
        for (int pair = 0; pair < half; pair++) {
            const float a = low[pair];
            const float b = high[pair];
            const float a_cos = a * row.cos[pair];
            const float b_cos = b * row.cos[pair + half];
            const float a_sin = a * row.sin[pair + half];
            const float b_sin = b * -row.sin[pair];
            low[pair] = a_cos - b_sin;
            high[pair] = b_cos + a_sin;
        }
    }
    std::vector<int64_t> values;
    for (size_t index = 0; index < y.size(); index++) {
        values.push_back(quantized(y[index], row.scale[index / row.head_dim]));
    }
    return values;
}

void seeded() {
    Random random(5);
    for (const int head_dim : {16, 32, 48, 64, 96}) {
        for (const int heads : {1, 3, 10}) {
            for (int turned = 0; turned <= heads; turned++) {
                Row row = {heads, turned, head_dim, random.reals(heads * head_dim, 4.0f), random.reals(head_dim, 1.0f),
                           random.reals(head_dim, 1.0f), {}};
                // From many clipped values to none.
                for (int head = 0; head < heads; head++) row.scale.push_back(0.01f * (float)random.between(1, 6));
                for (int index = 0; index < heads * head_dim; index += 3) {  // quotients beside a tie
                    row.x[index] = ((float)random.between(-127, 126) + 0.5f) * row.scale[index / head_dim];
                }
                const std::string name = std::to_string(turned) + " of " + std::to_string(heads) + " heads of " +
                                         std::to_string(head_dim);
                check_all(name, row, reference(row));
            }
        }
    }
    // Ties, both ends of int8, quotients beyond int32.
    const std::vector<float> x = {0.5f,  1.5f,   2.5f,   -0.5f,   -1.5f,   -2.5f,   126.5f, 127.5f,
                                  -0.0f, 127.0f, 128.0f, -127.5f, -128.0f, -129.0f, 1e20f,  -1e20f};
    for (const int turned : {0, 1}) {
        const Row row = {1, turned, 16, x, std::vector<float>(16, 1.0f), std::vector<float>(16, 0.0f), {1.0f}};
        check_all("ends", row, reference(row));
    }
}

void golden(const Case& one) {
    const Row row = {(int)one.number("heads"), (int)one.number("turned"), (int)one.number("head_dim"), one.floats("x"),
                     one.floats("cos"), one.floats("sin"), one.floats("scale")};
    check_all(one.name, row, one.integers("values"));
}

}  // namespace

int main(int argc, char** argv) { return run("rotary_embedding", argc, argv, seeded, golden); }
