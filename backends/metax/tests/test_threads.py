"""Kernels of threads: barriers of a part of a block, values passed between lanes."""

import inspect
from collections.abc import Callable
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


def _masked(value: Any, lane: Any, width: int) -> Any:
    return T.tvm_warp_shuffle(0xFFFFFFFF, value, lane, width, width)


def _masked_up(value: Any, delta: int, width: int) -> Any:
    return T.tvm_warp_shuffle_up(0xFFFFFFFF, value, delta, width, width)


def _masked_down(value: Any, delta: int, width: int) -> Any:
    return T.tvm_warp_shuffle_down(0xFFFFFFFF, value, delta, width, width)


#: What is called with a value, 3 and a width, and the lane of its group that lane i then reads.
SHUFFLES: dict[str, tuple[Callable[..., Any], Callable[[int, int], int]]] = {
    "shfl_sync": (T.shfl_sync, lambda i, width: 3),
    "shfl_xor": (T.shfl_xor, lambda i, width: i ^ 3),
    "shfl_up": (T.shfl_up, lambda i, width: i - 3 if i >= 3 else i),
    "shfl_down": (T.shfl_down, lambda i, width: i + 3 if i + 3 < width else i),
    "tvm_warp_shuffle": (_masked, lambda i, width: 3),
    "tvm_warp_shuffle_up": (_masked_up, lambda i, width: i - 3 if i >= 3 else i),
    "tvm_warp_shuffle_down": (_masked_down, lambda i, width: i + 3 if i + 3 < width else i),
}


@pytest.mark.filterwarnings("ignore:.*for the width of a wave:core.errors.PortabilityWarning")
@pytest.mark.parametrize("width", [8, 32, 64])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int64"])
def test_lanes_read_each_others_values_in_groups(dtype: str, width: int) -> None:
    calls = [call for call, _ in SHUFFLES.values()]

    # Two dimensions: a thread's place in its wave is not its first index.
    @T.prim_func
    def main(A: T.Tensor((128,), dtype), B: T.Tensor((len(calls), 128), dtype)):
        with T.Kernel(1, threads=(16, 8)):
            at = T.get_thread_binding(1) * 16 + T.get_thread_binding(0)
            for row, call in enumerate(calls):
                B[row, at] = call(A[at], 3, width)

    a = torch.arange(128).to(getattr(torch, dtype))
    got = core.compile(main, target="metax:c500", out_idx=[1], simulate=True, options={"simulator": "checked"})(a)
    for name, row in zip(SHUFFLES, got, strict=True):
        reads = [i - i % width + SHUFFLES[name][1](i % width, width) for i in range(128)]
        assert row.tolist() == reads, name
