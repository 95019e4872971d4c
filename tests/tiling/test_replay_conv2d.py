"""The cost model against measured convolutions: windows copied whole, and gathered element by element.

`data/conv2d-cuda-h200.json` holds what was measured; profiles are read off the operator as it is now. A change that
makes other code of it asks for new measurements.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, geometric_mean

import pytest

import core
from core.ops.conv2d import conv2d
from core.program import Program
from core.tiling.cost import predict
from core.tiling.cost.machine import machine
from core.tiling.cost.occupancy import Residency, residency
from core.tiling.profile import profile

DATA = Path(__file__).parent / "data" / "conv2d-cuda-h200.json"
H200 = core.chip("cuda:h200")


@dataclass(frozen=True)
class Measured:
    """One kernel: its time in seconds, what ptxas gave it, and what the model says of it."""

    shape: tuple[int, ...]
    kind: str
    seconds: float
    registers: int
    spilled_bytes: int
    predicted: float
    residency: Residency

    @property
    def ratio(self) -> float:
        return self.predicted / self.seconds


@pytest.fixture(scope="module")
def kernels() -> list[Measured]:
    found = []
    for group in json.loads(DATA.read_text())["groups"]:
        shape = tuple(group["shape"])
        arguments = conv2d.arguments(shape, {"dtype": "float16", **group["geometry"]})
        for kind, tiles, us, registers, spilled in group["kernels"]:
            traced = conv2d.trace(arguments, dict(zip(conv2d.parameters, tiles, strict=True)))
            read = profile(Program(traced.prim_func, traced.out_idx))
            (launch,) = read.launches
            kind = kind if tiles[3] else f"{kind}, no stages"
            seconds = predict(read, H200).seconds
            held = residency(launch, machine(H200))
            found.append(Measured(shape, kind, us * 1e-6, registers, spilled, seconds, held))
    return found


def first_over_best(kernels: list[Measured]) -> float:
    return min(kernels, key=lambda one: one.predicted).seconds / min(one.seconds for one in kernels)


def by_shape(kernels: list[Measured]) -> dict[tuple[int, ...], list[Measured]]:
    groups: dict[tuple[int, ...], list[Measured]] = {}
    for one in kernels:
        groups.setdefault(one.shape, []).append(one)
    return groups


def test_the_first_choice_is_near_the_best_of_every_shape(kernels: list[Measured]) -> None:
    """Of all kernels, and of those that gather. Of most shapes the worst takes twice as long."""
    groups = by_shape(kernels)
    assert len(groups) == 8
    for shape, group in groups.items():
        assert first_over_best(group) < 1.05, shape
        assert first_over_best([one for one in group if one.kind != "whole"]) < 1.1, shape
        assert max(one.seconds for one in group) > 1.45 * min(one.seconds for one in group), shape


@pytest.mark.parametrize("kind", ["whole", "gather", "gather, no stages"])
def test_times_are_about_right(kernels: list[Measured], kind: str) -> None:
    assert 0.8 < geometric_mean(one.ratio for one in kernels if one.kind == kind) < 1.15


def test_times_are_right_where_registers_suffice(kernels: list[Measured]) -> None:
    near = [one for one in kernels if one.spilled_bytes == 0]
    assert len(near) >= 30
    assert 0.9 < geometric_mean(one.ratio for one in near) < 1.1
    assert fmean(max(one.ratio, 1 / one.ratio) for one in near) < 1.2


def test_registers_of_what_gathers_are_those_that_ptxas_gives(kernels: list[Measured]) -> None:
    kept = [one for one in kernels if one.kind != "whole" and one.spilled_bytes == 0]
    assert fmean(abs(min(one.residency.registers, 255) / one.registers - 1) for one in kept) < 0.2


def test_what_is_loaded_in_turns_is_what_spills(kernels: list[Measured]) -> None:
    """Spills of up to 24 bytes are six registers: within what an estimate cannot tell."""
    told = [(one.residency.waits > 0) == (one.spilled_bytes > 24) for one in kernels]
    assert told.count(False) <= 4
