"""A run: rows survive who crashes, time that is up is said, and the command shows all of it."""

from __future__ import annotations

import json
import math
import time

import pytest

from core.bench import running
from core.bench.case import suite
from core.bench.process import Lost
from core.bench.running import Options
from core.cli.main import run as command
from core.errors import BenchError
from tests.packaging.layout import ROOT

CASE = suite("small", ["softmax"])[0]


class Scripted:
    """A process that answers as it is told; `started` counts them."""

    def __init__(self, answers: list) -> None:
        self.answers = answers
        self.asked: list[dict] = []
        self.closed = 0

    def ask(self, request, timeout_s, until_s=math.inf):
        self.asked.append(json.loads(json.dumps(request)))  # as it is at the time
        found = self.answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    def close(self):
        self.closed += 1


@pytest.fixture
def measured(monkeypatch):
    def measure(answers, compiled=()):
        process = Scripted(answers)
        one = running._Run(Options("cuda:h200"), [CASE], lambda text: None)
        monkeypatch.setattr(one, "_process", lambda: process)
        one.compiled = dict(compiled)
        row, left = one._measure(CASE, process, 20.0)
        return row, left, process

    return measure


def answered(**contenders):
    return {"status": "ok", "contenders": {n: {"status": s, "reason": ""} for n, s in contenders.items()}, "ratios": {}}


def test_a_row_is_measured_again_without_who_crashed(measured):
    row, left, process = measured(
        [Lost("its process ended with SIGSEGV", "tilehal"), answered(tilehal="failed", copy="ok")]
    )
    assert process.asked[0]["skip"] == {}
    assert process.asked[1]["skip"] == {"tilehal": "its process ended with SIGSEGV"}
    assert row["contenders"]["copy"]["status"] == "ok"
    assert left is process
    assert process.closed == 1


def test_and_without_who_spoilt_the_device_s_context(measured):
    spoilt = {"status": "failed", "reason": "an illegal access", "spoilt_by": "triton", "restart": True}
    _, _, process = measured([spoilt, answered(tilehal="ok")])
    assert process.asked[1]["skip"] == {"triton": "an illegal access"}


@pytest.mark.parametrize("doing", ["timing", ""])
def test_a_row_that_nobody_in_particular_ended_is_given_up(measured, doing):
    row, left, process = measured([Lost("no answer within 75 s", doing)])
    assert (row["status"], row["contenders"], left) == ("failed", {}, None)
    assert "no answer" in row["reason"]
    assert len(process.asked) == 1


def test_a_row_that_the_budget_ends_is_nobody_s_fault():
    one = running._Run(Options("cuda:h200", budget_s=60.0), [CASE], lambda text: None)
    one.started -= 3600.0
    process = Scripted([Lost("no answer within 2 s", "tilehal")])
    row, left = one._measure(CASE, process, 20.0)
    assert (row["status"], row["reason"], row["contenders"], left) == ("not measured", "no time left", {}, None)
    assert len(process.asked) == 1  # not again without the one that was running


def test_a_row_that_would_take_longer_than_there_is_time_leaves_the_rest_to_others(measured):
    row, left, process = measured([{"status": "not measured", "reason": "no time left: timing it takes 51 s or more"}])
    assert (row["status"], row["contenders"], row["ratios"]) == ("not measured", {}, {})
    assert row["reason"] == "no time left: timing it takes 51 s or more"
    assert left is process  # the next row can have it
    assert process.asked[0]["settings"]["within_s"] is None


def test_what_is_under_way_is_given_up_soon_after_the_budget():
    one = running._Run(Options("cuda:h200", budget_s=60.0), [CASE], lambda text: None)
    asked = []

    class Patient(Scripted):
        def ask(self, request, timeout_s, until_s=math.inf):
            asked.append((request["do"], until_s, request.get("settings", {}).get("within_s")))
            return answered(tilehal="ok")

    one._measure(CASE, Patient([]), 20.0)
    one._launch(Patient([]), on_cpu=True)
    assert [(what, until) for what, until, _ in asked] == [
        ("measure", one.started + 60.0 + running._GRACE_S),
        ("launch", one.started + 60.0 + running._GRACE_S),
    ]
    assert 0 < asked[0][2] <= 60.0


