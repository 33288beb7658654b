// Test bench of drs.h: the dealing against one card after the other, and registers against the definition.
#include <fastcar/drs.h>

#include "bench.h"

using namespace bench;

namespace {

struct Item {
    int row;
    int pair;
    bool busy;
};

// Every pair goes round the rows that take part; items are handed to the groups in turn.
std::vector<Item> dealt(uint32_t index, int rows, bool reassign, int pairs) {
    std::vector<Item> items;
    for (int pair = 0; pair < pairs; pair++) {
        for (int row = 0; row < rows; row++) {
            const bool computes = (index >> row & 1u) != 0;
            if (computes || !reassign) items.push_back({row, pair, computes});
        }
    }
    return items;
}

template <int GROUPS>
void check(uint32_t index, int rows, bool reassign, int pairs) {
    char text[96];
    std::snprintf(text, sizeof text, "index 0x%08X, rows %d, reassign %d, pairs %d, groups %d", (unsigned)index, rows,
                  (int)reassign, pairs, GROUPS);
    const std::string name = text;
    const fastcar::Dealing dealing = fastcar::deal(index, rows, reassign);
    const std::vector<Item> items = dealt(index, rows, reassign, pairs);
    const int count = (int)items.size() / pairs;
    expect(name + " count", 0, (int)dealing.count, count);
    expect(name + " skips", 0, fastcar::skips(dealing), reassign && items.empty());
    const int waves = fastcar::waves(dealing, pairs, GROUPS);
    expect(name + " waves", 0, waves, ((int)items.size() + GROUPS - 1) / GROUPS);
    for (int entry = 0; entry < 32; entry++) {
        expect(name + " mapping", entry, (int)dealing.mapping[entry], entry < count ? items[entry].row : 0);
    }
    fastcar::GroupRegisters<GROUPS> registers;
    if (count > 0) registers.prepare(count);
    for (int window = 0; window < 2; window++) {  // the second one starts where the first did
        for (int wave = 0; wave <= waves; wave++) {  // and one wave beyond the last
            for (int group = 0; group < GROUPS; group++) {
                const int number = wave * GROUPS + group;
                const bool exists = number < (int)items.size();
                const fastcar::Assignment got = fastcar::assign(dealing, wave, group, GROUPS, pairs);
                expect(name + " busy", number, got.busy, exists && items[number].busy);
                if (count > 0) expect(name + " register in the items", number, registers.pair[group] < pairs, exists);
                if (!exists) continue;
                expect(name + " row", number, (int)got.row, items[number].row);
                expect(name + " pair", number, (int)got.pair, items[number].pair);
                expect(name + " register row", number, (int)dealing.mapping[registers.entry[group]], items[number].row);
                expect(name + " register pair", number, registers.pair[group], items[number].pair);
            }
            if (count > 0) registers.advance(count);
        }
        if (count > 0) registers.start();
    }
}

void check_all(uint32_t index, int rows, bool reassign, int pairs) {
    check<1>(index, rows, reassign, pairs);
    check<3>(index, rows, reassign, pairs);
    check<8>(index, rows, reassign, pairs);
    check<32>(index, rows, reassign, pairs);
}

void seeded() {
    Random random(15);
    for (const int rows : {1, 2, 5, 10, 31, 32}) {
        const uint32_t all = rows == 32 ? 0xFFFFFFFFu : (1u << rows) - 1u;
        for (const int pairs : {1, 2, 3, 4, 20}) {
            for (const bool reassign : {true, false}) {
                const uint32_t some = (uint32_t)random.next() & all;
                for (const uint32_t index : {all, some, 1u << random.between(0, rows - 1), 0u, all & 0xAAAAAAAAu}) {
                    check_all(index, rows, reassign, pairs);
                }
            }
        }
    }
    check_all(0xFFFFFFFFu, 5, true, 4);  // bits of rows that do not exist
}

void golden(const Case& one) {
    const int pairs = (int)one.number("pairs");
    const int groups = (int)one.number("groups");
    const fastcar::Dealing dealing =
        fastcar::deal((uint32_t)one.number("index"), (int)one.number("rows"), one.number("reassign") != 0);
    const std::vector<int64_t> rows = one.integers("row");
    const std::vector<int64_t> of_pair = one.integers("pair");
    const std::vector<int64_t> busy = one.integers("busy");
    expect(one.name + " waves", 0, (size_t)fastcar::waves(dealing, pairs, groups), (rows.size() + groups - 1) / groups);
    for (int number = 0; number < (int)rows.size(); number++) {
        const fastcar::Assignment got = fastcar::assign(dealing, number / groups, number % groups, groups, pairs);
        expect(one.name + " row", number, (int64_t)got.row.to_uint(), rows[number]);
        expect(one.name + " pair", number, (int64_t)got.pair.to_uint(), of_pair[number]);
        expect(one.name + " busy", number, (int64_t)got.busy, busy[number]);
    }
}

}  // namespace

int main(int argc, char** argv) { return run("drs", argc, argv, seeded, golden); }
