// Reference of QuantizeRows, which the norms end with, and how a quantized row is compared.
#ifndef FASTCAR_TB_ROWS_H
#define FASTCAR_TB_ROWS_H

#include "bench.h"

namespace bench {

struct QuantizedRow {
    std::vector<int64_t> values;
    float scale;
};

inline float peak_of(const std::vector<float>& x) {
    float peak = std::ldexp(1.0f, -40);
    for (const float value : x) peak = std::fabs(value) > peak ? std::fabs(value) : peak;
    return peak;
}

inline QuantizedRow quantized(const std::vector<float>& x) {
    QuantizedRow row;
    row.scale = peak_of(x) / 127.0f;
    for (const float value : x) row.values.push_back(nearest_even(value / row.scale));
    return row;
}

// Lanes of the last beat beyond the row are 0, beats behind it are as they were.
inline void expect_row(const std::string& name, const std::vector<beat_t>& y, float scale, const QuantizedRow& expected,
                       const beat_t& untouched) {
    const int n = (int)expected.values.size();
    for (int beat = 0; beat < (int)y.size(); beat++) {
        for (int lane = 0; lane < 16; lane++) {
            const int index = beat * 16 + lane;
            const bool written = beat < (n + 15) / 16;
            const int64_t wanted = index < n ? expected.values[index] : written ? 0 : lane_of(untouched, lane);
            expect(name, index, (int64_t)lane_of(y[beat], lane), wanted);
        }
    }
    expect(name + " scale", 0, scale, expected.scale);
}

// A row of a random size and range, with zeros and values that share their magnitude.
inline std::vector<float> random_row(Random& random, int n) {
    const int exponent = (int)random.between(-30, 30);
    std::vector<float> x(n);
    for (float& value : x) value = random.chance(10) ? 0.0f : random.wide(exponent - 6, exponent);
    if (n > 2) x[n - 1] = -x[n / 2];
    return x;
}

// Quotients at the middle of two integers or beside it: a product with the inverse would fall on the other side.
inline std::vector<float> near_ties(Random& random, int n, int divisor) {
    std::vector<float> x(n, std::fabs(random.wide(-20, 20)));
    const float scale = x[0] / (float)divisor;
    for (int index = 1; index < n; index++) {
        const float middle = ((float)random.between(1 - divisor, divisor - 2) + 0.5f) * scale;
        x[index] = random.chance(50) ? middle : std::nextafter(middle, random.chance(50) ? 1e30f : -1e30f);
    }
    return x;
}

}  // namespace bench

#endif
