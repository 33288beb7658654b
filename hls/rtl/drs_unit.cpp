// The C++ function that the RTL blackbox drs_unit stands for: the module with its own 8 groups.
#include "drs_waves.h"

void drs_unit(ap_uint<32> index, ap_uint<6> rows, ap_uint<7> pairs, bool reassign, bool& skip, ap_uint<6>& count,
              ap_uint<160>& mapping, hls::stream<ap_uint<97>>& wave) {
    fastcar::drs_waves<8>(index, rows, pairs, reassign, skip, count, mapping, wave);
}
