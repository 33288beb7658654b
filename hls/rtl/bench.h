// What the co-simulation testbenches share: a seeded generator, bits of the module's ports, the clock, how they fail.
#ifndef FASTCAR_RTL_TB_BENCH_H
#define FASTCAR_RTL_TB_BENCH_H

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "Vdut.h"
#include "verilated.h"

// splitmix64: any seed will do.
struct Random {
    uint64_t state;

    uint64_t next() {
        uint64_t z = (state += 0x9E3779B97F4A7C15u);
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        return z ^ (z >> 31);
    }
    int below(int n) { return (int)((next() >> 33) % (uint64_t)n); }
    bool chance(int of_16) { return below(16) < of_16; }
};

// Bits [low, low + width) of a port, width <= 32: up to 64 bits it is an integer, else an array of 32-bit words.
template <typename Port>
uint32_t bits(const Port& port, int low, int width) {
    return (uint32_t)((uint64_t)port >> low) & (uint32_t)((1ull << width) - 1);
}
template <std::size_t WORDS>
uint32_t bits(const VlWide<WORDS>& port, int low, int width) {
    uint64_t pair = port[low / 32];
    if (low / 32 + 1 < (int)WORDS) pair |= (uint64_t)port[low / 32 + 1] << 32;
    return (uint32_t)(pair >> (low % 32)) & (uint32_t)((1ull << width) - 1);
}

[[noreturn]] inline void fail(const char* format, ...) {
    std::va_list arguments;
    va_start(arguments, format);
    std::fputs("MISMATCH ", stdout);
    std::vprintf(format, arguments);
    std::fputs("\n", stdout);
    va_end(arguments);
    std::fflush(stdout);
    std::_Exit(1);
}

// The module with its clock. Registers nobody resets start with random values.
struct Bench {
    VerilatedContext context;
    Vdut dut{&context};
    long long clocks = 0;

    explicit Bench(uint64_t seed) {
        context.randReset(2);
        context.randSeed((int)(seed % 0x7FFFFFFF) + 1);
    }
    // Outputs as they follow from the inputs of this clock.
    void settle() {
        dut.ap_clk = 0;
        dut.eval();
    }
    void edge() {
        dut.ap_clk = 1;
        dut.eval();
        clocks++;
    }
    void reset() {
        dut.ap_rst = 1;
        dut.ap_start = 0;
        settle();
        edge();
        dut.ap_rst = 0;
    }
};

#endif
