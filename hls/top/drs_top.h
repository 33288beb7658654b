// Top level of drs alone, for synthesis and co-simulation of one kernel.
#ifndef FASTCAR_DRS_TOP_H
#define FASTCAR_DRS_TOP_H

#include "fastcar/drs.h"

// The dealing of the rows whose index bit is 1, whether none of them computes, and the waves that `pairs` pairs of
// output channels take on the configuration's groups.
void drs_top(ap_uint<32> index, ap_uint<6> rows, bool reassign, int pairs, fastcar::Dealing& dealing, bool& skip,
             int& wave_count);

#endif
