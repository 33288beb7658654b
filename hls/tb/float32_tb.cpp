// Test bench of float32.h.
#include <fastcar/float32.h>

#include "bench.h"

using namespace bench;
using fastcar::float_of;

namespace {

int32_t rounded(float value) {
    if (std::fabs(value) >= 2147483648.0f) return value < 0 ? -INT32_MAX : INT32_MAX;
    return (int32_t)nearest_even(value);
}

void check_rounding(float value) {
    expect("round_half_even", fastcar::bits_of(value), fastcar::round_half_even(value), rounded(value));
}

void seeded_rounding() {
    Random random(11);
    for (int whole = -70000; whole <= 70000; whole++) {
        for (const float part : {0.0f, 0.25f, 0.5f, 0.75f}) check_rounding((float)whole + part);
    }
    for (int round = 0; round < 50000; round++) {
        check_rounding(random.wide(-30, 36));
        const float middle = (float)random.between(-(1 << 22), 1 << 22) + 0.5f;
        check_rounding(middle);
        check_rounding(std::nextafter(middle, 1e30f));
        check_rounding(std::nextafter(middle, -1e30f));
    }
    for (const float value : {0.0f, -0.0f, 8388607.5f, 8388608.0f, 16777217.0f, 2147483520.0f, 2147483648.0f,
                              -2147483648.0f, 3e38f, -3e38f, 1e-38f}) {
        check_rounding(value);
    }
}

// value = mantissa * 2^(exponent - 24), root = r * 2^(root_exponent - 24), both integers of 24 bits. With the value
// brought to the unit of root^2, the root is the nearest one exactly when (2r - 1)^2 < 4 value < (2r + 1)^2.
void check_root(float value) {
    const float root = fastcar::square_root(value);
    int exponent, root_exponent;
    const int64_t mantissa = (int64_t)std::ldexp(std::frexp(value, &exponent), 24);
    const int64_t r = (int64_t)std::ldexp(std::frexp(root, &root_exponent), 24);
    const int shift = exponent - 2 * root_exponent + 24;
    if (shift >= 23 && shift <= 25) {  // else the exponent alone is wrong
        const int64_t radicand = mantissa << shift;
        if ((2 * r - 1) * (2 * r - 1) < 4 * radicand && 4 * radicand < (2 * r + 1) * (2 * r + 1)) return;
    }
    expect("square_root", fastcar::bits_of(value), root, std::sqrt(value));
    throw std::runtime_error("square_root of " + shown(value) + " is not the nearest, nor is the library's");
}

void seeded_roots() {
    Random random(12);
    for (uint32_t mantissa = 0; mantissa < 0x800000u; mantissa += 7) {  // both parities of the exponent
        check_root(float_of(0x3F800000u | mantissa));
        check_root(float_of(0x40000000u | mantissa));
    }
    for (const uint32_t exponent : {1u, 2u, 60u, 126u, 127u, 128u, 200u, 253u, 254u}) {
        for (const uint32_t mantissa : {0u, 1u, 2u, 0x400000u, 0x7FFFFEu, 0x7FFFFFu}) {
            check_root(float_of(exponent << 23 | mantissa));
        }
    }
    for (int whole = 1; whole < 4096; whole++) {
        expect("root of a square", whole, fastcar::square_root((float)whole * (float)whole), (float)whole);
    }
    for (int round = 0; round < 100000; round++) check_root(std::fabs(random.wide(-120, 120)));
}

void seeded_formats() {
    for (uint32_t bits = 0; bits < 65536; bits++) {
        const int exponent = (int)(bits >> 10 & 31);
        if (exponent == 31) continue;  // not finite
        const int mantissa = (int)(bits & 1023) + (exponent > 0 ? 1024 : 0);
        const float magnitude = std::ldexp((float)mantissa, (exponent > 0 ? exponent : 1) - 25);
        expect("half", bits, fastcar::from_half((uint16_t)bits), bits >> 15 ? -magnitude : magnitude);
        expect("bfloat16", bits, fastcar::bits_of(fastcar::from_bfloat16((uint16_t)bits)), bits << 16);
        expect("bfloat16 of itself", bits, (uint32_t)fastcar::to_bfloat16(float_of(bits << 16)), bits);
        const uint32_t even = bits + (bits & 1u);
        expect("bfloat16 below a tie", bits, (uint32_t)fastcar::to_bfloat16(float_of(bits << 16 | 0x7FFFu)), bits);
        expect("bfloat16 of a tie", bits, (uint32_t)fastcar::to_bfloat16(float_of(bits << 16 | 0x8000u)), even);
        expect("bfloat16 above a tie", bits, (uint32_t)fastcar::to_bfloat16(float_of(bits << 16 | 0x8001u)), bits + 1u);
    }
}

void check_order(float a, float b) {
    const uint32_t key_a = fastcar::ordered_key(a);
    const uint32_t key_b = fastcar::ordered_key(b);
    expect("order of " + shown(a) + " and " + shown(b), 0, (key_a > key_b) - (key_a < key_b), (a > b) - (a < b));
    expect("value of the key", 0, fastcar::from_ordered_key(key_a), a == 0.0f ? 0.0f : a);
}

void seeded_keys() {
    Random random(13);
    const std::vector<float> special = {0.0f, -0.0f, 1e-45f, -1e-45f, 1.0f, -1.0f, 3.4e38f, -3.4e38f};
    for (const float a : special) {
        for (const float b : special) check_order(a, b);
    }
    for (int round = 0; round < 50000; round++) {
        const float a = random.wide(-4, 4);
        check_order(a, random.chance(30) ? std::nextafter(a, 0.0f) : random.wide(-120, 120));
    }
    for (int round = 0; round < 1000; round++) {
        const int32_t value = (int32_t)random.between(-400, 400);
        expect("clamp", value, fastcar::clamp(value, -128, 127), value < -128 ? -128 : value > 127 ? 127 : value);
        const float real = random.wide(-100, 100);
        expect("absolute", round, fastcar::absolute(real), std::fabs(real));
    }
}

void seeded() {
    seeded_rounding();
    seeded_roots();
    seeded_formats();
    seeded_keys();
}

void golden(const Case& one) {
    const std::vector<float> x = one.floats("x");
    const std::vector<int64_t> nearest = one.integers("rounded");
    const std::vector<float> root = one.floats("root");
    const std::vector<int64_t> bfloat16 = one.integers("bfloat16");
    const std::vector<int64_t> half = one.integers("half");
    const std::vector<float> of_half = one.floats("of_half");
    for (size_t index = 0; index < x.size(); index++) {
        const int64_t place = (int64_t)index;
        expect(one.name + " rounded", place, (int64_t)fastcar::round_half_even(x[index]), nearest[index]);
        expect(one.name + " root", place, fastcar::square_root(std::fabs(x[index])), root[index]);
        expect(one.name + " bfloat16", place, (int64_t)fastcar::to_bfloat16(x[index]), bfloat16[index]);
        expect(one.name + " half", place, fastcar::from_half((uint16_t)half[index]), of_half[index]);
    }
}

}  // namespace

int main(int argc, char** argv) { return run("float32", argc, argv, seeded, golden); }
