// What the DRS unit puts out for one decision, in the words of its ports, from the model in fastcar/drs.h.
#ifndef FASTCAR_RTL_DRS_WAVES_H
#define FASTCAR_RTL_DRS_WAVES_H

#include <fastcar/drs.h>
#include <hls_stream.h>

namespace fastcar {

constexpr int ITEM_BITS = 12;  // from the top: busy, 6 bits of pair, 5 bits of row

template <int GROUPS>
using wave_t = ap_uint<GROUPS * ITEM_BITS + 1>;  // the last wave's top bit is 1

// skip and count tell of the computing rows under either mapping; mapping holds the rows that are dealt.
template <int GROUPS>
void drs_waves(ap_uint<32> index, ap_uint<6> rows, ap_uint<7> pairs, bool reassign, bool& skip, ap_uint<6>& count,
               ap_uint<160>& mapping, hls::stream<wave_t<GROUPS>>& stream) {
    const Dealing dealing = deal(index, rows, reassign);
    count = deal(index, rows, true).count;
    skip = count == 0;
    ap_uint<160> packed = 0;
entry:
    for (int j = 0; j < MAX_ROWS; j++) packed.range(5 * j + 4, 5 * j) = dealing.mapping[j];
    mapping = packed;
    const int total = waves(dealing, pairs, GROUPS);
wave:
    for (int w = 0; w < total; w++) {
        wave_t<GROUPS> wave = 0;
    group:
        for (int g = 0; g < GROUPS; g++) {
            const Assignment item = assign(dealing, w, g, GROUPS, pairs);
            const int bits = ((int)item.busy << 11) | ((int)item.pair << 5) | (int)item.row;
            wave.range(ITEM_BITS * g + ITEM_BITS - 1, ITEM_BITS * g) = bits;
        }
        wave[GROUPS * ITEM_BITS] = w == total - 1;
        stream.write(wave);
    }
}

}  // namespace fastcar

#endif
