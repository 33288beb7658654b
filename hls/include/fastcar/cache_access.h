// The executor's side of the cache port. Requests run ahead of what is taken; what is requested before anything of it
// is taken must fit the FIFO, or port and executor would wait for each other.
#ifndef FASTCAR_CACHE_ACCESS_H
#define FASTCAR_CACHE_ACCESS_H

#include "ports.h"

namespace fastcar {

struct CacheStreams {
    stream<CacheCommand> commands;
    stream<beat_t> to_engine;
    stream<beat_t> from_engine;
    stream<bool> acknowledged;
};

inline void request(CacheStreams& cache, bool state, uint32_t address, uint32_t beats) {
    cache.commands.write(CacheCommand{false, false, state, false, address, beats});
}

inline beat_t take(CacheStreams& cache) { return cache.to_engine.read(); }

// To be followed by as many calls of give().
inline void store(CacheStreams& cache, uint32_t address, uint32_t beats, bool acknowledge) {
    cache.commands.write(CacheCommand{false, true, true, acknowledge, address, beats});
}

inline void give(CacheStreams& cache, const beat_t& beat) { cache.from_engine.write(beat); }

inline void wait_for_stores(CacheStreams& cache) { cache.acknowledged.read(); }

}  // namespace fastcar

#endif
