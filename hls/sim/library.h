// C interface of the simulation library.
#ifndef FASTCAR_LIBRARY_H
#define FASTCAR_LIBRARY_H

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

extern "C" {

// One start of the engine over host memory. addresses: the engine's pointer arguments in order; control and report are
// the register records. Returns 0, or 1 with the reason in `error` when the simulation itself failed: a deadlock, or
// data left in a stream.
int fastcar_run(void* const addresses[], const void* control, void* report, char* error, size_t error_size);
}

#endif
