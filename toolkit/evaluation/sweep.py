"""A sweep from settings to rows: what it checks first, its two stages, and what every row says."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..bundle.bundle import Bundle
from ..errors import UsageError
from ..generation.run import check_frames
from ..output import check_output_folder
from ..settings import ReplaySettings
from .execute import Execute
from .moved import why_not_counted
from .run import Calibration, Measured, Run, Subject, perform
from .setting import Setting
from .store import Store, calibration_key, identity, require_polars, run_key

__all__ = ["Advance", "Plan", "default_processes", "plan_sweep", "run_sweep"]

Advance = Callable[[str, int, int], None]
BYTES_PER_RUN = 64 << 10  # of its two files and its rows; codes are added
BYTES_AT_LEAST = 16 << 20
TRIAL_PROMPTS = 3


@dataclass(frozen=True)
class Plan:
    """A sweep whose inputs are valid. ``subjects``: by the name of the bundle. ``uncounted``: why a bundle's bytes are
    not counted, by name."""

    out: Path
    subjects: dict[str, Subject]
    recipes: dict[str, str]
    layers: dict[str, int]
    settings: tuple[Setting, ...]
    prompts: tuple[str, ...]
    trial_prompts: tuple[str, ...]
    seeds: tuple[int, ...]
    uncounted: dict[str, str]

    @property
    def runs(self) -> int:
        return len(self.subjects) * len(self.settings) * len(self.prompts) * len(self.seeds)


def plan_sweep(
    bundles: Sequence[Bundle],
    settings: Sequence[Setting],
    prompts: Sequence[str],
    seeds: int,
    out: Path,
    *,
    frames: int | None = None,
    guidance: float | None = None,
    trial_prompts: Sequence[str] = (),
    backend: str = "onnxruntime",
    prompts_option: str = "--prompts",
    bytes_needed: int = 0,
) -> Plan:
    """UsageError or OutputError, before any work, for what cannot be run on one of the bundles or written.

    ``trial_prompts``: thresholds for a ratio are found on these; by default on up to three that a bundle knows and the
    sweep does not use.
    """
    require_polars()
    if seeds < 1:
        raise UsageError("--seeds", str(seeds), "at least 1, how many to run of each prompt", "Ask for more.")
    if seeds > 1 << 32:
        raise UsageError("--seeds", str(seeds), "at most 2^32", "Ask for fewer.")
    prompts = tuple(dict.fromkeys(prompts))
    check_prompts(bundles, prompts, prompts_option)
    check_prompts(bundles, trial_prompts, "--calibration-prompts")
    subjects, uncounted, needed = {}, {}, BYTES_AT_LEAST + bytes_needed
    for name, bundle in zip(_names(bundles), bundles, strict=True):
        manifest = bundle.manifest
        count = check_frames(bundle, frames)
        for setting in settings:
            setting.check(manifest.config.layers, count)
        if reason := why_not_counted(bundle):
            uncounted[name] = reason
        sampling = manifest.sampling if guidance is None else replace(manifest.sampling, guidance=guidance)
        subjects[name] = Subject(
            str(bundle.path.resolve()), identity(manifest), count, sampling, backend, reason is None
        )
        codes = 4 * count * manifest.frame_layout.cells * (manifest.depth.codes_per_position if manifest.depth else 1)
        needed += len(settings) * len(prompts) * seeds * (BYTES_PER_RUN + codes)
    if any(setting.kind == "replay_ratio" for setting in settings):
        trial_prompts = trial_prompts or _other_prompts(bundles, prompts)
    check_output_folder(out, needed)
    return Plan(
        out=out,
        subjects=subjects,
        recipes={name: str(b.manifest.recipe.get("name")) for name, b in zip(subjects, bundles, strict=True)},
        layers={name: b.manifest.config.layers for name, b in zip(subjects, bundles, strict=True)},
        settings=tuple(settings),
        prompts=prompts,
        trial_prompts=tuple(trial_prompts),
        seeds=tuple(range(seeds)),
        uncounted=uncounted,
    )


def check_prompts(bundles: Sequence[Bundle], prompts: Sequence[str], option: str) -> None:
    """UsageError that lists every prompt that a bundle does not know."""
    unknown: dict[str, str] = {}
    for bundle in bundles:
        for prompt in prompts:
            try:
                bundle.prompts.encode(prompt, bundle.manifest.frame_layout.prompt_length)
            except UsageError as error:
                unknown.setdefault(prompt, error.found)
    if unknown:
        listed = "; ".join(f"{prompt!r} ({reason})" for prompt, reason in unknown.items())
        known = ", ".join(repr(phrase) for phrase in bundles[0].prompts.known[:10])
        found = f"{len(unknown)} of {len(prompts)} prompts the model does not know: {listed}"
        raise UsageError(option, found, f"prompts such as {known}", "Leave these out, or use another bundle.")


def default_processes(bundles: Sequence[Bundle]) -> int:
    """One a core, as far as twice the largest bundle fits the free memory as often."""
    cores = len(os.sched_getaffinity(0))
    largest = max(sum(entry.bytes for entry in bundle.manifest.files.values()) for bundle in bundles)
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError, IndexError):
        return cores
    return max(1, min(cores, free // (2 * largest)))


def run_sweep(
    plan: Plan,
    execute: Execute,
    processes: int,
    advance: Advance = lambda stage, done, total: None,
    say: Callable[[str], None] = lambda text: None,
) -> list[dict[str, Any]]:
    """Rows of all runs, in the order of bundles, settings, prompts and seeds; what is in the store is not done again.

    First thresholds and the dense runs, then all that is compared with these. ``processes`` 0: the executor knows how
    many, and the rows do not say. KeyboardInterrupt says what is kept.
    """
    store = Store(plan.out)
    with store.locked():
        first = [*_calibrations(plan), *_dense(plan).values()]
        _perform(store, first, "thresholds and dense runs", execute, processes, advance, say)
        thresholds = _thresholds(plan, store)
        runs = _runs(plan, thresholds)
        dense = {place: store.codes(run.key) for place, run in _dense(plan).items()}
        references = {run.key for run in _dense(plan).values()}
        compared = {
            run.key: replace(run, dense=dense[name, prompt, seed])
            for (name, _, prompt, seed), run in runs.items()
            if run.key not in references
        }
        # Runs against one reference follow each other, so that it is decoded once.
        ordered = sorted(
            compared.values(), key=lambda run: (run.subject.path, plan.prompts.index(run.prompt), run.seed)
        )
        _perform(store, ordered, "runs", execute, processes, advance, say)
        return [_row(plan, store, place, run) for place, run in runs.items()]


def _calibrations(plan: Plan) -> list[Calibration]:
    found: dict[str, Calibration] = {}
    for name, subject in plan.subjects.items():
        for setting in plan.settings:
            for one in _trials(plan, name, subject, setting):
                found[one.key] = one
    return list(found.values())


def _trials(plan: Plan, name: str, subject: Subject, setting: Setting) -> list[Calibration]:
    """One a prompt: rows of several clips in one step would decide together."""
    if setting.kind != "replay_ratio":
        return []
    replay, ratio, attention = setting.replay(plan.layers[name]), setting.replay_ratio, setting.attention
    return [
        Calibration(
            calibration_key(subject, ratio, replay, attention, prompt), subject, ratio, replay, attention, prompt
        )
        for prompt in plan.trial_prompts
    ]


def _thresholds(plan: Plan, store: Store) -> dict[tuple[str, Setting], float]:
    """By bundle and setting: the median over the prompts it was calibrated on."""
    found = {}
    for name, subject in plan.subjects.items():
        for setting in plan.settings:
            if trials := _trials(plan, name, subject, setting):
                values = [store.load(trial.key)["threshold"] for trial in trials]
                found[name, setting] = statistics.median_low(values)
    return found


def _dense(plan: Plan) -> dict[tuple[str, str, int], Run]:
    """By bundle, prompt and seed."""
    reference = next(setting for setting in plan.settings if setting.is_reference)
    return {
        (name, prompt, seed): _one(subject, ReplaySettings(), reference, prompt, seed)
        for name, subject in plan.subjects.items()
        for prompt in plan.prompts
        for seed in plan.seeds
    }


def _runs(plan: Plan, thresholds: dict[tuple[str, Setting], float]) -> dict[tuple[str, Setting, str, int], Run]:
    """By bundle, setting, prompt and seed."""
    runs = {}
    for name, subject in plan.subjects.items():
        for setting in plan.settings:
            replay = setting.replay(plan.layers[name], thresholds.get((name, setting)))
            if setting.kind == "dense":
                replay = ReplaySettings()
            for prompt in plan.prompts:
                for seed in plan.seeds:
                    runs[name, setting, prompt, seed] = _one(subject, replay, setting, prompt, seed)
    return runs


def _one(subject: Subject, replay: ReplaySettings, setting: Setting, prompt: str, seed: int) -> Run:
    run = Run("", subject, replay, setting.attention, prompt, seed)
    return replace(run, key=run_key(subject, run))


def _perform(
    store: Store,
    tasks: Sequence[Calibration | Run],
    stage: str,
    execute: Execute,
    processes: int,
    advance: Advance,
    say: Callable[[str], None],
) -> None:
    """Those that the store does not have."""
    missing = [task for task in tasks if store.load(task.key) is None]
    done = len(tasks) - len(missing)
    advance(stage, done, len(tasks))

    def on_done(index: int, measured: Measured) -> None:
        nonlocal done
        done += 1
        store.save(missing[index].key, measured, processes=min(processes, len(missing)) or None)
        advance(stage, done, len(tasks))

    def on_lost(index: int, how: str) -> None:
        say(f"a process ended ({how}) in a run of {missing[index].prompt!r}: it is done again")

    try:
        if missing:
            execute(perform, missing, processes, on_done, on_lost)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"{done} of {len(tasks)} {stage} are kept; the same command goes on") from None


def _row(
    plan: Plan,
    store: Store,
    place: tuple[str, Setting, str, int],
    run: Run,
) -> dict[str, Any]:
    """A run beside the dense run of its prompt and seed."""
    name, setting, prompt, seed = place
    found = store.load(run.key)
    dense = store.load(_dense(replace(plan, prompts=(prompt,), seeds=(seed,)))[name, prompt, seed].key)
    row = {
        **found,
        "bundle": name,
        "recipe": plan.recipes[name],
        "setting": setting.title,
        "kind": setting.kind,
        "policy": run.replay.policy,
        "max_age": run.replay.max_age,
        "refresh": run.replay.refresh,
        "attention_window": run.attention.window,
        "attention_sinks": run.attention.sinks,
        "attention_columns": run.attention.columns,
        "wanted_ratio": setting.wanted_ratio,
        "thresholds": list(run.replay.thresholds) or [None] * plan.layers[name],
        "seed": str(seed),
        "frames": run.subject.frames,
        "speed_up": dense["seconds"] / found["seconds"],
        **{f"dense_{field}": dense[field] for field in ("seconds", "bytes_per_step", "nll", "flicker")},
    }
    if run.key == dense["key"]:  # it is that run
        frames = run.subject.frames
        same = {"psnr_db": math.inf, "psnr_per_frame": [math.inf] * frames, "identical_frames": frames}
        row |= {**same, "ssim": 1.0, "code_agreement": 1.0}
    return row


def _names(bundles: Sequence[Bundle]) -> list[str]:
    """Names of the folders, or their paths where two are alike. UsageError for a bundle that is given twice."""
    paths = [bundle.path.resolve() for bundle in bundles]
    if len(set(paths)) < len(paths):
        twice = next(path for path in paths if paths.count(path) > 1)
        raise UsageError("BUNDLE", f"{twice} twice", "each bundle once", "Drop one.")
    names = [path.name for path in paths]
    return names if len(set(names)) == len(names) else [str(path) for path in paths]


def _other_prompts(bundles: Sequence[Bundle], prompts: Sequence[str]) -> tuple[str, ...]:
    """Known to every bundle and not among ``prompts``. UsageError if there is none."""
    shared = [p for p in bundles[0].prompts.known if all(p in bundle.prompts.known for bundle in bundles[1:])]
    found = tuple(prompt for prompt in shared if prompt not in prompts)[:TRIAL_PROMPTS]
    if not found:
        raise UsageError(
            "--calibration-prompts",
            "none, and the sweep uses all the bundle lists",
            "a file of other prompts to find the thresholds on",
            "Name one, or leave a prompt out of the sweep.",
        )
    return found
