// The engine's schedule on counters only: the same sequencer, dealing and cursors, decisions given from outside.
#include "count.h"

#include "timeline.h"

using namespace fastcar;

namespace {

struct Totals {
    uint64_t weight_beats[PORTS] = {};
    uint64_t cache_beats[PORTS] = {};
    uint64_t reads = 0;
    uint64_t writes = 0;
    uint64_t busy = 0;
    uint64_t loop = 0;
    uint32_t rows_replayed = 0;
    uint32_t passes_skipped = 0;
};

// Takes what the sequencer emits; the executor's part is accounted instead of run.
class CountingCommands {
public:
    CountingCommands(const Network& network, const Control& control, const Timing& timing, const Parallelism& engine,
                     const uint32_t* replays, uint32_t omitted, OperationCounts* by_opcode)
        : network_(network), control_(control), timing_(timing), engine_(engine),
          accountant_(network_, control_, timing_, engine_), timeline_(timing_, engine_), replays_(replays),
          omitted_(omitted), by_opcode_(by_opcode) {
        all_ = deal(everyone(), control.rows, true);
        mlp_ = all_;
        totals.reads = ceil_div(network.backbone.layers, 2) + ceil_div(control.rows, BEAT_WORDS);  // thresholds, paddings
        const int64_t load = (int64_t)control.descriptors * (DESCRIPTOR_WORDS / BEAT_WORDS + timing.read_latency);
        timeline_.advance((double)(load + timing.read_latency + totals.reads));
    }

    void fetch(int port, bool state, uint32_t, uint32_t beats) {
        (state ? totals.cache_beats : totals.weight_beats)[port] += beats;
    }

    bool computes(int) { return !skips(mlp_); }
    bool leaves_out(uint32_t opcode) const { return (omitted_ >> opcode & 1u) != 0; }

    void operation(const Operation& operation) {
        OperationCounts& counts = by_opcode_[operation.opcode];
        counts.cycles -= timeline_.now();
        counts.stalls -= timeline_.stalls();
        accountant_.work(operation, all_, mlp_, [this, &counts](const Work& work) {
            timeline_.run(work);
            for (int64_t beats : work.beats) counts.read_beats += (double)beats;
            counts.cache_beats += (double)(work.reads + work.writes);
            counts.busy += (double)work.busy;
            counts.loop += (double)work.loop;
            totals.reads += work.reads;
            totals.writes += work.writes;
            totals.busy += work.busy;
            totals.loop += work.loop;
        });
        if (operation.opcode == HEADS) decide(operation);
        if (operation.opcode == DEPTH_HEADS) timeline_.decide();  // K and V are in memory
        counts.cycles += timeline_.now();
        counts.stalls += timeline_.stalls();
    }

    const Timeline& timeline() const { return timeline_; }
    Totals totals;

private:
    uint32_t everyone() const { return control_.rows == MAX_ROWS ? 0xFFFFFFFFu : (1u << control_.rows) - 1u; }

    void decide(const Operation& operation) {
        const uint32_t replay = replays_[(size_t)operation.step * network_.backbone.layers + operation.layer] & everyone();
        mlp_ = deal(everyone() & ~replay, control_.rows, (control_.flags & FLAG_REASSIGN) != 0);
        totals.rows_replayed += (uint32_t)__builtin_popcount(replay);
        totals.passes_skipped += skips(mlp_) ? 1 : 0;
        timeline_.decide();
    }

    Network network_;
    Control control_;
    Timing timing_;
    Parallelism engine_;
    Accountant accountant_;
    Timeline timeline_;
    const uint32_t* replays_;
    uint32_t omitted_;
    OperationCounts* by_opcode_;
    Dealing all_;
    Dealing mlp_;
};

}  // namespace

int fastcar_count(const void* program, const void* control, const CountSettings* settings, const uint32_t* replays,
                  void* report, OperationCounts* by_opcode) {
    Control registers;
    std::memcpy(&registers, control, sizeof(Control));
    static Program loaded;
    Report result = {};
    result.build_id = BUILD_ID;
    result.status = load_program(static_cast<const beat_t*>(program), registers, loaded);
    if (result.status == DONE) {
        Timing timing;
        timing.ddr_rate = settings->ddr_rate;
        const Parallelism engine = {settings->groups, settings->vector, settings->fifo_beats, settings->port_width};
        CountingCommands commands(loaded.network, registers, timing, engine, replays, settings->omitted, by_opcode);
        sequence(loaded.network, loaded.nodes, loaded.count, registers, commands);
        const Totals& totals = commands.totals;
        const uint64_t cycles = (uint64_t)commands.timeline().now();
        const uint64_t stalls = (uint64_t)commands.timeline().stalls();
        PortReports ports = {};
        for (int port = 0; port < PORTS; port++) {
            ports.ports[port] = {totals.weight_beats[port], totals.cache_beats[port]};
        }
        ports.cache_reads = totals.reads;
        ports.cache_writes = totals.writes;
        ExecutorCounters counters;
        counters.busy_beats = (int64_t)totals.busy;
        counters.clocks = (int64_t)totals.loop;
        counters.rows_replayed = totals.rows_replayed;
        counters.passes_skipped = totals.passes_skipped;
        counters.steps = registers.steps;
        fill_report(ports, counters, result);
        result.cycles_low = low_word(cycles);
        result.cycles_high = high_word(cycles);
        result.stalls_low = low_word(stalls);
        result.stalls_high = high_word(stalls);
    }
    std::memcpy(report, &result, sizeof(Report));
    return 0;
}
