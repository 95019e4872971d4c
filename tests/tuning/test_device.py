"""The tuner on a real accelerator."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import core
from core.ops.gemm import gemm
from core.tiling.verdict import Verdict
from tests.tuning.tuned_kernels import DEVICE_FAULT, planted, right

pytestmark = [pytest.mark.gpu, pytest.mark.alone]


def test_tuning_finds_tiles_that_a_compilation_then_uses(store, monkeypatch):
    report = gemm.tune([(512, 512, 512), (64, 1024, 1024)], target="cuda", store=store, candidates=6, progress=False)
    for shape in report.shapes:
        assert len(shape.outcomes) == 6
        assert shape.speedup >= 1.0
        assert "checked with the CPU backend" in shape.reference
    monkeypatch.setenv("TILEHAL_TUNING_STORE", str(store.path))
    kernel = gemm.compile(512, 512, 512, target="cuda")
    assert kernel.config.tiles == report.shapes[0].best.tiles
    assert {entry.chosen_by for entry in kernel.config.values()} == {"tuned:store"}
    near = gemm.compile(640, 512, 512, target="cuda")
    assert {entry.chosen_by for entry in near.config.values()} == {"tuned:store, of M=512"}
    assert report.environment.driver


def test_a_fault_on_the_device_costs_one_candidate(store, monkeypatch):
    ways = ("fine", DEVICE_FAULT, "slow", "hangs while running", "wrong")
    verdicts = tuple(Verdict({"block": 128, "way": way}, {}, "ranked", "") for way in ways)
    ranking = SimpleNamespace(candidates=verdicts, refused=(), shape=SimpleNamespace(dtypes=("float32",)))
    monkeypatch.setattr(core.tiling.KernelFactory, "rank", lambda self, **arguments: ranking)
    report = planted.tune(4096, target="cuda", store=store, reference=right, timeout_s=20.0, progress=False)
    fates = {outcome.tiles["way"]: outcome.status for outcome in report.shapes[0].outcomes}
    assert fates == {
        "fine": "ok",
        DEVICE_FAULT: "launch",
        "slow": "ok",
        "hangs while running": "timeout",
        "wrong": "wrong",
    }
