// Co-simulation of drs_unit, built with PARAMETER_GROUPS groups, with its C++ function: drs_unit_tb VECTORS SEED
//
// A vector is one decision. Corners first, without stalls: all rows, the indices empty, full, alternating, lowest and
// highest row alone, under both mappings; then random ones with random ap_ce, wave_ready and ap_continue and now and
// then a reset. Every wave, skip, count, the mapping and the cost in clocks (those without a stall) must be equal.
#include "drs_waves.h"
#include "bench.h"

#include <vector>

namespace {

constexpr int GROUPS = PARAMETER_GROUPS;  // as the module was built
constexpr int ITEM_BITS = fastcar::ITEM_BITS;

struct Decision {
    uint32_t index;
    int rows, pairs;
    bool reassign;
};

std::vector<Decision> corners() {
    std::vector<Decision> all;
    for (int rows = 1; rows <= 32; rows++)
        for (const uint32_t index : {0u, ~0u, 0x55555555u, 0xAAAAAAAAu, 1u, 1u << (rows - 1), ~0u << (rows / 2)})
            for (const int pairs : {1, 2, 4, 63, 64})
                for (const bool reassign : {true, false}) all.push_back({index, rows, pairs, reassign});
    return all;
}

// Mostly short decisions: what a wave costs to check would hide how many are.
Decision random_decision(Random& random) {
    uint32_t index = (uint32_t)random.next();
    const int density = random.below(4);
    if (density == 1) index &= (uint32_t)random.next() & (uint32_t)random.next();
    if (density == 2) index |= (uint32_t)random.next();
    const int rows = random.chance(4) ? 32 : 1 + random.below(32);
    const int pairs = random.below(64) == 0 ? 1 + random.below(64) : 1 + random.below(4);
    return {index, rows, pairs, random.chance(12)};
}

template <typename Port>
std::string wave_text(const Port& wave) {
    std::string text = bits(wave, GROUPS * ITEM_BITS, 1) ? "last" : "more";
    for (int g = 0; g < GROUPS; g++) {
        char item[40];
        std::snprintf(item, sizeof item, " %d:(busy %u row %u pair %u)", g, bits(wave, ITEM_BITS * g + 11, 1),
                      bits(wave, ITEM_BITS * g, 5), bits(wave, ITEM_BITS * g + 5, 6));
        text += item;
    }
    return text;
}

std::string text(const Decision& d) {
    char text[80];
    std::snprintf(text, sizeof text, "index 0x%08x rows %d pairs %d reassign %d", d.index, d.rows, d.pairs, d.reassign);
    return text;
}

struct DrsBench : Bench {
    Random random;
    hls::stream<fastcar::wave_t<GROUPS>> stream;
    long long decisions = 0, waves = 0;
    bool quiet = true;

    explicit DrsBench(uint64_t seed) : Bench(seed), random{seed + 1} {}

    void stalls() {
        dut.ap_ce = quiet || random.chance(15);
        dut.wave_ready = quiet || random.chance(12);
        dut.ap_continue = quiet || random.chance(12);
        settle();
    }

    void start(const Decision& d) {
        dut.index = d.index;
        dut.rows = (uint8_t)d.rows;
        dut.pairs = (uint8_t)d.pairs;
        dut.reassign = d.reassign;
        dut.ap_start = 1;
        for (bool taken = false; !taken;) {
            stalls();
            taken = dut.ap_ce;
            if ((bool)dut.ap_ready != taken || dut.ap_done || dut.wave_valid || dut.ap_idle)
                fail("%s: ap_ready %d ap_done %d wave_valid %d ap_idle %d where the unit is free, ap_ce %d",
                     text(d).c_str(), dut.ap_ready, dut.ap_done, dut.wave_valid, dut.ap_idle, dut.ap_ce);
            edge();
        }
        // The unit has latched its inputs.
        dut.ap_start = 0;
        dut.index = (uint32_t)random.next();
        dut.rows = (uint8_t)random.below(64);
        dut.pairs = (uint8_t)random.below(128);
        dut.reassign = random.chance(8);
    }

