// Executor: sampling and the record of a step. With a depth transformer a clip samples D codes a step, one after the
// other: `operation.index` is the one.
#ifndef FASTCAR_EXECUTOR_SAMPLING_H
#define FASTCAR_EXECUTOR_SAMPLING_H

#include "executor.h"

namespace fastcar {

inline void Executor::sample_codes(const Operation& operation, CacheStreams& cache) {
    const SampleSettings settings = {control_.guidance, control_.inverse_temperature, control_.top_k, control_.top_p};
    const int unconditional = control_.rows - control_.clips;  // 0 without guidance
    const int each = records_.each();
    const bool predicts = (control_.flags & FLAG_PROMPT) == 0;
    const bool last = MAX_DEPTH_LAYERS == 0 || operation.index == each - 1 || !predicts;
    if (last) write_record(operation, cache);
clip:
    for (int clip = 0; clip < (predicts ? (int)control_.clips : 0); clip++) {
// not pipelined: the passes over the codes are
#pragma HLS LOOP_TRIPCOUNT min=1 max=ROWS
        guided_logits<MAX_CODES>(wide_[clip], wide_[clip + unconditional], settings.guidance, logits_, model_.codes);
        const int place = clip * each + operation.index;
        const uint32_t uniform = uniforms_[place];
        uint32_t code = (uint32_t)sample(sample_, logits_, settings, uniform & 0xFFFFFFu, model_.codes);
        if (has_depth(network_.backbone) && (uniform & GIVEN) != 0) code = known_code(uniform & ~GIVEN);
        codes_[place] = code;
        if (records_.logit_beats > 0) write_logits(operation, clip, cache);
    }
    if (!last) {
    row:
        for (int row = 0; row < (int)control_.rows; row++) {
// not pipelined: a row is a burst of its code
#pragma HLS LOOP_TRIPCOUNT min=1 max=ROWS
            const uint32_t code = codes_[row % control_.clips * each + operation.index];
            add_code(row, operation.index, code, cache);
        }
        return;
    }
    store(cache, control_.output + operation.step * records_.output(control_.clips), records_.code_beats, false);
code:
    for (int beat = 0; beat < (int)records_.code_beats; beat++) {
#pragma HLS PIPELINE II=1
#pragma HLS LOOP_TRIPCOUNT min=1 max=MAX_ROWS*MAX_DEPTH_CODES/BEAT_WORDS
        beat_t values = 0;
    code_word:
        for (int word = 0; word < BEAT_WORDS; word++) {
#pragma HLS UNROLL
            const int place = beat * BEAT_WORDS + word;
            if (predicts && place < (int)control_.clips * each) set_word(values, word, codes_[place]);
        }
        give(cache, values);
    }
    counters_.steps++;
}

inline void Executor::write_logits(const Operation& operation, int clip, CacheStreams& cache) {
    const uint32_t record = control_.output + operation.step * records_.output(control_.clips);
    const uint32_t first = records_.code_beats + records_.replay_beats + records_.score_beats;
    const uint32_t place = clip * records_.each() + operation.index;
    store(cache, record + first + place * records_.logit_beats, records_.logit_beats, false);
logit:
    for (int beat = 0; beat < (int)records_.logit_beats; beat++) {
#pragma HLS PIPELINE II=1
#pragma HLS LOOP_TRIPCOUNT min=2 max=MAX_CODES/BEAT_WORDS
        beat_t values = 0;
    word:
        for (int word = 0; word < BEAT_WORDS; word++) {
#pragma HLS UNROLL
            const int code = beat * BEAT_WORDS + word;
            if (code < (int)model_.codes) set_word(values, word, bits_of(logits_[code]));
        }
        give(cache, values);
    }
}

// Decisions and scores of all layers, behind the codes.
inline void Executor::write_record(const Operation& operation, CacheStreams& cache) {
    const uint32_t record = control_.output + operation.step * records_.output(control_.clips);
    const int layers = network_.backbone.layers;
    store(cache, record + records_.code_beats, records_.replay_beats + records_.score_beats, false);
mask:
    for (int beat = 0; beat < (int)records_.replay_beats; beat++) {
#pragma HLS PIPELINE II=1
#pragma HLS LOOP_TRIPCOUNT min=1 max=MAX_LAYERS/BEAT_WORDS
        beat_t values = 0;
    mask_word:
        for (int word = 0; word < BEAT_WORDS; word++) {
#pragma HLS UNROLL
            const int layer = beat * BEAT_WORDS + word;
            if (layer < layers) set_word(values, word, replays_[layer]);
        }
        give(cache, values);
    }
    int layer = 0;
    int row = 0;
score:
    for (int beat = 0; beat < (int)records_.score_beats; beat++) {
// two scores of one memory a clock would need a second port
#pragma HLS PIPELINE II=2
#pragma HLS LOOP_TRIPCOUNT min=1 max=MAX_LAYERS*ROWS/2
        beat_t values = 0;
    score_word:
        for (int half = 0; half < 2; half++) {
#pragma HLS UNROLL
            if (layer < layers) values.range(64 * half + 63, 64 * half) = (uint64_t)scores_[layer][row];
            row++;
            if (row == (int)control_.rows) {
                row = 0;
                layer++;
            }
        }
        give(cache, values);
    }
}

}  // namespace fastcar

#endif
