// Top level of swiglu alone, for synthesis and co-simulation of one kernel.
#ifndef FASTCAR_SWIGLU_TOP_H
#define FASTCAR_SWIGLU_TOP_H

// gate * sigmoid(gate) * up; a pair of values a clock.
float swiglu_top(float gate, float up);

#endif
