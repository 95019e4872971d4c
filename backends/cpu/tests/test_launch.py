"""Launching: no copies, any thread, forked children, one pool of threads."""

import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import tilelang.language as T
import torch

from backends.cpu.launcher import CpuLauncher, usable_threads
from core import LaunchError

Compile = Callable[..., Any]


def increment(n: int, name: str = "increment") -> Any:
    """Adds 1 in place; heavy enough per block for the pool to be worth waking."""

    @T.prim_func
    def kernel(X: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, 65536)) as bx:
            for i in T.Parallel(65536):
                X[bx * 65536 + i] = X[bx * 65536 + i] + 1.0

    return kernel.with_attr("global_symbol", name)


def test_tensors_are_changed_where_they_are(cpu: Compile) -> None:
    kernel = cpu(increment(200000))
    whole = torch.zeros(200010)
    part = whole[7:200007]
    kernel(part)
    assert whole[:7].sum() == 0
    assert whole[200007:].sum() == 0
    assert torch.equal(part, torch.ones(200000))


def test_an_output_given_by_the_caller_is_the_one_that_is_written(cpu: Compile) -> None:
    @T.prim_func
    def kernel(X: T.Tensor((64,), "float32"), Y: T.Tensor((64,), "float32")):
        with T.Kernel(1):
            for i in T.Parallel(64):
                Y[i] = X[i] * 2.0

    compiled = cpu(kernel, [1])
    x, y = torch.randn(64), torch.empty(64)
    address = y.data_ptr()
    compiled(x, y)
    assert torch.equal(y, x * 2)
    assert y.data_ptr() == address
    assert torch.equal(compiled(x.clone().requires_grad_()), x * 2)


def test_a_tensor_may_be_input_and_output(cpu: Compile) -> None:
    @T.prim_func
    def kernel(X: T.Tensor((5000,), "float16"), Y: T.Tensor((5000,), "float16"), Z: T.Tensor((5000,), "float16")):
        with T.Kernel(T.ceildiv(5000, 512)) as bx:
            for i in T.Parallel(512):
                Z[bx * 512 + i] = X[bx * 512 + i] + Y[bx * 512 + i] * 2

    compiled = cpu(kernel)
    x, y = torch.randn(5000).half(), torch.randn(5000).half()
    want = x + y * 2
    compiled(x, y, x)
    assert torch.equal(x, want)


def test_kernels_run_from_many_threads_at_once(cpu: Compile) -> None:
    kernels = [cpu(increment(300000, f"increment_{i}")) for i in range(2)]
    tensors = [torch.zeros(300000) for _ in range(6)]
    failures: list[BaseException] = []

    def work(index: int) -> None:
        try:
            for _ in range(20):
                kernels[index % 2](tensors[index])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert all(torch.equal(t, torch.full((300000,), 20.0)) for t in tensors)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts threads in /proc")
def test_all_kernels_share_one_pool_of_threads(cpu: Compile) -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/task"))

    x = torch.zeros(4_000_000)
    cpu(increment(4_000_000, "first"))(x)
    before = count()
    for number in range(3):
        cpu(increment(4_000_000, f"other_{number}"))(x)
    assert count() == before
    assert usable_threads() >= 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_threads_of_its_own(cpu: Compile) -> None:
    kernel = cpu(increment(4_000_000))
    x = torch.zeros(4_000_000)
    kernel(x)
    child = os.fork()
    if child == 0:
        # Only the kernel is called here: torch's own pool does not survive a fork.
        kernel(x)
        kernel(x)
        os._exit(0 if x.data_ptr() and x[0].item() == 3.0 and x[-1].item() == 3.0 else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert x[0].item() == 1.0


def test_results_do_not_depend_on_how_blocks_are_shared_out(cpu: Compile) -> None:
    n = 3_000_001

    @T.prim_func
    def kernel(X: T.Tensor((n,), "float32"), Y: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, 1024)) as bx:
            x = T.alloc_shared((1024,), "float32")
            T.copy(X[bx * 1024], x)
            T.cumsum(x)
            T.copy(x, Y[bx * 1024])

    compiled = cpu(kernel, [1])
    x = torch.randn(n)
    first = compiled(x)
    assert all(torch.equal(compiled(x), first) for _ in range(5))


def test_the_loaded_function_refuses_what_is_no_tensor(cpu: Compile) -> None:
    kernel = cpu(increment(100))
    launcher = CpuLauncher(kernel.build())
    with pytest.raises(LaunchError, match=r"argument 0 \(X\) must be a tensor"):
        launcher(3)
    with pytest.raises(LaunchError, match="takes 1 arguments"):
        launcher(torch.zeros(100), 5)


def test_sizes_that_32_bits_cannot_count_are_refused(cpu: Compile) -> None:
    """Rounded up to whole tiles they wrapped around: the launch had no blocks, and nothing was written."""
    m = T.dynamic("m")

    @T.prim_func
    def kernel(X: T.Tensor((m,), "int8")):
        with T.Kernel(T.ceildiv(m, 1024)) as bx:
            for i in T.Parallel(1024):
                X[bx * 1024 + i] = T.int8(1)

    compiled = cpu(kernel)
    for size in (2**31 - 5, 2**32 + 5):  # memory that is never touched
        with pytest.raises(
            LaunchError, match=r'm is too large.* up to 2130706432; declare it T.dynamic\("m", "int64"\)'
        ):
            compiled(torch.empty(size, dtype=torch.int8))
    small = torch.zeros(1500, dtype=torch.int8)
    compiled(small)
    assert small.sum() == 1500
