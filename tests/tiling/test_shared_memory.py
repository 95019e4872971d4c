"""Shared memory predicted from a profile: what lowering lays out, workspaces and barriers included."""

from __future__ import annotations

from typing import Any

import pytest

import core
from core.compiler.artifacts import CompileOptions
from core.ops.attention import attention
from core.ops.conv2d import conv2d
from core.ops.gemm import gemm
from core.ops.layernorm import layernorm
from core.ops.softmax import softmax
from core.plugins import manager
from core.program import Program
from core.tiling.cost import memory_bytes
from core.tiling.profile import profile

PRODUCT = {"M": 256, "N": 256, "K": 256}
HEADS = {"batch": 1, "heads": 1, "kv_heads": 1, "M": 256, "N": 256, "dim": 128}
ROWS = {"M": 64, "N": 1000}
IMAGES = {"batch": 2, "height": 16, "width": 16, "size": 3}


def both(factory: Any, arguments: dict[str, Any], tiles: tuple[int, ...], target: str) -> tuple[int, int]:
    """(predicted from the profile, laid out by lowering) bytes of shared memory of a block."""
    chip = core.chip(target)
    names = [name for name, p in factory.parameters.items() if p.role in ("tile", "stages", "threads")]
    others = {
        name: p.choices[0] if p.choices else p.minimum or 0
        for name, p in factory.parameters.items()
        if name not in names
    }
    traced = factory.trace(factory.arguments((), arguments), {**others, **dict(zip(names, tiles, strict=True))})
    program = Program(traced.prim_func, traced.out_idx)
    lowered = manager().backend(chip.vendor).call("tilehal_lower", chip, program=program, options=CompileOptions())
    resources = lowered.resources
    laid_out = (resources.dynamic_shared_bytes or 0) + (resources.static_shared_bytes or 0)
    return memory_bytes(profile(program).launches[0], chip)["shared"], laid_out


@pytest.mark.parametrize("target", ["cuda:h200", "cuda:a100", "metax:c500"])
@pytest.mark.parametrize(
    ("factory", "arguments", "tiles"),
    [
        (gemm, PRODUCT, (64, 128, 32, 2, 128)),
        (attention, HEADS, (64, 32, 1, 128)),
        (softmax, ROWS, (4, 1024, 128)),
        (layernorm, ROWS, (1, 1024, 256)),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_the_prediction_is_what_lowering_lays_out(
    factory: Any, arguments: dict[str, Any], tiles: tuple[int, ...], target: str
) -> None:
    predicted, laid_out = both(factory, arguments, tiles, target)
    assert predicted == laid_out


def test_barriers_take_static_memory_where_copies_complete_at_them() -> None:
    tiles = 2 * (64 + 128) * 32 * 2
    assert both(gemm, PRODUCT, (64, 128, 32, 2, 128), "cuda:h200") == (tiles + 1024, tiles + 1024)
    assert both(gemm, PRODUCT, (64, 128, 32, 2, 128), "cuda:a100") == (tiles, tiles)


def test_rows_over_more_than_32_threads_take_a_word_a_thread() -> None:
    rows = 4 * 1024 * 2
    assert both(softmax, ROWS, (4, 1024, 128), "cuda:a100")[0] == rows + 128 * 4
    assert both(softmax, {"M": 64, "N": 128}, (16, 128, 64), "cuda:a100") == (16 * 128 * 2, 16 * 128 * 2)


@pytest.mark.parametrize(
    ("factory", "tiles"),
    [(softmax, (4, 256, 256)), (softmax, (16, 256, 64)), (layernorm, (4, 256, 64)), (layernorm, (8, 256, 128))],
)
def test_where_layouts_differ_the_prediction_is_a_bound_from_above(factory: Any, tiles: tuple[int, ...]) -> None:
    predicted, laid_out = both(factory, {"M": 64, "N": 256}, tiles, "cuda:h200")
    assert laid_out <= predicted <= 1.35 * laid_out


@pytest.mark.parametrize(
    ("target", "stages", "channels", "filters"),
    [
        ("cuda:h200", 0, 64, 64),  # copied whole, in bulk without stages too
        ("cuda:h200", 3, 64, 64),
        ("cuda:h200", 1, 48, 64),  # gathered beside bulk copies of the filters
        ("cuda:h200", 3, 48, 64),
        ("cuda:h200", 3, 48, 20),  # nothing in bulk
        ("cuda:a100", 3, 48, 64),
    ],
)
def test_windows_take_what_lowering_lays_out_for_them(target: str, stages: int, channels: int, filters: int) -> None:
    images = {**IMAGES, "channels": channels, "filters": filters}
    predicted, laid_out = both(conv2d, images, (64, 64, 64, stages, 128), target)
    assert predicted == laid_out
