// Test bench of visible.h.
#include <fastcar/visible.h>

#include <algorithm>

#include "bench.h"

using namespace bench;

namespace {

struct Sight {
    int position;
    int sinks;
    int window;
    int columns = 0;
    int places = 1;
    int first = 0;        // slot of the first frame
    int most_padding = 0;  // of the row that has most
    int padding = 0;       // of this row

    // Of a row with so much padding, which counts from there.
    bool in_runs_behind(int padded, int slot) const {
        return slot < position && (slot - padded < sinks || window == 0 || slot >= position - window);
    }
    bool in_runs(int slot) const { return slot >= padding && in_runs_behind(padding, slot); }
    // What is read does not depend on the row: the blocks of the row that has most padding, and those before it.
    bool is_read(int slot) const { return in_runs_behind(sinks > 0 ? most_padding : 0, slot); }
    bool in_column(int slot) const {
        const int back = position - slot;
        return slot >= first && back > 0 && back % places == 0 && back / places <= columns;
    }
    bool sees(int slot) const { return in_runs(slot) || in_column(slot); }

    std::string described() const {
        return "position " + std::to_string(position) + ", sinks " + std::to_string(sinks) + ", window " +
               std::to_string(window) + ", columns " + std::to_string(columns) + " of " + std::to_string(places) +
               " places from " + std::to_string(first) + ", padding " + std::to_string(padding) + " of " +
               std::to_string(most_padding);
    }
};

fastcar::Visible visible_of(const Sight& sight) {
    static fastcar::Visible visible;  // keeps what earlier cases left
    visible.begin(sight.position, sight.sinks, sight.window, sight.most_padding);
    visible.add_columns(sight.columns, sight.places, sight.first);
    visible.begin_row(sight.padding);
    return visible;
}

// Blocks with a slot that is seen, dealt to the ports by their number: in order those of sinks and window, then the
// others, the last first. Each of them once, and in each the slots that are seen.
void check(const Sight& sight) {
    const std::string name = sight.described();
    const fastcar::Visible visible = visible_of(sight);
    std::vector<std::vector<int>> runs(4), others(4);
    int in_runs = 0;
    for (int block = 0; block < sight.position / 16 + 3; block++) {
        bool run = false, seen = false;
        for (int slot = 16 * block; slot < 16 * block + 16; slot++) {
            run = run || sight.is_read(slot);
            seen = seen || sight.sees(slot);
        }
        if (run) runs[block % 4].push_back(block);
        if (seen && !run) others[block % 4].insert(others[block % 4].begin(), block);
        in_runs += run;
    }
    const bool one_run = in_runs == (sight.position + 15) / 16 || runs[0].empty() || runs[0][0] != 0;
    int most = 0;
    for (int port = 0; port < 4; port++) {
        std::vector<int> blocks = runs[port];
        blocks.insert(blocks.end(), others[port].begin(), others[port].end());
        most = std::max(most, (int)others[port].size());
        if (one_run) expect(name + " first run of port", port, visible.first_blocks(port), 0);
        expect(name + " blocks of port", port, visible.blocks(port), (int)blocks.size());
        const int parts = visible.first_blocks(port) + visible.second_blocks(port);
        expect(name + " runs of port", port, parts, (int)runs[port].size());
        for (int local = 0; local < (int)blocks.size(); local++) {
            const std::string place = name + " block of port " + std::to_string(port);
            const fastcar::SeenBlock block = visible.block(port, local);
            expect(place, local, block.first_slot, 16 * blocks[local]);
            for (int lane = 0; lane < 16; lane++) {
                expect(place + " slot", 16 * blocks[local] + lane, visible.sees(block, lane),
                       sight.sees(16 * blocks[local] + lane));
            }
        }
    }
    expect(name + " most columns", 0, visible.most_columns(), most);
}

void seeded() {
    for (int position = 0; position <= 150; position++) {
        for (const int sinks : {0, 1, 4, 15, 16, 17, 40, 64, 1 << 30}) {
            for (const int window : {0, 1, 8, 15, 16, 17, 33, 70, 150, 1 << 30}) check({position, sinks, window});
        }
    }
    for (const int places : {1, 3, 15, 16, 17, 20, 64, 100}) {  // several in a block, one in each, one a port
        for (int position = 0; position <= 230; position += position % 5 + 1) {
            for (const int columns : {1, 2, 7, 64}) {
                for (const int window : {0, 1, 18, 40}) {
                    for (const int sinks : {0, 5, 32, 70}) check({position, sinks, window, columns, places, 19});
                }
            }
        }
    }
    for (const int most : {1, 16, 40}) {  // rows of one step: what is read is the same for all of them
        for (const int padding : {0, 1, 17, 40}) {
            if (padding > most) continue;
            for (int position = 0; position <= 150; position += position % 7 + 1) {
                for (const int sinks : {0, 5, 33, 1 << 30}) {
                    for (const int window : {0, 8, 70}) {
                        check({position, sinks, window, 0, 1, 0, most, padding});
                        // sinks end with the prompt, at the latest
                        const int first = 1 + std::max(most + std::min(sinks, 100), 41);
                        if (sinks < 100 && window > 0) check({position, sinks, window, 5, 13, first, most, padding});
                    }
                }
            }
        }
    }
    Random random(10);
    for (int round = 0; round < 300; round++) {
        const int position = (int)random.between(0, 700);
        check({position, (int)random.between(0, 300), (int)random.between(0, 400)});
        check({position, (int)random.between(0, 40), (int)random.between(1, 60), (int)random.between(0, 64),
               (int)random.between(1, 90), (int)random.between(1, 60)});
    }
}

void golden(const Case& one) {
    const fastcar::Visible visible =
        visible_of({(int)one.number("position"), (int)one.number("sinks"), (int)one.number("window"),
                    (int)one.number("columns"), (int)one.number("places"), (int)one.number("first"),
                    (int)one.number("padding"), (int)one.number("padding")});
    const std::vector<int64_t> seen = one.integers("seen");
    std::vector<int64_t> found(seen.size());
    for (int port = 0; port < 4; port++) {
        for (int local = 0; local < visible.blocks(port); local++) {
            const fastcar::SeenBlock block = visible.block(port, local);
            for (int lane = 0; lane < 16; lane++) found.at(block.first_slot + lane) += visible.sees(block, lane);
        }
    }
    for (int slot = 0; slot < (int)seen.size(); slot++) expect(one.name, slot, found[slot], seen[slot]);
}

}  // namespace

int main(int argc, char** argv) { return run("visible", argc, argv, seeded, golden); }
