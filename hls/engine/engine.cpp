#include "engine.h"

using namespace fastcar;

// One start: everything between the check of the program and the report.
static void run_processes(const Program& program, const Control& control, const Memory& memory, Executor& executor,
                          PortReports& reports, ExecutorCounters& counters) {
    stream<ReadCommand> commands[PORTS];
#pragma HLS STREAM variable=commands depth=COMMAND_DEPTH
    stream<beat_t> beats[PORTS];
#pragma HLS STREAM variable=beats depth=WEIGHT_FIFO_BEATS
    stream<Operation> operations;
#pragma HLS STREAM variable=operations depth=OPERATION_DEPTH
    stream<bool> decisions;
#pragma HLS STREAM variable=decisions depth=TOKEN_DEPTH
    stream<CacheCommand> cache_commands;
#pragma HLS STREAM variable=cache_commands depth=CACHE_COMMAND_DEPTH
    stream<beat_t> to_engine;
#pragma HLS STREAM variable=to_engine depth=CACHE_FIFO_BEATS
    stream<beat_t> from_engine;
#pragma HLS STREAM variable=from_engine depth=CACHE_FIFO_BEATS
    stream<bool> acknowledged;
#pragma HLS STREAM variable=acknowledged depth=TOKEN_DEPTH
    const CacheAccess cache = {&cache_commands, &to_engine, &from_engine, &acknowledged};
#ifdef FASTCAR_SIMULATION
    for (int port = 0; port < PORTS; port++) {
        describe(commands[port], "commands" + std::to_string(port), COMMAND_DEPTH);
        describe(beats[port], "beats" + std::to_string(port), WEIGHT_FIFO_BEATS);
    }
    describe(operations, "operations", OPERATION_DEPTH);
    describe(decisions, "decisions", TOKEN_DEPTH);
    describe(cache_commands, "cache commands", CACHE_COMMAND_DEPTH);
    describe(to_engine, "cache reads", CACHE_FIFO_BEATS);
    describe(from_engine, "cache writes", CACHE_FIFO_BEATS);
    describe(acknowledged, "acknowledgements", TOKEN_DEPTH);
    Simulation simulation;
    simulation.spawn("sequencer", [&] { run_sequencer(program, control, commands, operations, decisions); });
    for (int port = 0; port < PORTS; port++) {
        simulation.spawn("port" + std::to_string(port), [&, port] {
            read_port(commands[port], memory.weights[port], memory.state_read[port], beats[port], reports.ports[port]);
        });
    }
    simulation.spawn("cache", [&] {
        cache_port(cache_commands, memory.tables, memory.state, to_engine, from_engine, acknowledged,
                   reports.cache_reads, reports.cache_writes);
    });
    simulation.spawn("executor", [&] {
        run_executor(program, control, executor, beats, cache, operations, decisions, counters);
    });
    simulation.run();
    for (int port = 0; port < PORTS; port++) expect_drained(commands[port], beats[port]);
    expect_drained(operations, decisions, cache_commands, to_engine, from_engine, acknowledged);
#else  // concurrent processes: C simulation in sequence would read decisions not yet made, so it defines the macro
#pragma HLS DATAFLOW
    run_sequencer(program, control, commands, operations, decisions);
    read_port(commands[0], memory.weights[0], memory.state_read[0], beats[0], reports.ports[0]);
    read_port(commands[1], memory.weights[1], memory.state_read[1], beats[1], reports.ports[1]);
    read_port(commands[2], memory.weights[2], memory.state_read[2], beats[2], reports.ports[2]);
    read_port(commands[3], memory.weights[3], memory.state_read[3], beats[3], reports.ports[3]);
    cache_port(cache_commands, memory.tables, memory.state, to_engine, from_engine, acknowledged, reports.cache_reads,
               reports.cache_writes);
    run_executor(program, control, executor, beats, cache, operations, decisions, counters);
#endif
}

void fastcar_engine(const beat_t* program, const beat_t* weights0, const beat_t* weights1, const beat_t* weights2,
                    const beat_t* weights3, const beat_t* state0, const beat_t* state1, const beat_t* state2,
                    const beat_t* state3, const beat_t* tables, beat_t* state, Control control, Report* report) {
#pragma HLS INTERFACE mode=m_axi port=program bundle=program offset=slave max_read_burst_length=16
#pragma HLS INTERFACE mode=m_axi port=weights0 bundle=read0 offset=slave max_read_burst_length=16 num_read_outstanding=16
#pragma HLS INTERFACE mode=m_axi port=weights1 bundle=read1 offset=slave max_read_burst_length=16 num_read_outstanding=16
#pragma HLS INTERFACE mode=m_axi port=weights2 bundle=read2 offset=slave max_read_burst_length=16 num_read_outstanding=16
#pragma HLS INTERFACE mode=m_axi port=weights3 bundle=read3 offset=slave max_read_burst_length=16 num_read_outstanding=16
#pragma HLS INTERFACE mode=m_axi port=state0 bundle=read0 offset=slave
#pragma HLS INTERFACE mode=m_axi port=state1 bundle=read1 offset=slave
#pragma HLS INTERFACE mode=m_axi port=state2 bundle=read2 offset=slave
#pragma HLS INTERFACE mode=m_axi port=state3 bundle=read3 offset=slave
#pragma HLS INTERFACE mode=m_axi port=tables bundle=cache offset=slave
#pragma HLS INTERFACE mode=m_axi port=state bundle=cache offset=slave max_read_burst_length=16 max_write_burst_length=16 num_read_outstanding=16 num_write_outstanding=16
#pragma HLS INTERFACE mode=s_axilite port=control bundle=control
#pragma HLS INTERFACE mode=s_axilite port=report bundle=control
#pragma HLS INTERFACE mode=s_axilite port=return bundle=control
    static Program loaded;
    static Executor executor;
    Report result = {};
    result.build_id = BUILD_ID;
    result.status = load_program(program, control, loaded);
    if (result.status == DONE) {
        const Memory memory = {{weights0, weights1, weights2, weights3}, {state0, state1, state2, state3}, tables, state};
        PortReports reports = {};
        ExecutorCounters counters;
        run_processes(loaded, control, memory, executor, reports, counters);
        fill_report(reports, counters, result);
    }
    *report = result;
}
