#include "sample_top.h"

#include "fastcar/sample.h"

using namespace fastcar;

int sample_top(const float conditional[MAX_CODES], const float unconditional[MAX_CODES], float guidance,
               float inverse_temperature, uint32_t top_k, uint32_t top_p, uint32_t uniform, int codes,
               float logits[MAX_CODES]) {
#pragma HLS INTERFACE mode=ap_memory port=conditional
#pragma HLS INTERFACE mode=ap_memory port=unconditional
#pragma HLS INTERFACE mode=s_axilite port=guidance bundle=control
#pragma HLS INTERFACE mode=s_axilite port=inverse_temperature bundle=control
#pragma HLS INTERFACE mode=s_axilite port=top_k bundle=control
#pragma HLS INTERFACE mode=s_axilite port=top_p bundle=control
#pragma HLS INTERFACE mode=s_axilite port=uniform bundle=control
#pragma HLS INTERFACE mode=s_axilite port=codes bundle=control
#pragma HLS INTERFACE mode=ap_memory port=logits
#pragma HLS INTERFACE mode=s_axilite port=return bundle=control
    static SampleBuffers<MAX_CODES> buffers;
    const SampleSettings settings = {guidance, inverse_temperature, top_k, top_p};
    guided_logits<MAX_CODES>(conditional, unconditional, guidance, logits, codes);
    return sample<MAX_CODES>(buffers, logits, settings, uniform, codes);
}
