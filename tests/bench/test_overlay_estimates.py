"""The table of the overlay's estimates: the cycle model on the 1.1 B shape, and the C simulation's own speed."""

from __future__ import annotations

import pytest
from shapes import SUSTAINED, count, decisions

from fastcar.hls.counting import EngineCounter
from fastcar.overlays import load_engine

POSITION = 1000
CASES = {  # engine, rows, replay ratio, whether the rows decide together
    "2 rows, 87 % replay": ("zcu106", 2, 0.87, True),
    "10 rows, 50 % replay, each its own": ("zcu102-batch", 10, 0.5, False),
}


@pytest.mark.parametrize("case", CASES)
def test_table(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    name, rows, ratio, together = CASES[case]
    engine = load_engine(name).config
    modes = count(EngineCounter(engine), rows, POSITION, decisions(rows, ratio, together))
    lines = [f"\n{case}: engine {name}, int4, position {POSITION}; estimated, not measured"]
    for mode in modes.values():
        lines.append(
            f"  {mode.mode:11} {mode.bytes_per_step / 1e6:8.2f} MB/step {mode.cycles_per_step:12,.0f} cycles"
            f" {mode.milliseconds_per_step(engine.clock_mhz):7.2f} ms  memory {100 * mode.memory_use:5.1f} %"
            f"  groups {100 * mode.group_utilisation:5.1f} %"
            f"  over its bytes {mode.cycles_per_step * mode.steps * SUSTAINED / mode.beats:6.3f} x"
        )
    with capsys.disabled():
        print("\n".join(lines))
    assert modes["replay+drs"].cycles_per_step < modes["replay"].cycles_per_step
