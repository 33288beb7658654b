#include "engine.h"

using namespace fastcar;

// One start: everything between the check of the program and the report. The processes share streams and nothing else.
static void run_processes(const Program& program, const Control& control, const beat_t* weights0,
                          const beat_t* weights1, const beat_t* weights2, const beat_t* weights3, const beat_t* state0,
                          const beat_t* state1, const beat_t* state2, const beat_t* state3, const beat_t* tables,
                          beat_t* state, Executor& executor, PortReports& reports, ExecutorCounters& counters) {
    SequencerStreams sequencer;
#pragma HLS STREAM variable=sequencer.commands depth=COMMAND_DEPTH
#pragma HLS STREAM variable=sequencer.operations depth=OPERATION_DEPTH
#pragma HLS STREAM variable=sequencer.decisions depth=TOKEN_DEPTH
    stream<beat_t> beats[PORTS];
#pragma HLS STREAM variable=beats depth=WEIGHT_FIFO_BEATS
    CacheStreams cache;
#pragma HLS STREAM variable=cache.commands depth=CACHE_COMMAND_DEPTH
#pragma HLS STREAM variable=cache.to_engine depth=CACHE_FIFO_BEATS
#pragma HLS STREAM variable=cache.from_engine depth=CACHE_FIFO_BEATS
#pragma HLS STREAM variable=cache.acknowledged depth=TOKEN_DEPTH
#ifdef FASTCAR_SIMULATION
    const beat_t* const weights[PORTS] = {weights0, weights1, weights2, weights3};
    const beat_t* const states[PORTS] = {state0, state1, state2, state3};
    for (int port = 0; port < PORTS; port++) {
        describe(sequencer.commands[port], "commands" + std::to_string(port), COMMAND_DEPTH);
        describe(beats[port], "beats" + std::to_string(port), WEIGHT_FIFO_BEATS);
    }
    describe(sequencer.operations, "operations", OPERATION_DEPTH);
    describe(sequencer.decisions, "decisions", TOKEN_DEPTH);
    describe(cache.commands, "cache commands", CACHE_COMMAND_DEPTH);
    describe(cache.to_engine, "cache reads", CACHE_FIFO_BEATS);
    describe(cache.from_engine, "cache writes", CACHE_FIFO_BEATS);
    describe(cache.acknowledged, "acknowledgements", TOKEN_DEPTH);
    Simulation simulation;
    simulation.spawn("sequencer", [&] { run_sequencer(program, control, sequencer); });
    for (int port = 0; port < PORTS; port++) {
        simulation.spawn("port" + std::to_string(port), [&, port] {
            read_port(sequencer.commands[port], weights[port], states[port], beats[port], reports.ports[port]);
        });
    }
    simulation.spawn("cache", [&] {
        cache_port(cache.commands, tables, state, cache.to_engine, cache.from_engine, cache.acknowledged,
                   reports.cache_reads, reports.cache_writes);
    });
    simulation.spawn("executor", [&] {
        run_executor(program, control, executor, beats, cache, sequencer, counters);
    });
    simulation.run();
    for (int port = 0; port < PORTS; port++) expect_drained(sequencer.commands[port], beats[port]);
    expect_drained(sequencer.operations, sequencer.decisions);
    expect_drained(cache.commands, cache.to_engine, cache.from_engine, cache.acknowledged);
#else  // concurrent processes: C simulation in sequence would read decisions not yet made, so it defines the macro
#pragma HLS DATAFLOW
    run_sequencer(program, control, sequencer);
    read_port(sequencer.commands[0], weights0, state0, beats[0], reports.ports[0]);
    read_port(sequencer.commands[1], weights1, state1, beats[1], reports.ports[1]);
    read_port(sequencer.commands[2], weights2, state2, beats[2], reports.ports[2]);
    read_port(sequencer.commands[3], weights3, state3, beats[3], reports.ports[3]);
    cache_port(cache.commands, tables, state, cache.to_engine, cache.from_engine, cache.acknowledged,
               reports.cache_reads, reports.cache_writes);
    run_executor(program, control, executor, beats, cache, sequencer, counters);
#endif
}

void fastcar_engine(const beat_t* program, const beat_t* weights0, const beat_t* weights1, const beat_t* weights2,
                    const beat_t* weights3, const beat_t* state0, const beat_t* state1, const beat_t* state2,
                    const beat_t* state3, const beat_t* tables, beat_t* state, Control control, Report* report) {
#pragma HLS INTERFACE mode=m_axi port=program bundle=program offset=slave depth=PROGRAM_DEPTH max_read_burst_length=16
#pragma HLS INTERFACE mode=m_axi port=weights0 bundle=read0 offset=slave depth=WEIGHT_DEPTH max_read_burst_length=16 num_read_outstanding=16
#pragma HLS INTERFACE mode=m_axi port=weights1 bundle=read1 offset=slave depth=WEIGHT_DEPTH max_read_burst_length=16 num_read_outstanding=16
#pragma HLS INTERFACE mode=m_axi port=weights2 bundle=read2 offset=slave depth=WEIGHT_DEPTH max_read_burst_length=16 num_read_outstanding=16
#pragma HLS INTERFACE mode=m_axi port=weights3 bundle=read3 offset=slave depth=WEIGHT_DEPTH max_read_burst_length=16 num_read_outstanding=16
#pragma HLS INTERFACE mode=m_axi port=state0 bundle=read0 offset=slave depth=STATE_DEPTH
#pragma HLS INTERFACE mode=m_axi port=state1 bundle=read1 offset=slave depth=STATE_DEPTH
#pragma HLS INTERFACE mode=m_axi port=state2 bundle=read2 offset=slave depth=STATE_DEPTH
#pragma HLS INTERFACE mode=m_axi port=state3 bundle=read3 offset=slave depth=STATE_DEPTH
#pragma HLS INTERFACE mode=m_axi port=tables bundle=cache offset=slave depth=WEIGHT_DEPTH
#pragma HLS INTERFACE mode=m_axi port=state bundle=cache offset=slave depth=STATE_DEPTH max_read_burst_length=16 max_write_burst_length=16 num_read_outstanding=16 num_write_outstanding=16
#pragma HLS INTERFACE mode=s_axilite port=control bundle=control
#pragma HLS INTERFACE mode=s_axilite port=report bundle=control
#pragma HLS INTERFACE mode=s_axilite port=return bundle=control
    static Program loaded;
    static Executor executor;
    Report result = {};
    result.build_id = BUILD_ID;
    result.status = load_program(program, control, loaded);
    if (result.status == DONE) {
        PortReports reports = {};
        ExecutorCounters counters;
        run_processes(loaded, control, weights0, weights1, weights2, weights3, state0, state1, state2, state3, tables, state,
                      executor, reports, counters);
        fill_report(reports, counters, result);
    }
    *report = result;
}
