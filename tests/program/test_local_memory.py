"""Rows that registers cannot hold: said, forecast with local memory, and refused where no thread can have them."""

from __future__ import annotations

from typing import Any

import pytest
import tilelang.language as T

import core
from backends.cuda.rules import fragments
from core.program import Program
from core.program.capacity import in_local_memory, memory_demands
from core.tiling.profile import profile


@core.kernel(out=["Y"])
def whole_rows(M: int, N: int, *, threads: int = core.threads()):
    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(M, threads=threads) as block:
            row = T.alloc_fragment((1, N), "float32")
            top = T.alloc_fragment((1,), "float32")
            T.copy(X[block, 0], row)
            T.reduce_max(row, top, dim=1)
            for i, j in T.Parallel(1, N):
                row[i, j] = T.exp(row[i, j] - top[i])
            T.copy(row, Y[block, 0])

    return main


def seconds(length: int, threads: int) -> float:
    (one,) = whole_rows.rank(64, length, threads=threads, target="cuda:h200").candidates
    assert one.prediction is not None
    return one.prediction.seconds


@pytest.mark.parametrize(("target", "fits"), [("cuda:h200", 1 << 16), ("metax:c500", 1 << 17)])
def test_a_fragment_larger_than_a_blocks_registers_is_said(target: str, fits: int) -> None:
    chip = core.chip(target)
    assert not list(in_local_memory(Program(whole_rows(64, fits, threads=1024)).footprint(), chip))
    ((use, message),) = in_local_memory(Program(whole_rows(64, 2 * fits, threads=1024)).footprint(), chip)
    assert use.buffer.name == "row"
    assert "goes to local memory and back at every pass; walk the row in parts" in message


def test_a_buffer_that_is_too_large_for_shared_memory_is_not_said_to_be_in_registers() -> None:
    @T.prim_func
    def main(X: T.Tensor((1 << 18,), "float32"), Y: T.Tensor((1 << 18,), "float32")):
        with T.Kernel(1, threads=1024):
            tile = T.alloc_shared((1 << 18,), "float32")
            T.copy(X, tile)
            T.copy(tile, Y)

    chip, footprint = core.chip("cuda:h200"), Program(main).footprint()
    (demand,) = memory_demands(footprint.launches[0], chip)
    assert (demand.memory.name, demand.fits) == ("shared", False)
    assert list(in_local_memory(footprint, chip)) == []


def test_what_threads_cannot_hold_is_counted_without_shared_memory() -> None:
    def kernel(row: int) -> Any:
        @T.prim_func
        def main(X: T.Tensor((row,), "float32"), Y: T.Tensor((row,), "float32")):
            with T.Kernel(1, threads=32):
                tile = T.alloc_shared((1 << 14,), "float32")
                held = T.alloc_fragment((row,), "float32")
                T.copy(X[0 : 1 << 14], tile)
                T.copy(X, held)
                T.copy(held, Y)
                T.copy(tile, Y[0 : 1 << 14])

        return main

    chip = core.chip("cuda:h200")
    # 512 KiB of local memory and 255 registers of 4 bytes for each of 32 threads.
    elements = 32 * ((512 << 10) // 4 + 255)
    for row, fits in ((elements, True), (elements + 1, False)):
        (launch,) = profile(Program(kernel(row))).launches
        assert (fragments.refused(chip, launch) is None) == fits


def test_compiling_warns_of_it_with_the_line_of_the_buffer() -> None:
    with pytest.warns(core.PortabilityWarning, match=r"test_local_memory\.py:\d+: row has 512 KiB"):
        whole_rows.compile(4, 1 << 17, threads=1024, target="metax:c500+registers=256KiB", build=False)


def test_what_lies_in_local_memory_is_forecast_to_be_moved() -> None:
    row_bytes = 4 << 20
    # Read and written once is 64 rows at 4.8 TB/s; local memory is passed over twice more, both ways.
    moved_s = 64 * row_bytes * 2 / 4.8e12
    assert seconds(1 << 20, 1024) > 2.5 * moved_s
    # Twice the row was twice the time; from where registers hold next to nothing on it is more.
    assert seconds(1 << 18, 1024) / seconds(1 << 17, 1024) == pytest.approx(2, rel=0.2)
    assert seconds(1 << 20, 1024) / seconds(1 << 18, 1024) > 6


def test_what_no_thread_may_have_is_refused_with_line_buffer_and_what_to_do() -> None:
    with pytest.raises(core.ResourceExceeded, match="row 536,870,912") as caught:
        core.compile(whole_rows(4, 1 << 27, threads=512), target="cuda:h200", build=False)
    assert caught.value.location.line == whole_rows.location.line + 5
    assert "walk the row in parts" in caught.value.hint
    assert caught.value.details["buffer"] == "row"
    refused = whole_rows.rank(4, 1 << 27, target="cuda:h200").refused
    assert any("threads may have" in verdict.reason for verdict in refused)


@pytest.mark.parametrize("target", ["cuda:h200", "ascend:910b3"])
def test_one_reason_stands_for_those_that_differ_in_numbers(target: str) -> None:
    with pytest.raises(core.ResourceExceeded, match="allows no tile") as caught:
        whole_rows.compile(4, 1 << 28, target=target, build=False)
    assert ";" not in caught.value.message
    assert "walk the row in parts" in caught.value.hint
