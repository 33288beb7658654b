// The decode engine: loads and checks a program, then runs whole frames.
//
// Six processes in one dataflow region: the sequencer, four read ports, the cache port and the executor. They share
// nothing but streams.
#ifndef FASTCAR_ENGINE_H
#define FASTCAR_ENGINE_H

#include "executor.h"
#include "ports.h"
#include "sequencer.h"
#include "validate.h"

namespace fastcar {

constexpr int MAX_DEPTH_NODES =
    MAX_DEPTH_LAYERS > 0
        ? MAX_PROJECTOR + DEPTH_INPUT_NODES + DEPTH_LAYER_NODES * MAX_DEPTH_LAYERS + DEPTH_ENDING_NODES
        : 0;
constexpr int MAX_NODES = 1 + LAYER_NODES * MAX_LAYERS + ENDING_NODES + MAX_DEPTH_NODES;
constexpr int COMMAND_DEPTH = 64;
constexpr int OPERATION_DEPTH = 16;
constexpr int TOKEN_DEPTH = 2;
constexpr int CACHE_COMMAND_DEPTH = 2 * MAX_KV_HEADS + 16;

struct Program {
    Network network;
    Node nodes[MAX_NODES];
    int count;
};

struct PortReports {
    PortCounters ports[PORTS];
    uint64_t cache_reads;
    uint64_t cache_writes;
};

inline void load_words(const beat_t* program, int descriptor, uint32_t words[DESCRIPTOR_WORDS]) {
beat:
    for (int beat = 0; beat < DESCRIPTOR_WORDS / BEAT_WORDS; beat++) {
#pragma HLS PIPELINE II=1
        const beat_t values = program[descriptor * (DESCRIPTOR_WORDS / BEAT_WORDS) + beat];
    word:
        for (int word = 0; word < BEAT_WORDS; word++) {
#pragma HLS UNROLL
            words[beat * BEAT_WORDS + word] = word_of(values, word);
        }
    }
}

// The program is copied on chip while it is checked: what runs is what was checked.
inline Status load_program(const beat_t* memory, const Control& control, Program& program) {
    if (!within(control.descriptors, 2, MAX_NODES + 2)) return BAD_PROGRAM;
    uint32_t words[DESCRIPTOR_WORDS];
    load_words(memory, 0, words);
    const Model model = Model::from(words);
    load_words(memory, 1, words);
    const Depth depth = has_depth(model) ? Depth::from(words) : Depth{};
    program.network = Network::of(model, depth);
    Status status = check_network(program.network);
    if (status != DONE) return status;
    const int headers = has_depth(model) ? 2 : 1;
    program.count = node_count(program.network);
    if (control.descriptors != (uint32_t)(program.count + headers)) return BAD_PROGRAM;
    status = check_control(program.network, control);
node:
    for (int index = 0; index < program.count; index++) {
// not pipelined: a descriptor is a burst of four beats
#pragma HLS LOOP_TRIPCOUNT min=12 max=MAX_NODES
        load_words(memory, index + headers, words);
        program.nodes[index] = Node::from(words);
        const Status found = check_node(program.network, control, program.nodes[index], index);
        if (status == DONE) status = found;
    }
    return status;
}

// What the sequencer says to the others, and the decisions it hears.
struct SequencerStreams {
    stream<ReadCommand> commands[PORTS];
    stream<Operation> operations;
    stream<bool> decisions;

    void fetch(int port, bool state, uint32_t address, uint32_t beats) {
        commands[port].write(ReadCommand{false, state, address, beats});
    }
    void operation(const Operation& operation) { operations.write(operation); }
    bool computes(int) { return decisions.read(); }
    bool leaves_out(uint32_t) const { return false; }
};

inline void run_sequencer(const Program& program, const Control& control, SequencerStreams& streams) {
    sequence(program.network, program.nodes, program.count, control, streams);
    streams.operations.write(Operation{0, false, false, 0, 0, 0, 0.0f, 0});
last:
    for (int port = 0; port < PORTS; port++) {
#pragma HLS UNROLL
        streams.commands[port].write(ReadCommand{true, false, 0, 0});
    }
}

inline void run_executor(const Program& program, const Control& control, Executor& executor,
                         stream<beat_t> ports[PORTS], CacheStreams& cache, SequencerStreams& sequencer,
                         ExecutorCounters& counters) {
    executor.start(program.network, control, cache);
operation:
    for (Operation operation = sequencer.operations.read(); operation.opcode != 0;
         operation = sequencer.operations.read()) {
// not pipelined: an operation is as long as its loops
#pragma HLS LOOP_TRIPCOUNT min=12 max=1000000
        executor.run(operation, ports, cache, sequencer.decisions);
    }
    cache.commands.write(CacheCommand{true, false, false, false, 0, 0});
    counters = executor.counters();
}

inline uint32_t low_word(uint64_t value) { return (uint32_t)value; }
inline uint32_t high_word(uint64_t value) { return (uint32_t)(value >> 32); }

inline void fill_report(const PortReports& ports, const ExecutorCounters& counters, Report& report) {
    report.status = counters.bad_token ? BAD_TOKEN : DONE;
    report.steps_done = counters.steps;
    report.rows_replayed = counters.rows_replayed;
    report.passes_skipped = counters.passes_skipped;
    report.weight_beats0_low = low_word(ports.ports[0].weight_beats);
    report.weight_beats0_high = high_word(ports.ports[0].weight_beats);
    report.weight_beats1_low = low_word(ports.ports[1].weight_beats);
    report.weight_beats1_high = high_word(ports.ports[1].weight_beats);
    report.weight_beats2_low = low_word(ports.ports[2].weight_beats);
    report.weight_beats2_high = high_word(ports.ports[2].weight_beats);
    report.weight_beats3_low = low_word(ports.ports[3].weight_beats);
    report.weight_beats3_high = high_word(ports.ports[3].weight_beats);
    report.cache_beats0_low = low_word(ports.ports[0].cache_beats);
    report.cache_beats0_high = high_word(ports.ports[0].cache_beats);
    report.cache_beats1_low = low_word(ports.ports[1].cache_beats);
    report.cache_beats1_high = high_word(ports.ports[1].cache_beats);
    report.cache_beats2_low = low_word(ports.ports[2].cache_beats);
    report.cache_beats2_high = high_word(ports.ports[2].cache_beats);
    report.cache_beats3_low = low_word(ports.ports[3].cache_beats);
    report.cache_beats3_high = high_word(ports.ports[3].cache_beats);
    report.cache_reads_low = low_word(ports.cache_reads);
    report.cache_reads_high = high_word(ports.cache_reads);
    report.cache_writes_low = low_word(ports.cache_writes);
    report.cache_writes_high = high_word(ports.cache_writes);
    report.busy_low = low_word((uint64_t)counters.busy_beats);
    report.busy_high = high_word((uint64_t)counters.busy_beats);
    report.loop_low = low_word((uint64_t)counters.clocks);
    report.loop_high = high_word((uint64_t)counters.clocks);
}

}  // namespace fastcar

#endif
