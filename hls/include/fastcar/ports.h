// The memory ports: four that read weights and K/V in long bursts, one for caches and activations.
#ifndef FASTCAR_PORTS_H
#define FASTCAR_PORTS_H

#include "stream.h"
#include "types.h"

namespace fastcar {

// Between the cache port and the engine; what must fit is asserted in executor_attention.h.
constexpr int CACHE_FIFO_BEATS = 512;

struct ReadCommand {
    bool last;   // no more commands
    bool state;  // from the state buffer (K, V), else from the weights
    uint32_t address;
    uint32_t beats;
};

struct CacheCommand {
    bool last;
    bool write;
    bool state;        // the state buffer, else the weights (embedding and rotary tables; never written)
    bool acknowledge;  // of a write: say when it is done
    uint32_t address;
    uint32_t beats;
};

struct PortCounters {
    uint64_t weight_beats;
    uint64_t cache_beats;
};

// One read port: commands to bursts to beats.
inline void read_port(stream<ReadCommand>& commands, const beat_t* weights, const beat_t* state, stream<beat_t>& beats,
                      PortCounters& counters) {
    uint64_t weight_beats = 0;
    uint64_t cache_beats = 0;
command:
    for (ReadCommand command = commands.read(); !command.last; command = commands.read()) {
// not pipelined: a command is a burst
#pragma HLS LOOP_TRIPCOUNT min=1 max=1000000
    burst:
        for (uint32_t beat = 0; beat < command.beats; beat++) {
#pragma HLS PIPELINE II=1
#pragma HLS LOOP_TRIPCOUNT min=1 max=1000000
            beats.write(command.state ? state[command.address + beat] : weights[command.address + beat]);
        }
        if (command.state) {
            cache_beats += command.beats;
        } else {
            weight_beats += command.beats;
        }
    }
    counters.weight_beats = weight_beats;
    counters.cache_beats = cache_beats;
}

// The cache port: reads and writes in the order of the commands.
inline void cache_port(stream<CacheCommand>& commands, const beat_t* weights, beat_t* state,
                       stream<beat_t>& to_engine, stream<beat_t>& from_engine, stream<bool>& acknowledged,
                       uint64_t& read_beats, uint64_t& write_beats) {
    uint64_t reads = 0;
    uint64_t writes = 0;
command:
    for (CacheCommand command = commands.read(); !command.last; command = commands.read()) {
// not pipelined: a command is a burst
#pragma HLS LOOP_TRIPCOUNT min=1 max=1000000
        if (command.write) {
        store:
            for (uint32_t beat = 0; beat < command.beats; beat++) {
#pragma HLS PIPELINE II=1
#pragma HLS LOOP_TRIPCOUNT min=1 max=4096
                state[command.address + beat] = from_engine.read();
            }
            writes += command.beats;
            if (command.acknowledge) acknowledged.write(true);
        } else {
        load:
            for (uint32_t beat = 0; beat < command.beats; beat++) {
#pragma HLS PIPELINE II=1
#pragma HLS LOOP_TRIPCOUNT min=1 max=4096
                to_engine.write(command.state ? state[command.address + beat] : weights[command.address + beat]);
            }
            reads += command.beats;
        }
    }
    read_beats = reads;
    write_beats = writes;
}

}  // namespace fastcar

#endif
