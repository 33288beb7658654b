// What the test benches share: seeded random numbers, long-hand rounding, exact comparison, golden vectors.
//
// A bench throws at its first mismatch; run() turns that into one line and exit status 1.
#ifndef FASTCAR_TB_BENCH_H
#define FASTCAR_TB_BENCH_H

#include <fastcar/types.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace bench {

using fastcar::beat_t;

// SplitMix64: a seed gives the same numbers on every machine.
class Random {
public:
    explicit Random(uint64_t seed) : state_(seed) {}

    uint64_t next() {
        uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        return z ^ (z >> 31);
    }
    // An integer of low .. high, both included.
    int64_t between(int64_t low, int64_t high) { return low + (int64_t)(next() % (uint64_t)(high - low + 1)); }
    bool chance(int percent) { return between(0, 99) < percent; }
    float real(float limit) { return (float)between(-(1 << 23), 1 << 23) / (float)(1 << 23) * limit; }
    // Magnitudes of 2^low .. 2^high, either sign.
    float wide(int low, int high) {
        const float mantissa = 1.0f + (float)between(0, (1 << 23) - 1) / (float)(1 << 23);
        return std::ldexp(chance(50) ? mantissa : -mantissa, (int)between(low, high - 1));
    }
    std::vector<float> reals(int n, float limit) {
        std::vector<float> values(n);
        for (float& value : values) value = real(limit);
        return values;
    }
    // int8 values, the extremes more often than by chance.
    std::vector<int8_t> bytes(int n, int low = -128, int high = 127) {
        std::vector<int8_t> values(n);
        for (int8_t& value : values) value = (int8_t)(chance(10) ? (chance(50) ? low : high) : between(low, high));
        return values;
    }
    beat_t beat() {
        beat_t beat = 0;
        beat.range(63, 0) = next();
        beat.range(127, 64) = next();
        return beat;
    }

private:
    uint64_t state_;
};

// Nearest integer, ties to even, by looking at the distance to the integer below. |value| < 2^52.
inline int64_t nearest_even(double value) {
    const double below = std::floor(value);
    const double over = value - below;
    const int64_t whole = (int64_t)below;
    if (over == 0.5) return whole % 2 == 0 ? whole : whole + 1;
    return over < 0.5 ? whole : whole + 1;
}

inline beat_t beat_of(const int8_t* bytes) {
    beat_t beat = 0;
    for (int lane = 0; lane < 16; lane++) beat.range(8 * lane + 7, 8 * lane) = (uint8_t)bytes[lane];
    return beat;
}

inline int lane_of(const beat_t& beat, int lane) {
    return (int8_t)beat.range(8 * lane + 7, 8 * lane).to_uint();
}

template <typename T>
bool same(const T& got, const T& expected) {
    return got == expected;
}
inline bool same(float got, float expected) { return std::memcmp(&got, &expected, sizeof(float)) == 0; }

inline std::string shown(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    char text[48];
    std::snprintf(text, sizeof text, "%.9g (0x%08X)", (double)value, (unsigned)bits);
    return text;
}
inline std::string shown(const beat_t& beat) { return beat.to_string(16); }
template <typename T>
std::string shown(const T& value) {
    return std::to_string(value);
}

// Bit for bit; index is the place in what is compared, or the bits of the operand.
template <typename Name, typename T>
void expect(const Name& name, int64_t index, const T& got, const T& expected) {
    if (same(got, expected)) return;
    const std::string place = std::string(name) + ", index " + std::to_string(index);
    throw std::runtime_error(place + ": got " + shown(got) + ", expected " + shown(expected));
}

template <typename T>
void expect_all(const std::string& name, const std::vector<T>& got, const std::vector<T>& expected) {
    expect(name + " size", 0, got.size(), expected.size());
    for (size_t index = 0; index < got.size(); index++) expect(name, (int64_t)index, got[index], expected[index]);
}

struct Array {
    char kind;  // i, u or f
    int size;   // bytes of an item
    std::vector<char> data;
};

// Named arrays of one golden case; see hls/golden.py for the file.
class Case {
public:
    std::string name;
    std::map<std::string, Array> arrays;

    std::vector<int64_t> integers(const std::string& key) const {
        const Array& array = find(key, false);
        std::vector<int64_t> values(array.data.size() / array.size);
        for (size_t index = 0; index < values.size(); index++) {
            uint64_t bits = 0;
            std::memcpy(&bits, &array.data[index * array.size], array.size);
            const int unused = 64 - 8 * array.size;
            values[index] = array.kind == 'i' ? (int64_t)(bits << unused) >> unused : (int64_t)bits;
        }
        return values;
    }
    std::vector<float> floats(const std::string& key) const {
        const Array& array = find(key, true);
        std::vector<float> values(array.data.size() / sizeof(float));
        std::memcpy(values.data(), array.data.data(), array.data.size());
        return values;
    }
    std::vector<int8_t> bytes(const std::string& key) const {
        const Array& array = find(key, false);
        return std::vector<int8_t>(array.data.begin(), array.data.end());
    }
    int64_t number(const std::string& key) const { return integers(key).at(0); }
    float real(const std::string& key) const { return floats(key).at(0); }

private:
    const Array& find(const std::string& key, bool real) const {
        const auto found = arrays.find(key);
        if (found == arrays.end() || (found->second.kind == 'f') != real) {
            throw std::runtime_error("golden case " + name + " has no array " + key);
        }
        return found->second;
    }
};

class GoldenFile {
public:
    explicit GoldenFile(const std::string& path) : file_(path, std::ios::binary) {
        if (!file_) throw std::runtime_error("cannot read " + path);
    }

    std::vector<Case> cases(const std::string& kernel) {
        const bool own = text(8) == "FCGOLDEN" && text(word()) == kernel;
        if (!own) throw std::runtime_error("not golden vectors of " + kernel);
        std::vector<Case> cases(word());
        if (cases.empty()) throw std::runtime_error("no golden case");
        for (Case& one : cases) {
            one.name = text(word());
            for (uint32_t left = word(); left > 0; left--) {
                const std::string name = text(word());
                const std::string type = text(word());  // as NumPy writes it: <f4, |i1
                const int size = type.at(2) - '0';
                const std::string data = text(word() * size);
                one.arrays[name] = Array{type.at(1), size, std::vector<char>(data.begin(), data.end())};
            }
        }
        return cases;
    }

private:
    uint32_t word() {
        const std::string bytes = text(4);
        uint32_t value;
        std::memcpy(&value, bytes.data(), 4);
        return value;
    }
    std::string text(size_t size) {
        std::string bytes(size, '\0');
        if (size == 0) return bytes;
        if (!file_.read(&bytes[0], (std::streamsize)size)) throw std::runtime_error("golden file cut short");
        return bytes;
    }

    std::ifstream file_;
};

// seeded(): the bench's own cases against its own reference; golden(case): one case of the file argv[1] names.
template <typename Seeded, typename Golden>
int run(const char* kernel, int argc, char** argv, Seeded seeded, Golden golden) {
    try {
        if (argc != 2) throw std::runtime_error("expected one argument, the file of golden vectors");
        const std::vector<Case> cases = GoldenFile(argv[1]).cases(kernel);
        for (const Case& one : cases) golden(one);
        seeded();
        std::printf("%s: seeded and %zu golden cases equal\n", kernel, cases.size());
        return 0;
    } catch (const std::exception& failure) {
        std::fprintf(stderr, "%s: %s\n", kernel, failure.what());
        return 1;
    }
}

}  // namespace bench

#endif
