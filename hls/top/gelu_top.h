// Top level of gelu alone, for synthesis and co-simulation of one kernel.
#ifndef FASTCAR_GELU_TOP_H
#define FASTCAR_GELU_TOP_H

// x times the normal distribution function of x; a value a clock.
float gelu_top(float x);

#endif
