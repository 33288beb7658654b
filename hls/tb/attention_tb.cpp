// Test bench of attention.h: positions around the blocks' ends, all slots or sinks, a window and the same place of
// earlier frames, three heights of the ports' columns of groups.
#include <fastcar/attention.h>

#include <algorithm>
#include <utility>

#include "bench.h"

using namespace bench;

namespace {

constexpr int MAX_GROUP = 8;
constexpr int MAX_SLOTS = 256;
constexpr int MAX_HEAD_DIM = 64;
constexpr int PORTS = 4;

// One key/value head and the query heads that share it.
struct Head {
    int group;
    int head_dim;
    int position;
    int sinks;
    int window;
    int columns;
    int places;
    int first;
    std::vector<int8_t> q;       // (group, head_dim)
    std::vector<int8_t> k;       // (head_dim)
    std::vector<int8_t> v;       // (head_dim)
    std::vector<int8_t> k_past;  // (slots, head_dim), whatever they hold from `position` on
    std::vector<int8_t> v_past;
    std::vector<float> exponent;  // (group)
    float v_scale;

    int slots() const { return (int)k_past.size() / head_dim; }
    bool in_runs(int slot) const {
        return slot < position && (slot < sinks || window == 0 || slot >= position - window);
    }
    bool sees(int slot) const {
        const int back = position - slot;
        const bool in_column = slot >= first && back > 0 && back % places == 0 && back / places <= columns;
        return in_runs(slot) || in_column;
    }
    // Of a port, those with a slot that is seen: of sinks and window, then the others from the last on.
    std::vector<int> blocks(int port) const {
        std::vector<int> runs, others;
        for (int block = port; block * 16 < slots(); block += PORTS) {
            bool run = false, seen = false;
            for (int slot = 16 * block; slot < 16 * block + 16; slot++) {
                run = run || in_runs(slot);
                seen = seen || sees(slot);
            }
            if (run) runs.push_back(block);
            if (seen && !run) others.push_back(block);
        }
        runs.insert(runs.end(), others.rbegin(), others.rend());
        return runs;
    }
};

// 2^15 * 2^-(steps / 1024) as the table has it: the mantissa rounded, then shifted.
int64_t weight_of(int64_t below, float exponent) {
    const float steps = (float)below * exponent;
    if (steps >= 16.0f * 1024.0f) return 0;
    const int index = (int)steps;
    return nearest_even(std::ldexp(std::exp2(-(index % 1024) / 1024.0), 15)) >> (index / 1024);
}

int64_t product(const int8_t* a, const int8_t* b, int n) {
    int64_t sum = 0;
    for (int index = 0; index < n; index++) sum += a[index] * b[index];
    return sum;
}

// Softmax over the list of what is seen, the position itself last.
std::vector<float> reference(const Head& head) {
    std::vector<const int8_t*> keys, values;
    for (int slot = 0; slot < head.slots(); slot++) {
        if (!head.sees(slot)) continue;
        keys.push_back(&head.k_past[slot * head.head_dim]);
        values.push_back(&head.v_past[slot * head.head_dim]);
    }
    keys.push_back(head.k.data());
    values.push_back(head.v.data());
    std::vector<float> y;
    for (int query = 0; query < head.group; query++) {
        std::vector<int64_t> scores;
        int64_t peak = INT64_MIN;
        for (const int8_t* key : keys) {
            scores.push_back(product(&head.q[query * head.head_dim], key, head.head_dim));
            peak = std::max(peak, scores.back());
        }
        std::vector<int64_t> mixed(head.head_dim);
        int64_t total = 0;
        for (size_t index = 0; index < keys.size(); index++) {
            const int64_t weight = weight_of(peak - scores[index], head.exponent[query]);
            total += weight;
            for (int dim = 0; dim < head.head_dim; dim++) mixed[dim] += weight * values[index][dim];
        }
        for (const int64_t sum : mixed) {
            const float mean = (float)sum / (float)total;
            y.push_back(mean * head.v_scale);
        }
    }
    return y;
}

// A port's share of the cache: its blocks that are read, K slot by slot, then V dimension by dimension.
std::vector<beat_t> port_stream(const Head& head, int port) {
    std::vector<beat_t> beats;
    for (const int block : head.blocks(port)) {
        for (int byte = 0; byte < 16 * head.head_dim; byte += 16) {
            beats.push_back(beat_of(&head.k_past[block * 16 * head.head_dim + byte]));
        }
    }
    for (const int block : head.blocks(port)) {
        for (int dim = 0; dim < head.head_dim; dim++) {
            int8_t lanes[16];
            for (int lane = 0; lane < 16; lane++) lanes[lane] = head.v_past[(block * 16 + lane) * head.head_dim + dim];
            beats.push_back(beat_of(lanes));
        }
    }
    return beats;
}

template <int GROUPS, int VECTOR>
void check(const std::string& name, const Head& head, const std::vector<float>& expected) {
    static fastcar::AttentionBuffers<MAX_GROUP, MAX_SLOTS, MAX_HEAD_DIM> buffers;  // keeps what earlier cases left
    const int head_beats = head.head_dim / 16;
    std::vector<beat_t> q, k, v;
    for (int beat = 0; beat < head.group * head_beats; beat++) q.push_back(beat_of(&head.q[16 * beat]));
    for (int beat = 0; beat < head_beats; beat++) k.push_back(beat_of(&head.k[16 * beat]));
    for (int beat = 0; beat < head_beats; beat++) v.push_back(beat_of(&head.v[16 * beat]));
    fastcar::stream<beat_t> ports[PORTS];
    int64_t most = 0, blocks = 0;
    for (int port = 0; port < PORTS; port++) {
        const std::vector<beat_t> beats = port_stream(head, port);
        for (const beat_t& beat : beats) ports[port].write(beat);
        most = std::max(most, (int64_t)beats.size());
        blocks += (int64_t)beats.size() / (2 * head.head_dim);
    }
    std::vector<float> y(head.group * head.head_dim);
    int64_t busy_beats = 1000;
    static fastcar::Visible visible;
    visible.begin(head.position, head.sinks, head.window, 0);
    visible.add_columns(head.columns, head.places, head.first);
    const int64_t clocks = fastcar::attention_head<GROUPS, VECTOR>(ports, buffers, q.data(), k.data(), v.data(),
                                                                   head.exponent.data(), head.v_scale, visible,
                                                                   head.group, head.head_dim, y.data(), busy_beats);
    const std::string full = name + ", groups " + std::to_string(GROUPS) + ", vector " + std::to_string(VECTOR);
    expect_all(full, y, expected);
    for (int port = 0; port < PORTS; port++) expect(full + " left in port", port, ports[port].empty(), true);

    // q.k of 2 slots and 16 dimensions a group clock; p.V of 2 dimensions and 16 slots, high and low bytes apart.
    const int64_t products = blocks * head.group * (8 * head_beats + head.head_dim / 2 * 2);
    expect(full + " busy beats", 0, busy_beats - 1000, products);
    const int64_t least = std::max(most, (products + GROUPS * PORTS - 1) / (GROUPS * PORTS));
    expect(full + " not faster than its ports and groups", 0, clocks >= least, true);
}

void check_all(const std::string& name, const Head& head, const std::vector<float>& expected) {
    check<1, 1>(name, head, expected);
    check<3, 4>(name, head, expected);
    check<8, 16>(name, head, expected);
}

std::string described(const Head& head) {
    return "group " + std::to_string(head.group) + ", head_dim " + std::to_string(head.head_dim) + ", position " +
           std::to_string(head.position) + ", sinks " + std::to_string(head.sinks) + ", window " +
           std::to_string(head.window) + ", columns " + std::to_string(head.columns) + " of " +
           std::to_string(head.places) + " places";
}

Head random_head(Random& random, int group, int head_dim, int position) {
    Head head = {group, head_dim, position, 0, 0, 0, 1, 0, {}, {}, {}, {}, {}, {}, std::fabs(random.wide(-8, 0))};
    head.q = random.bytes(group * head_dim);
    head.k = random.bytes(head_dim);
    head.v = random.bytes(head_dim);
    head.k_past = random.bytes(MAX_SLOTS * head_dim);
    head.v_past = random.bytes(MAX_SLOTS * head_dim);
    // From all slots alike to the peak alone.
    for (int query = 0; query < group; query++) head.exponent.push_back(std::fabs(random.wide(-13, 0)));
    return head;
}

void seeded() {
    Random random(19);
    for (const int group : {1, 4, 8}) {
        for (const int head_dim : {16, 48, 64}) {
            for (const int position : {0, 1, 15, 16, 17, 200}) {
                Head head = random_head(random, group, head_dim, position);
                check_all(described(head), head, reference(head));
                for (const auto& [sinks, window] : {std::pair<int, int>{4, 8}, {0, 16}, {17, 33}, {1, 150}}) {
                    head.sinks = sinks;
                    head.window = window;
                    check_all(described(head), head, reference(head));
                }
                for (const auto& [places, window] : {std::pair<int, int>{20, 1}, {5, 2}, {64, 30}, {16, 9}}) {
                    head.sinks = places % 3;
                    head.window = window;
                    head.columns = 1 + places % 12;
                    head.places = places;
                    head.first = 10;
                    check_all(described(head), head, reference(head));
                }
            }
        }
    }
    Head largest = random_head(random, 8, 64, 255);  // every weight 2^15, every product the largest
    for (auto* bytes : {&largest.q, &largest.k, &largest.v, &largest.k_past, &largest.v_past}) {
        std::fill(bytes->begin(), bytes->end(), (int8_t)-128);
    }
    check_all("largest sums", largest, reference(largest));
}

void golden(const Case& one) {
    const Head head = {(int)one.number("group"), (int)one.number("head_dim"), (int)one.number("position"),
                       (int)one.number("sinks"), (int)one.number("window"), (int)one.number("columns"),
                       (int)one.number("places"), (int)one.number("first"), one.bytes("q"), one.bytes("k"),
                       one.bytes("v"), one.bytes("k_past"), one.bytes("v_past"), one.floats("exponent"),
                       one.real("v_scale")};
    check_all(one.name, head, one.floats("y"));
}

}  // namespace

int main(int argc, char** argv) { return run("attention", argc, argv, seeded, golden); }