    void compare_wave(const Decision& d, long long number) {
        const fastcar::wave_t<GROUPS> expected = stream.read();
        VlWide<4> words = {};
        for (int bit = 0; bit <= GROUPS * ITEM_BITS; bit++) words[bit / 32] |= (uint32_t)expected[bit] << (bit % 32);
        for (int low = 0; low <= GROUPS * ITEM_BITS; low += 32) {
            const int width = GROUPS * ITEM_BITS + 1 - low < 32 ? GROUPS * ITEM_BITS + 1 - low : 32;
            if (bits(dut.wave, low, width) != bits(words, low, width))
                fail("%s: wave %lld is %s, expected %s", text(d).c_str(), number, wave_text(dut.wave).c_str(),
                     wave_text(words).c_str());
        }
    }

    void decide(const Decision& d) {
        bool skip;
        ap_uint<6> count;
        ap_uint<160> mapping;
        fastcar::drs_waves<GROUPS>(d.index, d.rows, d.pairs, d.reassign, skip, count, mapping, stream);
        const long long total = (long long)stream.size();
        const long long first = total ? d.rows + GROUPS + 2 : d.rows + 1;  // clocks to the first wave or ap_done

        start(d);
        const long long reset_after = !quiet && random.below(1 << 10) == 0 ? random.below(80) : -1;
        long long active = 0, taken = 0;
        for (;;) {
            stalls();
            if (active == reset_after) return abandon();
            if (dut.ap_ready || dut.ap_idle) fail("%s: ap_ready or ap_idle while at work", text(d).c_str());
            if (dut.ap_ce) active++;
            const bool due = taken < total && active >= first + taken;
            if ((bool)dut.wave_valid != (due && dut.ap_ce))
                fail("%s: wave_valid is %d in active clock %lld, ap_ce %d, after %lld of %lld waves", text(d).c_str(),
                     dut.wave_valid, active, dut.ap_ce, taken, total);
            const bool done = taken == total && active + !dut.ap_ce >= first + total;
            if ((bool)dut.ap_done != done)
                fail("%s: ap_done is %d in active clock %lld after %lld of %lld waves", text(d).c_str(), dut.ap_done,
                     active, taken, total);
            if (done) break;
            if (dut.wave_valid && dut.wave_ready) {
                compare_wave(d, taken);
                taken++;
            } else if (dut.wave_valid) {
                active--;  // held back by the receiver
            }
            edge();
        }
        if (!dut.skip_ap_vld || !dut.count_ap_vld || !dut.mapping_ap_vld || (bool)dut.skip != skip || dut.count != count)
            fail("%s: skip %d count %d, expected %d %d", text(d).c_str(), dut.skip, dut.count, skip, (int)count);
        for (int j = 0; j < 32; j++)
            if (bits(dut.mapping, 5 * j, 5) != mapping.range(5 * j + 4, 5 * j).to_uint())
                fail("%s: mapping[%d] is %u, expected %u", text(d).c_str(), j, bits(dut.mapping, 5 * j, 5),
                     mapping.range(5 * j + 4, 5 * j).to_uint());
        for (bool free = false; !free; stalls()) {
            free = dut.ap_ce && dut.ap_continue;
            if (!dut.ap_done) fail("%s: ap_done fell before ap_continue", text(d).c_str());
            edge();
        }
        if (!dut.ap_idle || dut.ap_done) fail("%s: not idle after ap_continue", text(d).c_str());
        decisions++;
        waves += total;
    }

    void abandon() {
        while (!stream.empty()) stream.read();
        reset();
    }
};

}  // namespace

int main(int, char** arguments) {
    const long long vectors = std::atoll(arguments[1]);
    DrsBench bench((uint64_t)std::atoll(arguments[2]));
    bench.dut.ap_ce = 1;
    bench.reset();
    for (const Decision& decision : corners()) bench.decide(decision);
    while (bench.decisions < vectors) {
        bench.quiet = bench.random.chance(4);
        bench.decide(random_decision(bench.random));
    }
    std::printf("vectors %lld comparisons %lld clocks %lld\n", bench.decisions,
                bench.waves * GROUPS + bench.decisions * 34, bench.clocks);
    return 0;
}
