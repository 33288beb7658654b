// Top level of the overlay.
#ifndef FASTCAR_ENGINE_TOP_H
#define FASTCAR_ENGINE_TOP_H

#include "fastcar/engine.h"

// Runs control.steps steps. weights0..3 and state0..3 are the weight and the state buffer as the four read ports see
// them; tables and state the same at the cache port.
void fastcar_engine(const fastcar::beat_t* program, const fastcar::beat_t* weights0, const fastcar::beat_t* weights1,
                    const fastcar::beat_t* weights2, const fastcar::beat_t* weights3, const fastcar::beat_t* state0,
                    const fastcar::beat_t* state1, const fastcar::beat_t* state2, const fastcar::beat_t* state3,
                    const fastcar::beat_t* tables, fastcar::beat_t* state, fastcar::Control control,
                    fastcar::Report* report);

#endif
