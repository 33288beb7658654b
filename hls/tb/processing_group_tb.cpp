// Test bench of processing_group.h.
#include <fastcar/processing_group.h>

#include "bench.h"

using namespace bench;

namespace {

struct Lanes {
    std::vector<int8_t> weights0;
    std::vector<int8_t> weights1;
    std::vector<int8_t> x;
};

void check(const std::string& name, const Lanes& lanes, bool x_unsigned, int64_t expected0, int64_t expected1) {
    fastcar::sum_t sum0, sum1;
    fastcar::group_products(beat_of(lanes.weights0.data()), beat_of(lanes.weights1.data()), beat_of(lanes.x.data()),
                              x_unsigned, sum0, sum1);
    expect(name, 0, (int64_t)sum0.to_int(), expected0);
    expect(name, 1, (int64_t)sum1.to_int(), expected1);
}

// Both sums in one integer, weights0 + weights1 * 2^24 times x, the fields taken apart at the end.
void check(const std::string& name, const Lanes& lanes) {
    for (const bool x_unsigned : {false, true}) {
        int64_t packed = 0;
        for (int lane = 0; lane < 16; lane++) {
            const int64_t x = x_unsigned ? (uint8_t)lanes.x[lane] : lanes.x[lane];
            packed += (lanes.weights0[lane] + lanes.weights1[lane] * ((int64_t)1 << 24)) * x;
        }
        const int64_t low = ((packed + (1 << 23)) & 0xFFFFFF) - (1 << 23);
        check(name + (x_unsigned ? ", unsigned" : ", signed"), lanes, x_unsigned, low, (packed - low) >> 24);
    }
}

void seeded() {
    Random random(9);
    for (int round = 0; round < 20000; round++) {
        check("round " + std::to_string(round), Lanes{random.bytes(16), random.bytes(16), random.bytes(16)});
    }
    for (const int8_t weight : {-128, -1, 0, 127}) {
        for (const int8_t x : {-128, -1, 0, 127}) {
            const std::vector<int8_t> weights(16, weight);
            check("extremes", Lanes{weights, std::vector<int8_t>(16, -128), std::vector<int8_t>(16, x)});
        }
    }
    for (int lane = 0; lane < 16; lane++) {  // one lane alone
        Lanes lanes = {std::vector<int8_t>(16, 0), std::vector<int8_t>(16, 0), random.bytes(16)};
        lanes.weights0[lane] = 1;
        lanes.weights1[15 - lane] = -1;
        check("lane " + std::to_string(lane), lanes);
    }
}

void golden(const Case& one) {
    const Lanes lanes = {one.bytes("weights0"), one.bytes("weights1"), one.bytes("x")};
    const std::vector<int64_t> sums = one.integers("sums");
    check(one.name, lanes, one.number("x_unsigned") != 0, sums.at(0), sums.at(1));
}

}  // namespace

int main(int argc, char** argv) { return run("processing_group", argc, argv, seeded, golden); }