def test_what_does_not_compile_is_not_run(measured):
    compiled = {
        (CASE.name, "tilehal"): {"status": "failed", "reason": "ptxas gave up", "compile_s": 3.0},
        (CASE.name, "tilelang"): {"status": "not measured", "reason": "no time left to compile it", "compile_s": 0.0},
        (CASE.name, "triton"): {"status": "not measured", "reason": "Triton cannot be imported", "compile_s": 0.1},
        (CASE.name, "triton overlapped"): {"status": "not measured", "reason": "no gdc_wait", "compile_s": 0.1},
        ("another case", "tilehal"): {"status": "failed", "reason": "other"},
    }
    row, _, process = measured([answered(tilehal="failed", tilelang="failed", copy="ok")], compiled)
    assert process.asked[0]["skip"] == {"tilehal": "ptxas gave up", "tilelang": "no time left to compile it"}
    assert row["contenders"]["tilehal"] == {"status": "failed", "reason": "", "compile_s": 3.0}
    assert row["contenders"]["tilelang"]["status"] == "not measured"


def test_a_step_without_which_there_is_no_benchmark_ends_it():
    one = running._Run(Options("cuda:h200"), [CASE], lambda text: None)
    process = Scripted([{"status": "failed", "reason": "no device"}, Lost("its process ended with SIGSEGV")])
    for reason in ("no device", "its process ended with SIGSEGV"):
        with pytest.raises(BenchError, match=f"the benchmark's describe step failed: {reason}") as caught:
            one._ask(process, {"do": "describe"}, 20.0)
        assert (caught.value.code, bool(caught.value.hint)) == ("bench", True)


def test_every_error_of_a_benchmark_has_a_kind():
    modules = [*(ROOT / "core" / "bench").rglob("*.py"), ROOT / "core" / "cli" / "bench.py"]
    assert [path.name for path in modules if "raise TileHALError" in path.read_text()] == []


def test_time_is_shared_among_the_rows_that_are_left():
    one = running._Run(Options("cuda:h200", budget_s=100.0), [CASE], lambda text: None)
    assert one._repeat_ms(1) == 60.0
    assert 10.0 <= one._repeat_ms(80) < 60.0
    one.started = time.monotonic() - 99.0
    assert one._repeat_ms(1) is None
    assert running._Run(Options("cuda:h200"), [CASE], lambda text: None)._repeat_ms(1000) == 60.0


def test_the_command_measures_shows_draws_and_writes(tmp_path, capsys, monkeypatch):
    files = {name: tmp_path / name for name in ("run.json", "run.svg", "page.md")}
    arguments = ["bench", "softmax", "--target", "cpu", "--repeat-ms", "2", "--no-raw", "--seed", "5"]
    written = [
        "--json",
        str(files["run.json"]),
        "--picture",
        str(files["run.svg"]),
        "--markdown",
        str(files["page.md"]),
    ]
    monkeypatch.setattr("sys.argv", ["tilehal", *arguments, *written])
    assert command() == 0
    shown = capsys.readouterr().out
    assert "64x256" in shown
    assert "Triton not measured: Triton has no CPU backend" in shown
    assert "Triton overlapped not measured: Triton has no CPU backend" in shown
    found = json.loads(files["run.json"].read_text())
    assert [row["status"] for row in found["rows"]] == ["ok", "ok"]
    assert found["settings"]["seed"] == 5
    told = "--json run.json --picture run.svg --markdown page.md"
    assert found["command"] == f"tilehal {' '.join(arguments)} {told}"
    assert found["command"] in files["page.md"].read_text()
    assert str(tmp_path) not in files["run.json"].read_text()
    copies = [one["bytes_per_s"] for one in found["ceilings"]["copies"]]
    assert found["ceilings"]["bytes_per_s"] >= max(copies) > 0  # or a row's copy
    assert found["ceilings"]["read_bytes_per_s"] > 0
    assert found["rows"][0]["contenders"]["tilehal"]["cold"]["median_s"] > 0
    assert "softmax, ours" in files["run.svg"].read_text()
    assert "### softmax" in files["page.md"].read_text()

    assert command(["bench", "--from", str(files["run.json"])]) == 0
    assert "100x130" in capsys.readouterr().out


def _unwrapped(text: str) -> str:
    """What was printed on one line: where a long path stands in it, the terminal's width breaks it."""
    return " ".join(text.replace("│", " ").split())


def test_mistakes_are_said_before_anything_is_measured(tmp_path, capsys):
    assert command(["bench", "conv", "--target", "cpu"]) == 2
    assert "no operator 'conv'" in _unwrapped(capsys.readouterr().err)
    assert command(["bench", "--json", str(tmp_path / "none" / "x.json")]) == 2
    assert "there is no folder" in _unwrapped(capsys.readouterr().err)  # the JSON goes into a file
    (tmp_path / "x.json").write_text("[]")
    assert command(["bench", "--from", str(tmp_path / "x.json")]) == 2
    assert "no benchmark's JSON" in _unwrapped(capsys.readouterr().err)
    (tmp_path / "x.json").write_text('{"format": 99}')
    assert command(["bench", "--from", str(tmp_path / "x.json")]) == 2
    assert "format 99" in _unwrapped(capsys.readouterr().err)
