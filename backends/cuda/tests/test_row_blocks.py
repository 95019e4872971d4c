"""Blocks of whole rows: the first choice beside what was measured, and what is said where nothing was."""

from __future__ import annotations

from typing import Any

import pytest

import core
from backends.cuda.rules import row_blocks, tile_rules
from core.ops.layernorm import layernorm
from core.ops.rmsnorm import rmsnorm
from core.ops.softmax import softmax
from core.tiling import KernelFactory, KernelShape

OPERATORS: dict[str, KernelFactory] = {"softmax": softmax, "layernorm": layernorm, "rmsnorm": rmsnorm}
TENSORS = {"softmax": 2, "layernorm": 4, "rmsnorm": 3, "add_rmsnorm": 5}
#: Microseconds on an H200, float16, cold caches: the fastest configurations of `direct`, by rows and threads of a block
#: and blocks asked of a unit. `python scripts/explore_rows.py --json rows.json`
MEASURED = {
    ("softmax", 4096, 4096): {(1, 128, 0): 17.36, (1, 256, 0): 17.60, (2, 256, 5): 17.70, (2, 512, 4): 17.98},
    ("softmax", 16384, 1024): {(2, 64, 0): 17.13, (2, 128, 0): 17.21, (1, 64, 0): 17.29, (1, 32, 0): 17.34},
    ("softmax", 4096, 8192): {(1, 512, 4): 33.76, (1, 256, 0): 34.01, (1, 512, 0): 35.42, (2, 512, 2): 36.29},
    ("softmax", 65536, 512): {(4, 64, 0): 33.04, (4, 128, 0): 33.11, (2, 64, 0): 33.21, (8, 128, 0): 33.76},
    ("layernorm", 4096, 4096): {(2, 256, 4): 18.29, (1, 256, 6): 18.31, (2, 256, 0): 19.20, (1, 256, 0): 20.72},
    ("layernorm", 16384, 1024): {(2, 128, 0): 17.81, (2, 64, 16): 18.14, (4, 256, 0): 18.18, (4, 128, 0): 18.22},
    ("layernorm", 4096, 8192): {(2, 512, 2): 35.45, (1, 512, 3): 36.60, (2, 256, 2): 37.02, (2, 512, 0): 52.38},
    ("layernorm", 65536, 512): {(2, 64, 0): 33.87, (4, 128, 0): 33.89, (4, 64, 0): 33.89, (8, 256, 0): 34.14},
    ("rmsnorm", 4096, 4096): {(1, 256, 0): 17.17, (1, 128, 0): 17.38, (2, 256, 5): 17.93, (2, 512, 4): 17.97},
    ("rmsnorm", 16384, 1024): {(2, 128, 0): 17.12, (4, 256, 0): 17.14, (1, 64, 0): 17.27, (2, 128, 16): 17.54},
    ("rmsnorm", 4096, 8192): {(1, 256, 0): 34.53, (2, 512, 2): 34.71, (2, 256, 0): 34.93, (1, 512, 0): 39.77},
    ("rmsnorm", 65536, 512): {(4, 64, 0): 33.00, (4, 128, 0): 33.01, (2, 64, 0): 33.15, (2, 32, 0): 33.75},
}
#: Registers of a thread that nvcc makes of these blocks in float16 without spilling, by columns, rows and threads.
REGISTERS = {
    ("softmax", 4096, 1, 128): 46,
    ("softmax", 4096, 1, 256): 32,
    ("softmax", 8192, 1, 512): 32,
    ("layernorm", 1024, 2, 128): 40,
    ("layernorm", 4096, 2, 256): 64,
    ("layernorm", 8192, 2, 512): 64,
    ("rmsnorm", 1024, 2, 128): 35,
    ("rmsnorm", 4096, 1, 256): 40,
    ("rmsnorm", 8192, 1, 256): 62,
}


def kernel(operator: str, rows: int | None, length: int, dtype: str = "float16") -> KernelShape:
    dimensions = {"N": length} if rows is None else {"M": rows, "N": length}
    return KernelShape(operator, "reduction", dimensions, (dtype,) * TENSORS[operator], softmax.parameters)


def first(operator: str, rows: int, length: int, target: str = "cuda:h200", **given: Any) -> dict[str, Any]:
    return dict(OPERATORS[operator].rank(rows, length, target=target, **given).candidates[0].tiles)


