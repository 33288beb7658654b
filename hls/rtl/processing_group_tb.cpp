// Co-simulation of processing_group with its C++ function: processing_group_tb VECTORS SEED
//
// Corner operands first, without stalls, then random ones with random ap_start, ap_ce, ap_continue and now and then a
// reset. Each result must equal the function's, in order, exactly LATENCY enabled clocks after its operands.
#include <ap_int.h>

#include <deque>
#include <vector>

#include "bench.h"

void processing_group(ap_uint<128>, ap_uint<128>, ap_uint<128>, bool, ap_int<20>&, ap_int<20>&);

namespace {

constexpr int LATENCY = BLACKBOX_LATENCY;  // as described to Vitis HLS

struct Lanes {
    uint64_t half[2];

    std::string hex() const {
        char text[40];
        std::snprintf(text, sizeof text, "0x%016llx%016llx", (unsigned long long)half[1], (unsigned long long)half[0]);
        return text;
    }
    ap_uint<128> word() const {
        ap_uint<128> value = half[1];
        return (value << 64) | ap_uint<128>(half[0]);
    }
    void put(VlWide<4>& port) const {
        for (int i = 0; i < 4; i++) port[i] = (uint32_t)(half[i / 2] >> (32 * (i % 2)));
    }
};

struct Operands {
    Lanes weights0, weights1, x;
    bool x_unsigned;
};

struct Expected {
    Operands operands;
    int sum0, sum1;
    long long enabled;
};

Lanes alternating(uint8_t even, uint8_t odd) {
    const uint64_t pair = (uint64_t)even | (uint64_t)odd << 8;
    return {{pair * 0x0001000100010001u, pair * 0x0001000100010001u}};
}

Lanes single(int lane, uint8_t value) {
    Lanes lanes = {{0, 0}};
    lanes.half[lane / 8] = (uint64_t)value << (8 * (lane % 8));
    return lanes;
}

Lanes random_lanes(Random& random) {
    if (random.below(2)) return {{random.next(), random.next()}};
    static const uint8_t EXTREMES[] = {0x80, 0x7F, 0x00, 0xFF};  // -128 or 128, 127, 0, -1 or 255
    Lanes lanes = {{0, 0}};
    for (int lane = 0; lane < 16; lane++) lanes.half[lane / 8] |= (uint64_t)EXTREMES[random.below(4)] << (8 * (lane % 8));
    return lanes;
}

// Every pair of extremes in even and odd lanes of all three operands, equal lanes among them; every lane by itself.
std::vector<Operands> corners() {
    static const uint8_t VALUES[] = {0x80, 0x7F, 0x00, 0xFF, 0x01};
    std::vector<Lanes> patterns;
    for (const uint8_t even : VALUES)
        for (const uint8_t odd : VALUES) patterns.push_back(alternating(even, odd));
    std::vector<Operands> all;
    for (const Lanes& a : patterns)
        for (const Lanes& b : patterns)
            for (const Lanes& c : patterns)
                for (const bool kind : {false, true}) all.push_back({a, b, c, kind});
    for (int lane = 0; lane < 16; lane++)
        for (const uint8_t a : VALUES)
            for (const uint8_t b : VALUES)
                for (const uint8_t c : VALUES)
                    for (const bool kind : {false, true})
                        all.push_back({single(lane, a), single(15 - lane, b), alternating(c, c), kind});
    return all;
}

int signed20(uint32_t value) { return (int)(value << 12) >> 12; }

}  // namespace

int main(int, char** arguments) {
    const long long vectors = std::atoll(arguments[1]);
    Random random = {(uint64_t)std::atoll(arguments[2])};
    Bench bench(random.next());
    Vdut& dut = bench.dut;
    const std::vector<Operands> first = corners();
    std::deque<Expected> pending;
    long long started = 0, compared = 0, enabled = 0;

    dut.ap_ce = dut.ap_continue = 1;
    bench.reset();
    while (compared < vectors) {
        const bool quiet = started < (long long)first.size();
        if (!quiet && random.below(1 << 16) == 0) {
            started -= (long long)pending.size();
            pending.clear();
            bench.reset();
        }
        Operands operands = {random_lanes(random), random_lanes(random), random_lanes(random), random.chance(8)};
        if (quiet) operands = first[started];
        operands.weights0.put(dut.weights0);
        operands.weights1.put(dut.weights1);
        operands.x.put(dut.x);
        dut.x_unsigned = operands.x_unsigned;
        dut.ap_start = started < vectors && (quiet || random.chance(13));
        dut.ap_ce = quiet || random.chance(14);
        dut.ap_continue = quiet || random.chance(14);
        bench.settle();

        const bool done = dut.ap_done;
        const bool moves = dut.ap_ce && !(done && !dut.ap_continue);
        if ((bool)dut.ap_ready != (dut.ap_start && moves)) fail("clock %lld: ap_ready is %d", bench.clocks, dut.ap_ready);
        if ((bool)dut.ap_idle != (!dut.ap_start && pending.empty()))
            fail("clock %lld: ap_idle is %d with %d results due", bench.clocks, dut.ap_idle, (int)pending.size());
        const bool due = !pending.empty() && enabled - pending.front().enabled == LATENCY;
        if (done != due || (bool)dut.sum0_ap_vld != due || (bool)dut.sum1_ap_vld != due)
            fail("clock %lld: ap_done is %d, a result is %s", bench.clocks, done, due ? "due" : "not due");
        if (done) {
            const Expected& expected = pending.front();
            const int sum0 = signed20(dut.sum0), sum1 = signed20(dut.sum1);
            if (sum0 != expected.sum0 || sum1 != expected.sum1) {
                const Operands& of = expected.operands;
                fail("weights0 %s weights1 %s x %s x_unsigned %d: sum0 %d sum1 %d, expected sum0 %d sum1 %d",
                     of.weights0.hex().c_str(), of.weights1.hex().c_str(), of.x.hex().c_str(), of.x_unsigned, sum0, sum1,
                     expected.sum0, expected.sum1);
            }
        }
        if (done && moves) {
            pending.pop_front();
            compared++;
        }
        if (dut.ap_start && moves) {
            ap_int<20> sum0, sum1;
            processing_group(operands.weights0.word(), operands.weights1.word(), operands.x.word(), operands.x_unsigned,
                             sum0, sum1);
            pending.push_back({operands, sum0.to_int(), sum1.to_int(), enabled});
            started++;
        }
        if (moves) enabled++;
        bench.edge();
    }
    std::printf("vectors %lld comparisons %lld clocks %lld\n", compared, 2 * compared, bench.clocks);
    return 0;
}
