"""`kernel.benchmark()`: cold and warm, with random or given tensors, and the rates that follow."""

from __future__ import annotations

from typing import Any

import pytest
import tilelang.language as T
import torch

import core
from core.tuning.benchmark import Benchmark, complete_arguments
from core.tuning.measure import Measurement


def add_rows(N: int, M: Any = None):
    """`B = A + 1`, an (M, N) matrix; M rows are symbolic when None."""
    M = T.dynamic("M") if M is None else M

    @T.prim_func
    def main(A: T.Tensor((M, N), "float32"), B: T.Tensor((M, N), "float32")):
        with T.Kernel(M, threads=64) as bx:
            for i in T.Parallel(N):
                B[bx, i] = A[bx, i] + 1.0

    return main


@pytest.fixture(scope="module")
def kernel() -> core.Kernel:
    return core.compile(add_rows, 256, 64, target="cpu", out_idx=[1])


@pytest.fixture(scope="module")
def symbolic() -> core.Kernel:
    return core.compile(add_rows, 256, target="cpu", out_idx=[1])


def test_it_measures_on_random_arguments_of_its_own(kernel: core.Kernel) -> None:
    found = kernel.benchmark(warmup_ms=1, repeat_ms=10, l2_bytes=2**18)
    assert (found.cold.l2, found.warm.l2) == ("cold", "warm")
    assert 0 < found.warm.low_s <= found.warm.median_s <= found.warm.high_s
    assert found.bytes_moved == 2 * 64 * 256 * 4
    assert found.flops == 64 * 256
    # 256 KiB of cache are outgrown by 8 + 1 sets of 128 KiB.
    assert "9 sets of buffers" in found.cold.detail
    assert found.target.startswith("cpu:")


def test_rates_are_what_the_median_makes_of_operations_and_bytes() -> None:
    cold = Measurement(2e-3, 1e-3, 3e-3, 0.95, (2e-3,), "graph", "cold")
    warm = Measurement(1e-3, 1e-3, 1e-3, 0.95, (1e-3,), "graph", "warm")
    found = Benchmark("gemm", "cuda:h200", cold, warm, flops=4e12, bytes_moved=6_000_000)
    assert (found.tflops(), found.tflops("warm")) == (2000.0, 4000.0)
    assert (found.bytes_per_s(), found.bytes_per_s("warm")) == (3e9, 6e9)
    assert found.to_json()["warm"]["tflops"] == 4000.0
    assert "2000 TFLOP/s" in str(found)
    copies = Benchmark("copy", "cuda:h200", cold, warm, flops=None, bytes_moved=1)
    assert copies.tflops() is None
    assert "TFLOP" not in str(copies)


def test_the_tensors_given_are_used_and_outputs_allocated_once(kernel: core.Kernel) -> None:
    x = torch.randn(64, 256)
    arguments = complete_arguments(kernel, [x])
    assert arguments[0] is x
    assert torch.equal(arguments[1], x + 1)
    out = torch.empty(64, 256)
    assert [id(value) for value in complete_arguments(kernel, [x, out])] == [id(x), id(out)]
    kernel.benchmark(x, out, warmup_ms=0, repeat_ms=1)
    assert torch.equal(out, x + 1)


def test_a_symbolic_dimension_is_said_or_read_off_the_tensors(symbolic: core.Kernel) -> None:
    with pytest.raises(core.KernelError, match="symbolic dimensions: M"):
        symbolic.benchmark()
    said = symbolic.benchmark(symbols={"M": 32}, warmup_ms=0, repeat_ms=1)
    read = symbolic.benchmark(torch.randn(32, 256), warmup_ms=0, repeat_ms=1)
    assert said.flops == read.flops == 32 * 256
    assert said.bytes_moved == read.bytes_moved == 2 * 32 * 256 * 4


def test_the_figures_of_the_text_can_be_overruled(kernel: core.Kernel) -> None:
    found = kernel.benchmark(flops=1.0, bytes_moved=8, warmup_ms=0, repeat_ms=1)
    assert (found.flops, found.bytes_moved) == (1.0, 8)


def test_wrong_tensors_are_refused_as_a_call_refuses_them(kernel: core.Kernel) -> None:
    with pytest.raises(core.ShapeMismatch):
        kernel.benchmark(torch.randn(63, 256), torch.randn(64, 256))


def test_a_simulator_is_not_timed() -> None:
    simulated = core.compile(add_rows, 256, 64, target="metax:c500", out_idx=[1], simulate=True, build=False)
    with pytest.raises(core.KernelError, match="runs in a simulator") as caught:
        simulated.benchmark()
    assert "device" in caught.value.hint


@pytest.mark.gpu
@pytest.mark.alone
def test_on_a_device_neither_launches_nor_caches_count_where_they_must_not() -> None:
    on_device = core.compile(add_rows, 4096, 4096, target="auto", out_idx=[1])
    found = on_device.benchmark()
    assert (found.warm.method, found.cold.method) == ("graph", "graph")
    assert "sets of buffers" in found.cold.detail
    # 128 MiB go through any cache there is: both times are the memory's, and nothing beats its bandwidth by far.
    peak = on_device.chip.memory_for_scope("global").bandwidth_bytes_per_s
    assert peak is not None
    assert 0.3 * peak < found.bytes_per_s("cold") < 1.1 * peak
    assert found.warm.median_s == pytest.approx(found.cold.median_s, rel=0.25)
    small = core.compile(add_rows, 256, 64, target="auto", out_idx=[1])
    assert small.benchmark().warm.median_s < 6e-6  # a launch from Python takes about as long, a graph's does not


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"repeat": 10}, r"benchmark\(\) has no option 'repeat'"),
        ({"cold_l2": True}, "has no option 'cold_l2'"),
        ({"confidence": 2}, "confidence=2"),
        ({"flops": -1}, "flops=-1, and it is a number of 0 or more"),
        ({"bytes_moved": "1 GB"}, "bytes_moved='1 GB'"),
        ({"symbols": {"K": 3}}, "no symbolic dimension 'K'"),
        ({"symbols": {"M": -1}}, "the extent of M cannot be -1"),
        ({"symbols": {"M": "64"}}, "the extent of M cannot be '64'"),
        ({"symbols": {"M": 2**40}}, "A cannot be made on cpu: "),
    ],
)
def test_what_cannot_be_measured_says_why(symbolic: core.Kernel, options: dict[str, Any], text: str) -> None:
    with pytest.raises(core.KernelError, match=text) as caught:
        symbolic.benchmark(**{"symbols": {"M": 4}, "repeat_ms": 1, **options})
    assert caught.value.hint


def test_tensors_and_how_to_make_them_are_not_given_both(symbolic: core.Kernel) -> None:
    with pytest.raises(core.KernelError, match="got tensors and symbols="):
        symbolic.benchmark(torch.ones(4, 256), symbols={"M": 5})
    with pytest.raises(core.KernelError, match="not 'hot'"):
        symbolic.benchmark(torch.ones(4, 256), repeat_ms=1).tflops("hot")  # type: ignore[arg-type]
