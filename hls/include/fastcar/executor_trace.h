// Executor: what the nodes of a traced step leave behind, for a host that compares them one by one.
#ifndef FASTCAR_EXECUTOR_TRACE_H
#define FASTCAR_EXECUTOR_TRACE_H

#include "executor.h"

namespace fastcar {

// Row by row behind what the operation before it left: binary32 values of the residual stream or of the wide rows, or
// bytes of the heads or of an operand, whose scale follows in a beat of its own.
inline void Executor::trace(const Operation& operation, CacheStreams& cache) {
    const int opcode = operation.opcode;
    const int beats = trace_row_beats(network_, opcode, operation.layer);
    const bool wide = opcode == LINEAR_QKV || opcode == LINEAR_LOGITS || opcode == DEPTH_QKV || opcode == DEPTH_LOGITS;
    const bool deep = opcode == PROJECT || opcode == DEPTH_HIDDEN || opcode == DEPTH_CODES || opcode == DEPTH_OUTPUT ||
                      opcode == DEPTH_FC2;
    const bool floats = wide || deep || opcode == EMBED || opcode == LINEAR_OUTPUT || opcode == LINEAR_DOWN;
row:
    for (int row = 0; row < (int)control_.rows; row++) {
// not pipelined: a row is a burst
#pragma HLS LOOP_TRIPCOUNT min=1 max=ROWS
        if (beats > 0) store(cache, trace_, beats, false);
        trace_ += beats;
    trace_beat:
        for (int beat = 0; beat < beats; beat++) {
#pragma HLS PIPELINE II=1
#pragma HLS LOOP_TRIPCOUNT min=2 max=MAX_WIDE/BEAT_WORDS
            beat_t values = 0;
            if (floats) {
            word:
                for (int word = 0; word < BEAT_WORDS; word++) {
#pragma HLS UNROLL
                    const int index = beat * BEAT_WORDS + word;
                    set_word(values, word, bits_of(wide ? wide_[row][index] : x_[row][index]));
                }
            } else if (opcode == HEADS || opcode == DEPTH_HEADS) {
                values = qkv_[row][beat];
            } else if (beat < beats - 1) {
                values = x8_[row][beat];
            } else {
                set_word(values, 0, bits_of(x_scale_[row]));
            }
            give(cache, values);
        }
    }
}

}  // namespace fastcar

#endif
