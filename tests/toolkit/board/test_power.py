"""Power sensors by scripted files, and the energy of frames against integrals found another way."""

from __future__ import annotations

import json
import math
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from fake_board import write, write_hwmon

from fastcar.toolkit.board import power_sources
from fastcar.toolkit.board.power import PowerMeter, PowerRail, PowerSources, open_power_sources
from fastcar.toolkit.board.power_record import EnergyRecord, energy_between

NO_RAILS = dict


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A board without a sensor."""
    write(tmp_path, "proc/device-tree/model", "ZynqMP ZCU102 Rev1.0\0")
    return tmp_path


def rail_file(file: Path, name: str = "ina226_u76") -> PowerSources:
    return PowerSources("hwmon", (PowerRail(name, lambda: float(file.read_text()) * 1e-6),))


def power_of(root: Path, rails=NO_RAILS) -> dict[str, tuple[float, bool]]:
    sources = open_power_sources(root, rails)
    return {} if sources is None else {rail.name: (rail.watts(), rail.total) for rail in sources.rails}


class TestSources:
    def test_a_kria_tells_the_module_in_microwatts(self, root: Path) -> None:
        write_hwmon(root, 0, "ina260_u14", in1_input=5052, curr1_input=952, power1_input=4_810_000)
        sources = open_power_sources(root, NO_RAILS)
        assert sources.label == "hwmon" and sources.basis == "total"
        assert power_of(root) == {"ina260_u14": (pytest.approx(4.81), True)}

    def test_sensors_of_a_workstation_are_not_a_board_s(self, root: Path) -> None:
        for number, name in enumerate(("amdgpu", "BAT0", "coretemp", "zenpower", "corsairpsu", "acpi_ina")):
            write_hwmon(root, number, name, power1_input=9_000_000)
        assert open_power_sources(root, NO_RAILS) is None

    def test_no_device_tree_no_measurement(self, tmp_path: Path) -> None:
        write_hwmon(tmp_path, 0, "ina260_u14", power1_input=4_810_000)
        assert open_power_sources(tmp_path, lambda: pytest.fail("not asked")) is None

    def test_this_computer_is_no_board(self) -> None:
        if power_sources.is_board():
            pytest.skip("it is one")
        assert open_power_sources() is None

    def test_rails_of_one_kind_of_sensor_are_summed(self, root: Path) -> None:
        write_hwmon(root, 10, "ina226_u79", power1_input=1_500_000)
        write_hwmon(root, 2, "ina226_u76", power1_input=250_000)
        write_hwmon(root, 3, "irps5401", power2_input=250_000)  # the regulator that u76 measures
        sources = open_power_sources(root, NO_RAILS)
        assert [rail.name for rail in sources.counted] == ["ina226_u76", "ina226_u79"]
        assert sources.basis == "sum of the measured rails"

    def test_the_input_of_the_board_is_its_total(self, root: Path) -> None:
        write_hwmon(root, 0, "ina226", in0_input=3, in1_input=12_040, curr1_input=1_500, power1_input=18_000_000)
        write_hwmon(root, 1, "ina226", in0_input=3, in1_input=850, curr1_input=1_000, power1_input=850_000)
        sources = open_power_sources(root, NO_RAILS)
        assert [rail.name for rail in sources.rails] == ["ina226 (hwmon0)", "ina226 (hwmon1)"]
        assert [rail.name for rail in sources.counted] == ["ina226 (hwmon0)"] and sources.basis == "total"

    def test_a_regulator_s_input_is_left_out(self, root: Path) -> None:
        files = {"power1_label": "pin", "power1_input": 9_000_000, "in1_input": 12_000}
        files |= {"power2_label": "pout1", "power2_input": 2_000_000, "power3_label": "pout2", "power3_input": 500_000}
        write_hwmon(root, 0, "irps5401", **files)
        assert power_of(root) == {
            "irps5401 pout1": (pytest.approx(2), False),
            "irps5401 pout2": (pytest.approx(0.5), False),
        }

    def test_voltage_times_current(self, root: Path) -> None:
        write_hwmon(root, 0, "ina3221", in1_input=5_000, curr1_input=300, in2_input=1_800, curr2_input=1_000)
        assert power_of(root) == {
            "ina3221 1": (pytest.approx(1.5), False),
            "ina3221 2": (pytest.approx(1.8), False),
        }

    def test_milliwatts_of_an_older_kernel_are_seen(self, root: Path) -> None:
        write_hwmon(root, 0, "ina260_u14", in1_input=5052, curr1_input=952, power1_input=4_810)
        assert power_of(root) == {"ina260_u14": (pytest.approx(4.81), True)}

    def test_iio_in_milliwatts_after_scale_and_offset(self, root: Path) -> None:
        device = "sys/bus/iio/devices/iio:device0"
        files = {"name": "ina226\n", "in_power2_raw": "106\n", "in_power2_scale": "12.5\n", "in_voltage1_raw": "678\n"}
        for name, content in files.items():
            write(root, f"{device}/{name}", content)
        assert power_of(root) == {"ina226 (iio:device0)": (pytest.approx(1.325), False)}
        write(root, f"{device}/in_power2_offset", "14\n")
        assert power_of(root) == {"ina226 (iio:device0)": (pytest.approx(1.5), False)}
        (root / device / "in_power2_scale").unlink()
        write(root, f"{device}/in_power_scale", "1000\n")
        assert power_of(root) == {"ina226 (iio:device0)": (pytest.approx(120), False)}

    def test_rails_that_pynq_names_come_first(self, root: Path) -> None:
        write_hwmon(root, 0, "ina226", power1_input=1)
        value = lambda number: SimpleNamespace(value=number)
        rails = {
            "12V": SimpleNamespace(power=value(18.0), voltage=None, current=None),
            "INT": SimpleNamespace(power=None, voltage=value(0.85), current=value(2.0)),
            "1V8": SimpleNamespace(power=None, voltage=value(1.8), current=None),
            "power1": SimpleNamespace(power=value(99.0), voltage=None, current=None),
        }
        sources = open_power_sources(root, lambda: rails)
        assert sources.label == "PYNQ's rails"
        assert power_of(root, lambda: rails) == {"12V": (18.0, True), "INT": (pytest.approx(1.7), False)}
        assert [rail.name for rail in sources.counted] == ["12V"]

    def test_bare_names_are_looked_for_in_hwmon(self, root: Path) -> None:
        write_hwmon(root, 0, "ina260_u14", power1_input=4_810_000)
        rails = {"power1": SimpleNamespace(power=SimpleNamespace(value=0.0), voltage=None, current=None)}
        assert power_of(root, lambda: rails) == {"ina260_u14": (pytest.approx(4.81), True)}

    def test_a_sensor_that_does_not_answer_is_left_out(self, root: Path) -> None:
        write_hwmon(root, 0, "ina226_u76", power1_input="")
        write_hwmon(root, 1, "ina226_u77", power1_input=1_000_000)
        assert list(power_of(root)) == ["ina226_u77"]

    @pytest.mark.parametrize("text", ["nan", "inf"])
    def test_one_that_says_no_number_is_none(self, root: Path, text: str) -> None:
        write_hwmon(root, 0, "ina226_u76", power1_input=text)
        assert open_power_sources(root, NO_RAILS) is None


class TestIntegral:
    def test_power_that_is_linear_between_samples(self) -> None:
        """P(t) = 3 t: between a and b, 1.5 (b^2 - a^2) joules, wherever the samples are."""
        times = np.array([0, 0.3, 1.0, 1.1, 2.0])
        marks = np.array([0, 0.05, 0.06, 0.9, 1.05, 2.0])
        found = energy_between(times, 3 * times, marks)
        assert found == pytest.approx(1.5 * np.diff(marks**2), rel=1e-12)

    def test_a_curve_against_a_fine_riemann_sum(self) -> None:
        random = np.random.default_rng(0)
        times = np.sort(random.uniform(0, 4, 60))
        watts = random.uniform(2, 9, 60)
        marks = np.sort(random.uniform(times[0], times[-1], 12))
        for energy, first, last in zip(energy_between(times, watts, marks), marks, marks[1:], strict=False):
            fine = (np.arange(20_000) + 0.5) / 20_000 * (last - first) + first
            assert energy == pytest.approx(np.interp(fine, times, watts).mean() * (last - first), rel=1e-5)

    def test_outside_of_the_samples_nothing_is_known(self) -> None:
        found = energy_between(np.array([1.0, 2.0]), np.array([5.0, 5.0]), np.array([0.5, 1.2, 1.5, 2.5]))
        assert np.isnan(found).tolist() == [True, False, True] and found[1] == pytest.approx(1.5)
        assert np.isnan(energy_between(np.array([]), np.array([]), np.array([0.0, 1.0]))).all()


class TestMeter:
    def test_steps_of_a_sensor_show_in_their_frames(self, tmp_path: Path) -> None:
        """2, 6 and 3 W written into the sensor's file a frame each; the integral is watts times seconds by itself."""
        file = write(tmp_path, "power1_input", "2000000")
        partial, frames = tmp_path / "new", []
        with PowerMeter(rail_file(file), interval_seconds=0.004) as meter:
            for watts in (2, 6, 3):  # long frames: a busy machine samples late
                partial.write_text(str(watts * 1_000_000))
                partial.replace(file)
                began = time.monotonic()
                time.sleep(0.5)
                meter.mark()
                frames.append((time.monotonic() - began) * watts)
        record = meter.record()
        assert record.energy_per_frame_joules == pytest.approx(frames, rel=0.3)
        assert record.energy_joules_total == pytest.approx(sum(frames), rel=0.1)
        assert record.samples > 30 and record.note == ""
        assert record.rails == ("ina226_u76",)

    def test_frames_shorter_than_the_interval(self, tmp_path: Path) -> None:
        file = write(tmp_path, "power1_input", "5000000")
        with PowerMeter(rail_file(file), interval_seconds=0.1) as meter:
            began = meter._marks[0]
            for _ in range(20):
                time.sleep(0.004)
                meter.mark()
        seconds = np.diff(meter._marks)
        record = meter.record()
        assert record.samples <= 4
        assert record.energy_per_frame_joules == pytest.approx(5 * seconds, rel=1e-9)
        assert record.energy_joules_total == pytest.approx(5 * (meter._marks[-1] - began))
        assert record.mean_watts == pytest.approx(5)

    def test_a_total_is_not_added_to_its_parts(self) -> None:
        rails = (
            PowerRail("INT", lambda: 2.0),
            PowerRail("12V", lambda: 10.0, total=True),
            PowerRail("1V8", lambda: 1.0),
        )
        with PowerMeter(PowerSources("x", rails), 0.005) as meter:
            time.sleep(0.02)
            meter.mark()
        record = meter.record()
        assert record.rails == ("12V",) and record.mean_watts == pytest.approx(10)
        assert record.mean_watts_of == {name: pytest.approx(w) for name, w in (("INT", 2), ("12V", 10), ("1V8", 1))}
        assert record.basis == "total"

    def test_a_frame_that_ends_while_a_slow_sensor_answers(self) -> None:
        """The last mark lies late within a reading: another has to begin after it."""
        late = threading.Event()

        def slow() -> float:
            time.sleep(0.04)
            late.set()
            time.sleep(0.02)
            return 2.0

        with PowerMeter(PowerSources("x", (PowerRail("a", slow),)), 0.001) as meter:
            for _ in range(3):
                late.clear()
                late.wait()
            meter.mark()
        assert meter.record().energy_per_frame_joules == pytest.approx(2 * np.diff(meter._marks))

    def test_of_two_inputs_one_is_counted(self) -> None:
        rails = tuple(PowerRail(name, float, total=True) for name in ("12V", "12V auxiliary"))
        assert PowerSources("x", rails).counted == rails[:1]

    def test_a_sensor_that_vanishes_ends_the_measurement_only(self, tmp_path: Path) -> None:
        file = write(tmp_path, "power1_input", "4000000")
        with PowerMeter(rail_file(file), interval_seconds=0.004) as meter:
            time.sleep(0.03)
            meter.mark()
            time.sleep(0.03)
            file.unlink()
            time.sleep(0.03)
            meter.mark()
        record = meter.record()
        assert record.energy_per_frame_joules[0] == pytest.approx(4 * np.diff(meter._marks)[0], rel=1e-9)
        assert np.isnan(record.energy_per_frame_joules[1])
        assert record.energy_joules_total == record.energy_per_frame_joules[0]
        assert "ended after" in record.note and "No such file" in record.note and record.note in record.text()

    @pytest.mark.parametrize("error", [ValueError("could not convert"), RuntimeError("driver")], ids=str)
    def test_a_sensor_that_never_answers(self, error: Exception) -> None:
        def fails() -> float:
            raise error

        with PowerMeter(PowerSources("x", (PowerRail("a", fails),))) as meter:
            meter.mark()
        record = meter.record()
        assert record.samples == 0 and math.isnan(record.mean_watts)
        assert record.text().startswith("not measured (the measurement ended after 0 samples: ")
        assert record.summary()["joules_total"] is None

    def test_a_sensor_that_hangs_does_not_hold_the_clip(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from fastcar.toolkit.board import power

        monkeypatch.setattr(power, "PATIENCE_SECONDS", 0.05)
        answer = threading.Event()
        began = time.monotonic()
        with PowerMeter(PowerSources("x", (PowerRail("a", lambda: float(answer.wait(30))),))) as meter:
            meter.mark()
        assert time.monotonic() - began < 5
        answer.set()
        assert "did not answer" in meter.record().note

    @pytest.mark.parametrize("text", ["nan", "inf", "-inf", "", "12 W", "\udcff"])
    def test_a_sensor_that_says_no_number(self, tmp_path: Path, text: str) -> None:
        file = tmp_path / "power1_input"
        file.write_text("2000000")
        with PowerMeter(rail_file(file), interval_seconds=0.01) as meter:
            time.sleep(0.05)
            meter.mark()
            time.sleep(0.03)
            file.write_text(text, errors="surrogateescape")
            time.sleep(0.05)
            meter.mark()
        record = meter.record()
        assert "ended after" in record.note
        assert record.mean_watts == pytest.approx(2) and record.energy_joules_total > 0
        assert json.loads(json.dumps(record.summary(), allow_nan=False))["joules_of_frames"][1] is None

    def test_an_error_of_the_clip_goes_through_and_the_thread_ends(self, tmp_path: Path) -> None:
        file = write(tmp_path, "power1_input", "4000000")
        with pytest.raises(KeyboardInterrupt), PowerMeter(rail_file(file), 0.005) as meter:
            raise KeyboardInterrupt
        assert not meter._thread.is_alive()
        assert len(meter.record().energy_per_frame_joules) == 0

    def test_interval(self) -> None:
        with pytest.raises(ValueError, match="interval_seconds 0"):
            PowerMeter(PowerSources("x", (PowerRail("a", float),)), 0)


class TestRecord:
    record = EnergyRecord(
        ("INT", "1V8"), "sum of the measured rails", "hwmon", np.array([1.0, 2.0, np.nan]), 12.5, {"INT": 2.0}, 31, 0.1
    )

    def test_summary_is_strict_json(self) -> None:
        summary = json.loads(json.dumps(self.record.summary(), allow_nan=False))
        assert summary["joules_of_frames"] == [1.0, 2.0, None]
        assert summary["joules_total"] == 3.0 and summary["joules_per_frame"] == 1.5
        assert summary["basis"] == "sum of the measured rails" and summary["rails"] == ["INT", "1V8"]

    def test_text(self) -> None:
        assert self.record.text() == (
            "1.5 J per frame, 3 J in all, mean 12.5 W (sum of the measured rails: INT, 1V8; hwmon, sampled at 10 Hz)"
        )

    def test_in_the_report(self) -> None:
        from fastcar.toolkit.generation.record import Generation
        from fastcar.toolkit.report.settings_table import settings_table
        from fastcar.toolkit.report.view import ReportFacts, RunView

        tas = np.zeros((1, 1, 1, 1), np.float32)
        run = Generation(("a",), np.zeros((1, 1, 1), int), tas, tas > 0, (None,), np.ones(1), (1, 1))
        view = RunView(run, np.zeros((1, 1, 8, 8, 3), np.uint8))
        facts = {"model": "car", "recipe": "w8a8", "backend": "pynq", "machine": "KV260"}
        lines = dict(settings_table(view, ReportFacts(**facts)))
        assert lines["energy"] == "not measured (no power sensor of a board)"
        measured = RunView(run, view.frames, self.record)
        assert dict(settings_table(measured, ReportFacts(**facts)))["energy"] == self.record.text()
