"""The AXI-Lite registers: what the host writes before a start, what it reads after it, and the error codes."""

from __future__ import annotations

from .words import Record, Word

__all__ = [
    "CONTROL",
    "FLAG_LOGITS",
    "FLAG_PROMPT",
    "FLAG_REASSIGN",
    "FLAG_TEACHER",
    "FLAG_TRACE",
    "GIVEN",
    "OWN_CODE",
    "POLICY_CODES",
    "REPORT",
    "STATUS",
    "merge_words",
]

FLAG_REASSIGN = 1  # Dynamic Resource Scheduling: drop what replays, deal the groups to the rows that compute
FLAG_TEACHER = 2  # every step reads the tokens the host wrote; none of them may be OWN_CODE
FLAG_LOGITS = 4  # record the logits of every step
FLAG_TRACE = 8  # record what every node of the step leaves behind; of one step a start
FLAG_PROMPT = 16  # predict nothing: no head, no depth transformer, no logits and no codes in the records

OWN_CODE = 0xFFFFFFFF  # in place of a token, but the first step's: read the code sampled before; else a separator

GIVEN = 1 << 31  # in place of a uniform, plus a code: a depth transformer goes on with it, whatever it would choose

FLAGS = {
    "FLAG_REASSIGN": FLAG_REASSIGN,
    "FLAG_TEACHER": FLAG_TEACHER,
    "FLAG_LOGITS": FLAG_LOGITS,
    "FLAG_TRACE": FLAG_TRACE,
    "FLAG_PROMPT": FLAG_PROMPT,
}

POLICY_CODES = {"independent": 0, "mean": 1, "all": 2}

CONTROL = Record(
    "Control",
    "Written by the host before a start. Addresses and sizes in beats of 16 bytes.",
    (
        Word("descriptors", "of the program, the model header included"),
        Word("weight_beats", "size of the weight buffer"),
        Word("state_beats", "size of the state buffer"),
        Word("rows", "sequences of a step"),
        Word("padding", "first slots that hold nothing, of the row that has most; how many of each: see thresholds"),
        Word("clips", "rows that are sampled: the first ones; as many unconditional rows follow with guidance"),
        Word("slots", "of the caches, a multiple of 64"),
        Word("position", "of the first step"),
        Word("steps", "to run"),
        Word("texts", "of them, first ones, that read tokens; the others read codes (with a depth transformer)"),
        Word("flags", ", ".join(FLAGS)),
        Word("policy", "of the replay decision"),
        Word("max_age", "how often in a row a value may be replayed", "i32"),
        Word("sinks", "first slots that every position sees"),
        Word("window", "last slots a position sees; 0: all"),
        Word("columns", "earlier frames whose same place a position sees beside the window, up to MAX_COLUMNS"),
        Word("guidance", "scale of classifier-free guidance", "f32"),
        Word("inverse_temperature", "factor of the logits", "f32"),
        Word("top_k", "codes that are kept"),
        Word("top_p", "probability that is kept, units of 2^-16"),
        Word("thresholds", "state address of the layers' thresholds, int64; behind them each row's padding"),
        Word("input", "state address of what the steps read (tokens, codes or OWN_CODE) and of uniforms"),
        Word("output", "state address of the steps' codes, decisions, scores, logits"),
        Word("trace", "state address of what the nodes of a traced step leave behind"),
    ),
)

REPORT = Record(
    "Report",
    "Read by the host after a start. Counters of this start; 64-bit ones are two words, the low one first.",
    (
        Word("status", "0: done; else an error code"),
        Word("build_id", "of this engine"),
        Word("steps_done", "steps finished"),
        Word("rows_replayed", "MLP evaluations replayed, over rows and layers"),
        Word("passes_skipped", "MLPs of a layer no row computed: weights not fetched"),
        *(
            Word(f"{name}_{half}", about if half == "low" else "")
            for name, about in (
                *((f"weight_beats{port}", f"beats of weights read by port {port}") for port in range(4)),
                *((f"cache_beats{port}", f"beats of K and V read by port {port}") for port in range(4)),
                ("cache_reads", "beats read by the cache port"),
                ("cache_writes", "beats written by the cache port"),
            )
            for half in ("low", "high")
        ),
        Word("busy_low", "group clocks worked, over all groups"),
        Word("busy_high", ""),
        Word("loop_low", "clocks of the loops that use the groups"),
        Word("loop_high", ""),
        Word(
            "cycles_low", "clocks from start to end: 0 in the engine's own report, the cycle model's in a counted one"
        ),
        Word("cycles_high", ""),
        Word("stalls_low", "clocks in which the groups waited for a read port; likewise"),
        Word("stalls_high", ""),
    ),
)

STATUS = {
    0: ("DONE", "done"),
    1: ("BAD_BUILD", "the program was made for another engine"),
    2: ("BAD_MODEL", "the model's shape exceeds what the engine was built for"),
    3: ("BAD_PROGRAM", "a descriptor is not what must come at its place"),
    4: ("BAD_WEIGHTS", "a descriptor points outside the weight buffer"),
    5: ("BAD_ROWS", "more rows than the engine was built for, or clips that do not match them"),
    6: ("BAD_CONTEXT", "the steps go beyond the caches or the rotary tables"),
    7: ("BAD_STATE", "the state buffer is too small for the caches or the records of the steps"),
    8: ("BAD_SETTINGS", "a setting is outside its range"),
    9: ("BAD_TOKEN", "a token or code the host wrote is outside the vocabulary or codebook; entry 0 was used"),
}


def merge_words(report: dict[str, int]) -> dict[str, int]:
    """A report with every pair of low and high words as one number."""
    whole = {name: value for name, value in report.items() if not name.endswith(("_low", "_high"))}
    pairs = [name.removesuffix("_low") for name in report if name.endswith("_low")]
    return whole | {name: report[f"{name}_low"] | report[f"{name}_high"] << 32 for name in pairs}
