"""One case in this process, on the CPU: who is timed, who is wrong, who ends it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from core.bench import measuring
from core.bench.case import Case
from core.bench.measuring import Settings, SpoiltError, measure_case
from core.bench.workloads import NotMeasured, Other
from core.bench.workloads.rows import RmsNorm
from core.tuning.measure import measure_together

CASE = Case("rmsnorm", {"M": 32, "N": 64})
SETTINGS = Settings("cpu", ("tilehal", "tilelang", "tuned"), repeat_ms=1.0, warmup_ms=1.0)


def with_others(monkeypatch, **others):
    monkeypatch.setattr(
        RmsNorm, "others", lambda self, inputs: {n: lambda f=f: f(self, inputs) for n, f in others.items()}
    )


def right(work, inputs):
    return Other([inputs["X"], inputs["weight"]], work.torch_call)


def wrong(work, inputs):
    return Other([inputs["X"], inputs["weight"]], lambda x, weight: work.torch_call(x, weight) * 1.1)


def unwritten(work, inputs):
    return Other([inputs["X"], torch.full_like(inputs["X"], float("nan"))], lambda x, y: None, output=1)


def copying(work, inputs):
    return Other([inputs["X"], torch.empty_like(inputs["X"])], lambda x, y: y.copy_(x), output=1, checked=False)


def missing(work, inputs):
    raise NotMeasured("it is not installed")


def failing(work, inputs):
    raise RuntimeError("an illegal memory access\nand more")


def test_only_what_is_right_is_timed(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEHAL_TUNING_STORE", str(tmp_path / "tuned.sqlite"))
    with_others(monkeypatch, right=right, wrong=wrong, unwritten=unwritten, copy=copying, missing=missing)
    doing = []
    found = measure_case(CASE, SETTINGS, {"missing": "left out"}, doing.append)
    contenders = found["contenders"]
    assert {name: entry["status"] for name, entry in contenders.items()} == {
        "tilehal": "ok",
        "tilelang": "not measured",
        "tuned": "not measured",
        "right": "ok",
        "wrong": "wrong",
        "unwritten": "wrong",
        "copy": "ok",
        "missing": "failed",
    }
    assert "nothing was tuned" in contenders["tuned"]["reason"]
    assert "elements are wrong" in contenders["wrong"]["reason"]
    assert contenders["missing"]["reason"] == "left out"
    assert contenders["tilehal"]["chosen_by"] == "ranking"
    assert set(contenders["tilehal"]["tiles"]) >= {"block_M", "block_N", "threads"}
    assert {name for name, entry in contenders.items() if "cold" in entry} == {"tilehal", "right", "copy"}
    assert set(found["ratios"]) == {"tilehal"}
    assert set(found["ratios"]["tilehal"]) == {"right", "copy"}
    for one in found["ratios"]["tilehal"].values():
        assert one["cold"]["low"] <= one["cold"]["value"] <= one["cold"]["high"]
    assert doing[-1] == "timing"
    assert "missing" not in doing


def test_who_fails_at_run_time_is_named_so_that_the_row_can_be_measured_without(monkeypatch):
    with_others(monkeypatch, missing=missing, failing=failing, right=right)
    with pytest.raises(SpoiltError) as spoilt:
        measure_case(CASE, Settings("cpu", (), repeat_ms=1.0), {}, lambda what: None)
    assert spoilt.value.contender == "failing"
    assert spoilt.value.reason == "RuntimeError: an illegal memory access"


def test_what_cannot_be_timed_in_the_time_left_is_not_begun(monkeypatch):
    with_others(monkeypatch, right=right)
    monkeypatch.setattr("core.tuning.measure.measure_together", lambda *_, **__: pytest.fail("it was begun"))
    with pytest.raises(NotMeasured, match="no time left: timing it takes 0 s or more, and 0 s are left"):
        measure_case(CASE, replace(SETTINGS, within_s=0.0), {}, lambda what: None)


class Watched:
    """Stands for `OthersShare` and for the measuring, and says in which order they came."""

    def __init__(self, monkeypatch):
        self.order = []
        order, measure = self.order, measure_together

        class Watch:
            def __init__(self):
                order.append("watch")

            def share(self):
                order.append("share")
                return 0.25

        def timed(*args, **options):
            order.append("timed")
            return measure(*args, **options)

        monkeypatch.setattr("core.tuning.measure.contention.OthersShare", Watch)
        monkeypatch.setattr("core.tuning.measure.measure_together", timed)


def test_the_cpu_is_watched_from_before_the_first_sample_to_after_the_last(monkeypatch):
    with_others(monkeypatch, right=right)
    watched = Watched(monkeypatch)
    found = measure_case(CASE, replace(SETTINGS, ours=("tilehal",)), {}, lambda what: None)
    assert watched.order == ["watch", "timed", "timed", "share"]
    assert found["others_share"] == 0.25


def test_who_else_has_the_cpu_is_not_said_of_what_runs_on_a_device(monkeypatch):
    """There may be none here: what would be asked of it is left out, and nothing is timed."""
    device = SimpleNamespace(require_torch_device=lambda: "cuda:0")
    monkeypatch.setattr("core.target.resolve", lambda target: device)
    monkeypatch.setattr("torch.Generator", lambda device: SimpleNamespace(manual_seed=lambda seed: None))
    monkeypatch.setattr(RmsNorm, "inputs", lambda self, make: {})
    monkeypatch.setattr(measuring, "_checked", lambda *_: ({}, {}))
    monkeypatch.setattr(measuring, "_clock_hz", lambda device: 1e9)
    watched = Watched(monkeypatch)
    found = measure_case(CASE, replace(SETTINGS, target="cuda:h200"), {}, lambda what: None)
    assert found == {"contenders": {}, "ratios": {}, "clock_hz": 1e9}
    assert watched.order == []


def test_on_the_cpu_it_says_how_much_of_it_others_took(monkeypatch):
    with_others(monkeypatch, right=right)
    monkeypatch.setattr("core.tuning.measure.contention.OthersShare.share", lambda self: 0.25)
    found = measure_case(CASE, replace(SETTINGS, ours=("tilehal",), within_s=600.0), {}, lambda what: None)
    assert found["others_share"] == 0.25
    assert "cold" in found["contenders"]["right"]
