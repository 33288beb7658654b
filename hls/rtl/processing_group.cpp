// The C++ function that the RTL blackbox processing_group stands for, under the module's name.
#include <fastcar/processing_group.h>

void processing_group(ap_uint<128> weights0, ap_uint<128> weights1, ap_uint<128> x, bool x_unsigned,
                      ap_int<20>& sum0, ap_int<20>& sum1) {
    fastcar::group_model(weights0, weights1, x, x_unsigned, sum0, sum1);
}
