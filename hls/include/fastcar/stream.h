// Streams between the processes of the engine: Vitis HLS's own, or in simulation ones of bounded depth.
#ifndef FASTCAR_STREAM_H
#define FASTCAR_STREAM_H

#ifdef FASTCAR_SIMULATION
#include "../../sim/stream_simulation.h"
#else
#include <hls_stream.h>

namespace fastcar {

template <typename T>
using stream = hls::stream<T>;

// Name and depth are for the simulation; the STREAM pragma beside the call gives the hardware its depth.
template <typename T>
void describe(stream<T>&, const char*, int) {}

}  // namespace fastcar
#endif

#endif
