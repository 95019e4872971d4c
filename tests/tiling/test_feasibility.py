"""The record of a feasibility run on CUDA, judged as a whole, and some of its rows lived through again.

`scripts/feasibility.py` made it: configurations within the rules' values and far beyond, accepted and refused, all
lowered and compiled. What replays needs no compiler: the verdict, and the bytes that lowering lays out.
"""

from __future__ import annotations

import gzip
import importlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from core.compiler.artifacts import CompileOptions
from core.errors import TileHALError
from core.program import Program
from core.tiling.candidates import by_key
from core.tiling.cost import memory_bytes
from core.tiling.feasibility import misfit
from core.tiling.problem import TileProblem
from core.tiling.profile import profile
from tests.properties import first_of_each

ROWS: list[dict[str, Any]] = json.loads(
    gzip.decompress((Path(__file__).parent / "data/feasibility.json.gz").read_bytes())
)
BUILT = [row for row in ROWS if row["outcome"] in ("fits", "over")]


def test_the_record_is_rich() -> None:
    assert len(ROWS) >= 300
    assert {row["operator"] for row in ROWS} == {"gemm", "attention", "softmax", "layernorm"}
    assert len({row["target"] for row in ROWS}) >= 4
    assert min(Counter(row["accepted"] for row in ROWS).values()) >= 100


def test_nothing_accepted_failed_and_hardly_anything_refused_would_have_run() -> None:
    failed = [row for row in ROWS if row["accepted"] and (row["outcome"] != "fits" or row.get("launch", "ok") != "ok")]
    assert failed == []
    refused = [row for row in ROWS if not row["accepted"]]
    assert sum(row["outcome"] == "fits" for row in refused) <= 0.05 * len(refused)


def test_shared_memory_is_bounded_before_lowering_and_exact_after() -> None:
    for row in BUILT:
        assert row["static"] == row["ptxas_static"] == row.get("driver_static", row["static"]), row
        real = row["dynamic"] + row["ptxas_static"]
        assert real <= row["predicted_bytes"] <= 1.35 * real or real == 0, row


def chosen() -> Iterator[Mapping[str, Any]]:
    """One accepted row and one of each kind of refusal, of each operator and chip."""
    seen = set()
    for row in sorted(ROWS, key=lambda row: row["id"]):
        kind = (row["operator"], row["accepted"] or row["outcome"], row["target"] if row["accepted"] else "")
        if kind not in seen:
            seen.add(kind)
            yield row


def design(row: Mapping[str, Any]) -> tuple[object, ...]:
    """What of a row takes a way of its own.

    An operator does, through its rules and lowering, where Hopper's copies and products are others; the checks that
    refuse are the same for every operator.
    """
    if row["accepted"]:
        return row["operator"], row["target"] == "cuda:h200"
    return (row["outcome"],)


@pytest.mark.parametrize(
    "row", first_of_each(chosen(), design), ids=lambda row: f"{row['operator']}-{row['target']}-{row['outcome']}"
)
def test_a_row_turns_out_as_it_did(row: Mapping[str, Any]) -> None:
    factory = getattr(importlib.import_module(f"core.ops.{row['operator']}"), row["operator"])
    problem = TileProblem.of(factory, (), row["arguments"], row["target"])
    # What a kernel has got since the record was made does nothing at its neutral value.
    neutral = {"split": 1, "swizzle": 0, "workers": 0, "warp_policy": 0, "buffers": 1}
    tiles = {
        name: row["tiles"].get(name, p.choices[0] if p.choices else neutral.get(p.role))
        for name, p in factory.parameters.items()
    }
    try:
        traced = factory.trace(problem.arguments, tiles)
        program = Program(traced.prim_func, traced.out_idx)
        found = profile(program)
    except TileHALError:
        assert not row["accepted"]
        return
    keyed = by_key(problem.shape, tiles)
    reasons = [problem.forbids(tiles), misfit(found, problem.chip)]
    reasons += [rule.inspect(problem.shape, keyed, found) for rule in problem.rules if rule.inspect is not None]
    assert (not any(reasons)) is row["accepted"], reasons
    if row["outcome"] == "lower":
        return
    lowered = problem.backend.call("tilehal_lower", problem.chip, program=program, options=CompileOptions())
    resources = lowered.resources
    assert (resources.dynamic_shared_bytes, resources.static_shared_bytes) == (row["dynamic"], row["static"])
    assert resources.threads == row["threads"]
    if row["outcome"] in ("fits", "over"):
        shared = memory_bytes(found.launches[0], problem.chip).get("shared", 0)
        assert row["dynamic"] + row["static"] <= shared <= 1.35 * (row["dynamic"] + row["static"])


def test_every_candidate_of_the_sweep_ran_on_the_device() -> None:
    """The rules' own candidates for thirty shapes, compiled, run on an H200 and compared with torch."""
    sweep = json.loads(gzip.decompress((Path(__file__).parent / "data/sweep-cuda-h200.json.gz").read_bytes()))["rows"]
    assert len(sweep) >= 2000
    assert [row for row in sweep if row["status"] in ("build", "lower", "resources", "launch")] == []
    for row in sweep:
        assert row["lowered_dynamic_shared"] == row["dynamic_shared"]
