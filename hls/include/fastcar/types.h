// Words of the engine: beats, lanes, and the fixed numbers every kernel agrees on.
#ifndef FASTCAR_TYPES_H
#define FASTCAR_TYPES_H

#include <ap_int.h>
#include <stdint.h>
#ifdef FASTCAR_SIMULATION
#include <cstring>
#endif

namespace fastcar {

using beat_t = ap_uint<128>;  // one bus word of a 128-bit port

constexpr int PORTS = 4;          // weight read ports, one column of processing groups each
constexpr int BEAT_BYTES = 16;    // int8 lanes of a beat
constexpr int BEAT_WORDS = 4;     // 32-bit words of a beat
constexpr int BLOCK_SLOTS = 16;   // slots of a cache block: one beat of V along the slots
constexpr int WINDOW_PAIRS = 4;   // pairs of output channels a port's column works on at a time
constexpr int TILE_OUTPUTS = PORTS * 2 * WINDOW_PAIRS;
constexpr int MAX_ROWS = 32;      // width of the index register

constexpr int ceil_div(int n, int d) { return (n + d - 1) / d; }

inline uint32_t word_of(const beat_t& beat, int index) {
    return beat.range(32 * index + 31, 32 * index).to_uint();
}

inline void set_word(beat_t& beat, int index, uint32_t word) { beat.range(32 * index + 31, 32 * index) = word; }

inline int8_t byte_of(const beat_t& beat, int index) {
    return (int8_t)beat.range(8 * index + 7, 8 * index).to_uint();
}

inline void set_byte(beat_t& beat, int index, uint8_t byte) { beat.range(8 * index + 7, 8 * index) = byte; }

// The 16 bytes of a beat as int8.
inline void unpack(const beat_t& beat, int8_t lanes[BEAT_BYTES]) {
#pragma HLS INLINE
#ifdef FASTCAR_SIMULATION
    std::memcpy(lanes, &beat, BEAT_BYTES);  // the compiler makes vectors of it
#else
lane:
    for (int lane = 0; lane < BEAT_BYTES; lane++) {
#pragma HLS UNROLL
        lanes[lane] = byte_of(beat, lane);
    }
#endif
}

inline beat_t pack(const int8_t lanes[BEAT_BYTES]) {
#pragma HLS INLINE
    beat_t beat = 0;
#ifdef FASTCAR_SIMULATION
    std::memcpy(static_cast<void*>(&beat), lanes, BEAT_BYTES);
#else
lane:
    for (int lane = 0; lane < BEAT_BYTES; lane++) {
#pragma HLS UNROLL
        set_byte(beat, lane, (uint8_t)lanes[lane]);
    }
#endif
    return beat;
}

}  // namespace fastcar

#endif
