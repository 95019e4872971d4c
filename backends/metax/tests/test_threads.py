"""Kernels of threads: barriers of a part of a block, values passed between lanes."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import tilelang.language as T
import torch

import core


def lower_half_reversed(barrier: str) -> Any:
    """The first 128 of 256 threads exchange what they read behind a barrier in their branch."""

    @T.prim_func
    def main(A: T.Tensor((256,), "int32"), B: T.Tensor((256,), "int32")):
        with T.Kernel(1, threads=256):
            tx = T.get_thread_binding()
            s = T.alloc_shared((256,), "int32")
            s[tx] = A[tx]
            if barrier == "whole block":
                T.sync_threads(3, 256)
                B[tx] = s[255 - tx]
            elif tx < 128:
                if barrier == "counted":
                    T.sync_threads(3, 128)
                elif barrier == "counted at run time":
                    T.sync_threads(3, A[0])
                else:
                    T.sync_threads()
                B[tx] = s[127 - tx]

    return main


def line_of(text: str) -> int:
    lines, first = inspect.getsourcelines(lower_half_reversed)
    return first + next(index for index, line in enumerate(lines) if text in line)


@pytest.mark.parametrize(
    ("barrier", "count", "line"),
    [
        ("counted", "128", "sync_threads(3, 128)"),
        ("counted at run time", "A[0]", "sync_threads(3, A[0])"),
        ("in a branch", "128", "sync_threads()"),  # TileLang counts the branch's threads itself
    ],
)
def test_a_barrier_of_a_part_of_a_block_is_refused_at_its_line(barrier: str, count: str, line: str) -> None:
    with pytest.raises(core.UnsupportedOp) as caught:
        core.compile(lower_half_reversed(barrier), target="metax:c500", build=False)
    assert f"a barrier of {count} of the block's 256 threads" in str(caught.value)
    assert "outside of the branch" in caught.value.hint
    assert caught.value.location is not None
    assert caught.value.location.line == line_of(line)


def test_a_counted_barrier_of_the_whole_block_is_one_of_the_whole_block() -> None:
    program = lower_half_reversed("whole block")
    kernel = core.compile(program, target="metax:c500", out_idx=[1], simulate=True, options={"simulator": "checked"})
    a = torch.arange(256, dtype=torch.int32)
    assert torch.equal(kernel(a), a.flip(0))


def test_on_cuda_a_barrier_of_a_part_of_a_block_waits_for_that_part() -> None:
    source = core.compile(lower_half_reversed("counted"), target="cuda:h200", build=False).get_kernel_source()
    assert "__sync_thread_partial(3, 128);" in source


@pytest.mark.parametrize("target", ["cpu", "ascend:910b3"])
def test_targets_without_threads_refuse_threads(target: str) -> None:
    with pytest.raises(core.UnsupportedOp, match="thread index"):
        core.compile(lower_half_reversed("counted"), target=target, build=False)
