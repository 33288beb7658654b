// The executor's side of the cache port. Requests run ahead of what is taken; what is requested before anything of it
// is taken must fit the FIFO, or port and executor would wait for each other.
#ifndef FASTCAR_CACHE_ACCESS_H
#define FASTCAR_CACHE_ACCESS_H

#include "ports.h"

namespace fastcar {

struct CacheAccess {
    stream<CacheCommand>* commands;
    stream<beat_t>* incoming;
    stream<beat_t>* outgoing;
    stream<bool>* acknowledged;

    void request(bool state, uint32_t address, uint32_t beats) const {
        commands->write(CacheCommand{false, false, state, false, address, beats});
    }
    beat_t take() const { return incoming->read(); }

    // To be followed by as many calls of give().
    void store(uint32_t address, uint32_t beats, bool acknowledge) const {
        commands->write(CacheCommand{false, true, true, acknowledge, address, beats});
    }
    void give(const beat_t& beat) const { outgoing->write(beat); }

    void wait_for_stores() const { acknowledged->read(); }
};

}  // namespace fastcar

#endif