@pytest.mark.parametrize("row", MEASURED, ids=lambda row: "-".join(map(str, row)))
def test_the_first_choice_is_the_best_that_was_measured_or_within_half_a_percent(row: tuple[str, int, int]) -> None:
    tiles, times = first(*row), MEASURED[row]
    assert (tiles["variant"], tiles["workers"], tiles["block_N"]) == ("direct", 0, row[2])
    found = times.get((tiles["block_M"], tiles["threads"], tiles["resident"]))
    assert found is not None, f"{tiles} is not among the fastest: {times}"
    assert found <= 1.005 * min(times.values())


def test_the_first_choice_is_the_rules_and_others_are_ranked_behind_it() -> None:
    ranking = layernorm.rank(4096, 4096, target="cuda:h200")
    assert ranking.candidates[0].preferred == 0
    assert ranking.candidates[0].chosen_by["resident"] == "rule:cuda.row-tile"
    assert len(ranking.candidates) >= 8
    # Whatever is asked for is what its registers allow, and nothing is asked beside it.
    for verdict in ranking.candidates:
        threads, resident = verdict.tiles["threads"], verdict.tiles["resident"]
        assert isinstance(threads, int)
        assert isinstance(resident, int)
        assert threads * resident <= 2048


@pytest.mark.parametrize("target", ["cuda:h200", "cuda:h100-pcie", "cuda:a100", "cuda:rtx4090"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("operator", TENSORS)
def test_a_thread_holds_a_few_accesses_whatever_the_length(operator: str, dtype: str, target: str) -> None:
    chip = core.chip(target)
    vector = 4 if dtype == "float32" else 8
    for length in (100, 256, 768, 1000, 2048, 3000, 4104, 5120, 6144, 8192, 12288, 16384):
        shape = kernel(operator, 65536, length, dtype)
        rows, threads = row_blocks.block(chip, shape)
        elements = rows * length / threads
        assert threads in (32, 64, 128, 256, 512, 1024)
        assert vector <= elements <= 5 * vector, (length, rows, threads)
        assert rows * length * 16 // vector <= max(32768, length * 16 // vector)
        resident = row_blocks.resident(chip, shape, rows, threads)
        assert row_blocks.spills(chip, shape, rows, threads, resident) is None
        if resident:
            assert 512 <= resident * threads <= chip.main_unit.max_threads


@pytest.mark.parametrize(
    ("operator", "rows", "length", "dtype", "expected"),
    [
        ("softmax", 65536, 2048, "float16", (1, 64)),
        ("softmax", 65536, 5120, "bfloat16", (1, 128)),
        ("softmax", 65536, 12288, "float16", (1, 512)),
        ("softmax", 65536, 4096, "float32", (1, 256)),
        ("layernorm", 65536, 768, "float16", (2, 128)),
        ("layernorm", 65536, 2048, "float32", (1, 256)),
        ("layernorm", 65536, 12288, "float16", (1, 512)),
        ("rmsnorm", 65536, 3000, "float16", (1, 128)),
        ("rmsnorm", 65536, 6144, "float16", (1, 256)),
        ("softmax", None, 1024, "float16", (2, 64)),
    ],
)
def test_other_lengths_and_dtypes_follow_bytes_and_registers(
    operator: str, rows: int | None, length: int, dtype: str, expected: tuple[int, int]
) -> None:
    assert row_blocks.block(core.chip("cuda:h200"), kernel(operator, rows, length, dtype)) == expected


@pytest.mark.parametrize("operator", TENSORS)
def test_few_rows_get_a_block_each_and_every_thread_one_access(operator: str) -> None:
    chip = core.chip("cuda:h200")
    for rows, length, expected in (
        (16, 4096, (1, 512)),
        (1, 8192, (1, 1024)),
        (128, 512, (1, 64)),
        (1, 16384, (1, 1024)),
    ):
        shape = kernel(operator, rows, length)
        assert row_blocks.block(chip, shape) == expected
        assert row_blocks.resident(chip, shape, *expected) == 0
    # Enough rows for the chip are not few.
    assert row_blocks.block(chip, kernel(operator, 65536, 512))[0] == 4


def test_blocks_are_asked_of_a_unit_by_its_threads_and_registers() -> None:
    shape = kernel("softmax", 4096, 8192)
    asked = {
        target: row_blocks.resident(core.chip(target), shape, 1, 512)
        for target in ("cuda:h200", "cuda:h100-pcie", "cuda:a100", "cuda:rtx4090")
    }
    assert asked == {"cuda:h200": 4, "cuda:h100-pcie": 4, "cuda:a100": 4, "cuda:rtx4090": 3}
    assert row_blocks.resident(core.chip("cuda:h200"), kernel("layernorm", 4096, 8192), 2, 512) == 2
    assert row_blocks.resident(core.chip("cuda:h200"), kernel("rmsnorm", 4096, 8192), 2, 512) == 0


@pytest.mark.parametrize("block", REGISTERS, ids=lambda block: "-".join(map(str, block)))
def test_registers_are_estimated_as_the_compiler_needs_them(block: tuple[str, int, int, int]) -> None:
    operator, length, rows, threads = block
    shape, chip = kernel(operator, 4096, length), core.chip("cuda:h200")
    # So many blocks a unit leave a thread what the compiler took, in steps of 8.
    taken = -(-REGISTERS[block] // 8) * 8
    assert row_blocks.spills(chip, shape, rows, threads, 65536 // (taken * threads)) is None
    assert row_blocks.spills(chip, shape, 4 * rows, threads, 65536 // (taken * threads)) is not None


def test_what_registers_cannot_hold_is_refused_with_its_figures() -> None:
    chip, shape = core.chip("cuda:h200"), kernel("softmax", 4096, 8192)
    assert row_blocks.spills(chip, shape, 1, 512, 4) is None
    assert row_blocks.spills(chip, shape, 2, 512, 4) == (
        "2 rows in 512 threads need 40 registers each or more, and there are 32"
    )
    assert row_blocks.spills(chip, kernel("softmax", 4096, 12288), 1, 512, 4) is None  # 32 needed, 32 there
    assert row_blocks.crowds(chip, 1024, 4) == "4 blocks of 1024 threads are more than a unit's 2048 threads"
    assert row_blocks.crowds(chip, 1024, 2) is None
    assert row_blocks.spills(chip, shape, 8, 128, 0) == (
        "8 rows in 128 threads need 520 registers each or more, and there are 255"
    )


def test_the_users_number_does_not_drag_the_preferred_block_along_where_it_cannot_go() -> None:
    more = first("softmax", 4096, 8192, block_M=2)
    assert (more["block_M"], more["variant"]) == (2, "direct")
    assert 2 * 8192 // more["threads"] <= 64
    wide = first("softmax", 4096, 8192, threads=1024)
    assert wide["resident"] * 1024 <= 2048
    assert first("layernorm", 4096, 4096, variant="staged")["resident"] == 0
    assert first("layernorm", 4096, 4096, resident=0) | {"resident": 4} == first("layernorm", 4096, 4096)


def test_a_block_that_spills_is_used_where_it_is_given_whole() -> None:
    whole = {
        "variant": "direct",
        "block_M": 8,
        "block_N": 8192,
        "threads": 128,
        "workers": 0,
        "buffers": 1,
        "resident": 0,
    }
    kernel = softmax.compile(4096, 8192, **whole, target="cuda:h200", build=False)
    assert kernel.config.tiles == whole
    crowded = {**whole, "block_M": 1, "threads": 1024, "resident": 4}
    with pytest.raises(core.ResourceExceeded, match="4 blocks of 1024 threads are more than"):
        softmax.compile(4096, 8192, **crowded, target="cuda:h200", build=False)


def test_where_rows_and_threads_are_given_what_spills_comes_last() -> None:
    ranking = softmax.rank(4096, 8192, block_M=8, threads=128, target="cuda:h200")
    variants = [verdict.tiles["variant"] for verdict in ranking.candidates]
    assert variants[0] == "staged"
    assert "direct" in variants
    assert "staged" not in variants[variants.index("direct") :]
    assert "direct" not in {
        v.tiles["variant"]
        for v in softmax.rank(4096, 8192, block_M=8, target="cuda:a100").candidates
        if v.tiles["threads"] == 128
    }


def test_kernels_of_one_variant_and_rows_in_parts_have_no_preferred_block() -> None:
    chip = core.chip("cuda:h200")
    plain = {name: softmax.parameters[name] for name in ("block_M", "block_N", "threads")}
    own = KernelShape("softmax", "reduction", {"M": 4096, "N": 4096}, ("float16",) * 2, plain)
    for shape, expected in ((own, 0), (kernel("softmax", 1024, 32768), 0), (kernel("softmax", 1024, 4096), 1)):
        assert sum(len(rule.prefer) for rule in tile_rules(chip, shape)) == expected
