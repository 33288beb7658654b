"""The model card that sits beside the weights, written from the figures of the run."""

from __future__ import annotations

from typing import Any

__all__ = ["model_card"]

_TEXT = """# car

A small auto-regressive video model: from a prompt of up to three words it generates 16 frames of 64 x 64 pixels at
{frame_rate:g} frames/s in the look of gymnasium's `CarRacing-v3`. It exists to try and test the whole path to the board on a real
model. It knows nothing else, and its weights are licensed like the project (Apache-2.0); trained {date}.

Made by `{command}`; seeds, order of clips and initial weights all follow from `--seed`.

## Model

- backbone: LLaMA-style decoder, {backbone_parameters:,} parameters, float16 on disk; {positions} positions: 4 of prompt (words, padding, start),
  then 16 frames of 8 x 8 codes in raster order
- tokenizer: convolutional VQ, {codes} codes of {embedding} channels; encoder {encoder_parameters:,}, decoder {decoder_parameters:,} parameters. The decoder consists of
  embedding lookup, 3 x 3 convolutions, ReLU, residual additions and nearest upsampling, so that integer arithmetic can run it
- prompts: {phrases}; the empty prompt is unconditional, for guidance

## Data

{train_episodes} training episodes ({train_frames:,} frames, track seeds {train_seeds}) and {held_out_episodes} held-out episodes ({held_out_frames:,} frames, track seeds
{held_out_seeds}); every 2nd step of the simulator is a frame, the first second (camera zoom) and the instrument bar are cut away,
every other episode is mirrored. A scripted driver follows the track by pure pursuit and changes its manoeuvre every one or two
seconds: cruise, fast, crawl, stop, leave the road, slide. Labels come from telemetry (speed, heading, sideways slip, wheels
beside the road), one a clip, the rarer event winning:

| phrase | training clips | held-out clips |
|---|---|---|
{label_rows}

(a clip starts every {train_stride} frame(s) in training, every {held_out_stride} held out; in training a phrase is drawn in proportion to the square root of its count)

## Training

- tokenizer: {tokenizer_recipe}
- backbone: {backbone_recipe}

| stage | wall minutes | CPU minutes |
|---|---|---|
{stage_rows}

Measured on 2 cores that were shared with other work; the CPU minutes are what the stages cost.

## Held-out figures

Of the float16 weights as shipped, on {clips} clips of the held-out episodes.

| | |
|---|---|
| cross-entropy of the backbone | {cross_entropy:.4f} nats/code |
| copy baseline, p(code given the code at the same place one frame earlier) | {baseline_cross_entropy:.4f} nats/code |
| difference | {relative_percent:.1f} % |
| the same without frame 0 | {cross_entropy_after_frame_0:.4f} against {baseline_cross_entropy_after_frame_0:.4f} nats/code |
| cross-entropy on the {shipped_clips} clips of `heldout.safetensors` | {shipped_cross_entropy:.4f} nats/code |
| copy baseline on the {shipped_clips} clips of `heldout.safetensors` | {shipped_baseline_cross_entropy:.4f} nats/code |
| reconstruction by the tokenizer | {reconstruction_psnr_db:.2f} dB PSNR |
| codes that never occur in the training episodes | {dead_codes} of {codes} |
| perplexity of the codes | {perplexity:g} |

The baseline is fitted with smoothing on as many training clips as the backbone has seen, drawn the same way; it scores frame 0 by
how often each code occurs at each place, the backbone from the prompt.

## Limits

The 8 x 8 codes keep road, car and kerb but soften the patches of grass and blend the red and white of the kerbs. A prompt
is a tendency, not a command: at guidance 2 the roads of `left turn` and `right turn` differ about a quarter as much as in the simulator, and a
road may bend again after its turn. Clips are 0.64 s long, so `slow`, `braking` and `accelerating` differ
only in how far the grass moves. Guidance of 1.5 to 3, temperature 1 and the 50 likeliest codes gave the best clips.

## Files

`config.json`, `backbone.safetensors`, `tokenizer.safetensors`, `metrics.json` (the figures above), `calibration.safetensors` (codes and prompts
of training clips, for quantization), `heldout.safetensors` (codes and prompts of held-out clips) and `heldout.png` (the frames of its first
clips before the tokenizer, a clip a row).
"""


def model_card(figures: dict[str, Any]) -> str:
    """The card from flat ``figures``; KeyError if one that the card states is missing."""
    rows = {
        "label_rows": _rows(figures["labels"]),
        "stage_rows": _rows(figures["stages"]),
        "relative_percent": 100 * figures["relative_to_baseline"],
    }
    return _TEXT.format(**figures, **rows)


def _rows(table: dict[str, list[Any]]) -> str:
    return "\n".join(f"| {name} | {' | '.join(map(str, values))} |" for name, values in table.items())
