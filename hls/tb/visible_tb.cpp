// Test bench of visible.h.
#include <fastcar/visible.h>

#include "bench.h"

using namespace bench;

namespace {

bool sees(int position, int sinks, int window, int slot) {
    return slot < position && (slot < sinks || window == 0 || slot >= position - window);
}

// Blocks with a slot that is seen, in order, dealt to the ports by their number.
void check(int position, int sinks, int window) {
    const std::string name = "position " + std::to_string(position) + ", sinks " + std::to_string(sinks) + ", window " +
                             std::to_string(window);
    const fastcar::Visible visible = fastcar::Visible::at(position, sinks, window);
    std::vector<std::vector<int>> blocks(4);
    for (int slot = 0; slot < position + 40; slot++) {
        const bool seen = sees(position, sinks, window, slot);
        expect(name + " slot", slot, visible.slot(slot), seen);
        std::vector<int>& port = blocks[slot / 16 % 4];
        if (seen && (port.empty() || port.back() != slot / 16)) port.push_back(slot / 16);
    }
    int read = 0;
    for (const std::vector<int>& port : blocks) read += (int)port.size();
    const bool one_run = read == (position + 15) / 16 || blocks[0].empty() || blocks[0][0] != 0;
    for (int port = 0; port < 4; port++) {
        if (one_run) expect(name + " first run of port", port, visible.first_blocks(port), 0);
        expect(name + " blocks of port", port, visible.blocks(port), (int)blocks[port].size());
        const int parts = visible.first_blocks(port) + visible.second_blocks(port);
        expect(name + " runs of port", port, parts, (int)blocks[port].size());
        for (int local = 0; local < (int)blocks[port].size(); local++) {
            const std::string place = name + " block of port " + std::to_string(port);
            expect(place, local, visible.block(port, local), blocks[port][local]);
        }
    }
}

void seeded() {
    for (int position = 0; position <= 150; position++) {
        for (const int sinks : {0, 1, 4, 15, 16, 17, 40, 64, 1 << 30}) {
            for (const int window : {0, 1, 8, 15, 16, 17, 33, 70, 150, 1 << 30}) check(position, sinks, window);
        }
    }
    Random random(10);
    for (int round = 0; round < 300; round++) {
        const int position = (int)random.between(0, 700);
        check(position, (int)random.between(0, 300), (int)random.between(0, 400));
    }
}

void golden(const Case& one) {
    const int position = (int)one.number("position");
    const int sinks = (int)one.number("sinks");
    const fastcar::Visible visible = fastcar::Visible::at(position, sinks, (int)one.number("window"));
    const std::vector<int64_t> seen = one.integers("seen");
    for (int slot = 0; slot < (int)seen.size(); slot++) expect(one.name, slot, (int64_t)visible.slot(slot), seen[slot]);
}

}  // namespace

int main(int argc, char** argv) { return run("visible", argc, argv, seeded, golden); }
