"""A block's statements keep their order in global memory too; stock TileLang keeps it in shared memory only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tilelang.language as T
import torch

import core
from core.codegen.tir import Rule, differences
from core.compiler import CompileOptions
from core.program import Program

BLOCKS, R, C = 2, 32, 48


def rows() -> Any:
    """A parameter's type: each parameter needs one of its own."""
    return T.Tensor((BLOCKS * R, C), "float32")


def read_back() -> Any:
    """Rows are written, and read in reverse by other threads."""

    @T.prim_func
    def read_back(X: rows(), Y: rows(), Z: rows()):
        with T.Kernel(BLOCKS, threads=64) as b:
            s = T.alloc_shared((R, C), "float32")
            T.copy(X[b * R, 0], s)
            T.copy(s, Y[b * R, 0])
            for i, j in T.Parallel(R, C):
                Z[b * R + i, j] = Y[b * R + (R - 1 - i), j]

    return read_back


def turn_over_and_over() -> Any:
    """Each round reads what the one before has written, in place."""

    @T.prim_func
    def turn_over_and_over(X: rows(), Y: rows(), Z: rows()):
        with T.Kernel(BLOCKS, threads=64) as b:
            f = T.alloc_fragment((R, C), "float32")
            T.copy(X[b * R, 0], f)
            T.copy(f, Y[b * R, 0])
            for _ in T.serial(5):
                for i, j in T.Parallel(R, C):
                    f[i, j] = Y[b * R + (R - 1 - i), j] + 1.0
                T.copy(f, Y[b * R, 0])
            T.copy(f, Z[b * R, 0])

    return turn_over_and_over


def count() -> Any:
    """Outside of T.Parallel: once a block, not once a thread."""

    @T.prim_func
    def count(X: rows(), Y: rows(), Z: rows()):
        with T.Kernel(BLOCKS, threads=64) as b:
            for i, j in T.Parallel(R, C):
                Y[b * R + i, j] = X[b * R + i, j]
            Y[b * R, 0] = Y[b * R, 0] + 1.0
            for k in T.serial(1, C):
                Y[b * R, k] = Y[b * R, k] + Y[b * R, k - 1]
            for i, j in T.Parallel(R, C):
                Z[b * R + i, j] = Y[b * R, j]

    return count


def pipelined() -> Any:
    """Rounds of a pipelined loop fetch what the round before has written."""

    @T.prim_func
    def pipelined(X: rows(), Y: rows(), Z: rows()):
        with T.Kernel(BLOCKS, threads=64) as b:
            s, t = (T.alloc_shared((R, C), "float32") for _ in range(2))
            T.copy(X[b * R, 0], s)
            T.copy(s, Y[b * R, 0])
            for _ in T.Pipelined(4, num_stages=2):
                T.copy(Y[b * R, 0], s)
                for i, j in T.Parallel(R, C):
                    t[R - 1 - i, j] = s[i, j] + 1.0
                T.copy(t, Y[b * R, 0])
            T.copy(t, Z[b * R, 0])

    return pipelined


def in_place() -> Any:
    """Read, and written over by other threads; under a condition that is read from there as well."""

    @T.prim_func
    def in_place(X: rows(), Y: rows(), Z: rows()):
        with T.Kernel(BLOCKS, threads=64) as b:
            f = T.alloc_fragment((R, C), "float32")
            g = T.alloc_fragment((R, C), "float32")
            T.copy(X[b * R, 0], g)
            T.copy(g, Y[b * R, 0])
            for i, j in T.Parallel(R, C):
                f[i, j] = Y[b * R + (R - 1 - i), C - 1 - j]
            T.copy(f, Y[b * R, 0])
            if Y[b * R, 0] == Y[b * R, 0]:
                for i, j in T.Parallel(R, C):
                    f[i, j] = Y[b * R + i, C - 1 - j] * 2.0
            else:
                T.clear(f)
            T.copy(f, Z[b * R, 0])

    return in_place


def workspace() -> Any:
    """Global memory of the kernel's own."""

    @T.prim_func
    def workspace(X: rows(), Y: rows(), Z: rows()):
        with T.Kernel(BLOCKS, threads=64) as b:
            own = T.alloc_global((BLOCKS * R, C), "float32")
            s = T.alloc_shared((R, C), "float32")
            T.copy(X[b * R, 0], s)
            T.copy(s, own[b * R, 0])
            for i, j in T.Parallel(R, C):
                s[i, j] = own[b * R + (R - 1 - i), j] * 3.0
            T.copy(s, Y[b * R, 0])
            T.copy(s, Z[b * R, 0])

    return workspace


def sums_of_atomics() -> Any:
    """What atomics have counted is read when all have."""

    @T.prim_func
    def sums_of_atomics(X: rows(), Y: rows(), Z: rows()):
        with T.Kernel(BLOCKS, threads=64) as b:
            for i, j in T.Parallel(R, C):
                Y[b * R + i, j] = 0.0
            for i, j in T.Parallel(R, C):
                T.atomic_add(Y[b * R, j], X[b * R + i, j])
            for i, j in T.Parallel(R, C):
                Z[b * R + i, j] = Y[b * R, j]

    return sums_of_atomics


def row_after_row() -> Any:
    """A round reads the row that the one before has written: apart from what it writes itself, and not from that."""

    @T.prim_func
    def row_after_row(X: rows(), Y: rows(), Z: rows()):
        with T.Kernel(BLOCKS, threads=64) as b:
            for j in T.Parallel(C):
                Y[b * R, j] = X[b * R, j]
            for k in T.serial(1, R):
                for j in T.Parallel(C):
                    Y[b * R + k, j] = Y[b * R + k - 1, C - 1 - j] + X[b * R + k, j]
            for i, j in T.Parallel(R, C):
                Z[b * R + i, j] = Y[b * R + i, j]

    return row_after_row


def flipped(x: torch.Tensor) -> torch.Tensor:
    return x.view(BLOCKS, R, C).flip(1).reshape(BLOCKS * R, C)


def counted(x: torch.Tensor) -> torch.Tensor:
    first = x.view(BLOCKS, R, C)[:, :1].clone()
    first[..., 0] += 1
    return first.cumsum(-1).expand(BLOCKS, R, C).reshape(BLOCKS * R, C)


def summed(x: torch.Tensor) -> torch.Tensor:
    found = x.view(BLOCKS, R, C).clone()
    for k in range(1, R):
        found[:, k] += found[:, k - 1].flip(-1)
    return found.reshape(BLOCKS * R, C)


#: Each kernel with what Z is; X has small integers, so that every order of a sum gives the same.
KERNELS: dict[Callable[[], Any], Callable[[torch.Tensor], torch.Tensor]] = {
    read_back: flipped,
    turn_over_and_over: lambda x: flipped(x) + 5,
    count: counted,
    pipelined: lambda x: x + 4,
    in_place: lambda x: flipped(x) * 2,
    workspace: lambda x: flipped(x) * 3,
    row_after_row: summed,
    sums_of_atomics: lambda x: x.view(BLOCKS, R, C).sum(1, keepdim=True).expand(BLOCKS, R, C).reshape(BLOCKS * R, C),
}
NAMES = [kernel.__name__ for kernel in KERNELS]


def computed(kernel: core.Kernel, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """X, and Z of a call; Y is poisoned before it."""
    x = torch.randint(0, 5, (BLOCKS * R, C)).float()
    y, z = (torch.full_like(x, float("nan"), device=device) for _ in range(2))
    kernel(x.to(device), y, z)
    return x, z.cpu()


#: The CPU and Ascend run a block's statements in order by themselves.
ON = [
    *((make, target) for target in ("cpu", "metax:c500") for make in KERNELS),
    (count, "ascend:910b3"),
    (turn_over_and_over, "ascend:910b3"),
]


@pytest.mark.parametrize(("make", "target"), ON, ids=[f"{make.__name__} {target}" for make, target in ON])
def test_values_are_those_of_statements_in_order(make: Callable[[], Any], target: str) -> None:
    x, z = computed(core.compile(make(), target=target, simulate=target != "cpu"), "cpu")
    torch.testing.assert_close(z, KERNELS[make](x), rtol=0, atol=0)


@pytest.mark.gpu
@pytest.mark.parametrize("make", KERNELS, ids=NAMES)
def test_values_on_the_device(make: Callable[[], Any]) -> None:
    kernel = core.compile(make(), target="cuda")
    for _ in range(20):
        x, z = computed(kernel, "cuda")
        torch.testing.assert_close(z, KERNELS[make](x), rtol=0, atol=0)


def rewritten(kernel: Any, target: str = "cuda:h200") -> tuple[str, tuple[str, ...]]:
    compiled = core.compile(kernel, target=target, build=False)
    return compiled.get_kernel_source(), compiled.lowered.rewrites


@pytest.mark.parametrize("make", KERNELS, ids=NAMES)
def test_what_was_done_is_told_and_nothing_goes_in_bulk(make: Callable[[], Any]) -> None:
    source, told = rewritten(make())
    touched = "own" if make is workspace else "Y"
    message = f"a barrier where the order matters in which a block's statements touch {touched} (line"
    assert any(line.startswith(message) for line in told)
    assert f"{touched}_desc" not in source
    assert ("rounds of _ do not overlap: they touch what other rounds write" in told) is (make is pipelined)


def barriers(source: str) -> int:
    return source.count("__syncthreads();")


def test_one_barrier_in_front_of_a_loop_leaves_it_its_pipeline() -> None:
    @T.prim_func
    def keys(X: rows(), Y: rows(), Z: rows()):
        with T.Kernel(BLOCKS, threads=64) as b:
            s = T.alloc_shared((R, C), "float32")
            f = T.alloc_fragment((R, C), "float32")
            T.copy(X[b * R, 0], f)
            T.copy(f, Y[b * R, 0])
            T.clear(f)
            for _ in T.Pipelined(3, num_stages=2):
                T.copy(Y[b * R, 0], s)
                for i, j in T.Parallel(R, C):
                    f[i, j] += s[R - 1 - i, j]
            T.copy(f, Z[b * R, 0])

    source, told = rewritten(keys, "cuda:a100")
    assert "cp_async" in source
    assert not any("do not overlap" in line for line in told)
    x, z = computed(core.compile(keys, target="metax:c500", simulate=True), "cpu")
    torch.testing.assert_close(z, flipped(x) * 3, rtol=0, atol=0)


def test_kernels_without_such_statements_stay_as_they_are() -> None:
    @T.prim_func
    def scale(X: rows(), Y: rows(), Z: rows()):
        with T.Kernel(BLOCKS, threads=64) as b:
            for i, j in T.Parallel(R, C):
                Y[b * R + i, j] = Y[b * R + i, j] + X[b * R + i, j]
                Z[b * R + i, j] = Y[b * R + i, j] * 2.0
                Z[b * R + i, j] = Z[b * R + i, j] + 1.0

    @T.prim_func
    def branches(X: rows(), Y: rows(), Z: rows()):
        with T.Kernel(BLOCKS, threads=64) as b:
            if b == 0:
                for i, j in T.Parallel(R, C):
                    Y[b * R + i, j] = X[b * R + i, j]
            else:
                for i, j in T.Parallel(R, C):
                    Y[b * R + i, j] = X[b * R + i, j] * 2.0

    @T.prim_func
    def counts(X: rows(), Y: rows(), Z: rows()):
        with T.Kernel(BLOCKS, threads=64) as b:
            for i, j in T.Parallel(R, C):
                T.atomic_add(Y[0, j], X[b * R + i, j])
            for i, j in T.Parallel(R, C):
                T.atomic_add(Y[0, j], X[b * R + i, j])

    for kernel in (scale, branches, counts):
        source, told = rewritten(kernel, "cuda:a100")
        assert barriers(source) == 0
        assert told == ()


def test_places_apart_need_no_order() -> None:
    """Two products into the halves of one tensor: in bulk, and by warps of their own, as ever."""

    @T.prim_func
    def halves(
        A: T.Tensor((256, 128), "float16"), B: T.Tensor((128, 256), "float16"), Y: T.Tensor((256, 256), "float16")
    ):
        with T.Kernel(2, threads=128) as b:
            x = T.alloc_shared((128, 64), "float16")
            first, second = (T.alloc_shared((64, 128), "float16") for _ in range(2))
            one, other = (T.alloc_fragment((128, 128), "float32") for _ in range(2))
            T.clear(one)
            T.clear(other)
            for k in T.Pipelined(2, num_stages=2):
                T.copy(A[b * 128, k * 64], x)
                T.copy(B[k * 64, 0], first)
                T.copy(B[k * 64, 128], second)
                T.gemm(x, first, one)
                T.gemm(x, second, other)
            T.copy(one, Y[b * 128, 0])
            for i, j in T.Parallel(128, 128):
                Y[b * 128 + i, 128 + j] = other[i, j]

    source, told = rewritten(halves)
    assert "tma_load(A_desc" in source
    assert told == ()


def test_each_place_of_a_statement_counts() -> None:
    """The first statement writes two places: the second one touches the second of them alone."""

    @T.prim_func
    def places(X: rows(), Y: rows(), Z: rows()):
        with T.Kernel(BLOCKS, threads=64) as b:
            for i, j in T.Parallel(R, C // 2):
                Y[b * R + i, j] = X[b * R + i, j]
                Y[b * R + i, C // 2 + j] = X[b * R + i, C // 2 + j]
            for i, j in T.Parallel(R, C // 2):
                Z[b * R + i, j] = Y[b * R + (R - 1 - i), C // 2 + j]
                Z[b * R + i, C // 2 + j] = X[b * R + i, j]

    source, _ = rewritten(places, "cuda:a100")
    assert barriers(source) == 1


def test_what_a_variable_says_of_a_place_holds_until_it_is_set() -> None:
    """The same place twice, though the same variable would tell the two apart."""

    @T.prim_func
    def moved(X: rows(), Y: rows(), Z: rows()):
        with T.Kernel(BLOCKS, threads=64) as b:
            half = T.alloc_var("int32")
            f = T.alloc_fragment((R // 2, C), "float32")
            g = T.alloc_fragment((R // 2, C), "float32")
            T.copy(X[b * R, 0], f)
            half = 0
            T.copy(f, Y[b * R + half * (R // 2), 0])
            half = half + 1
            T.copy(Y[b * R + half * (R // 2) - R // 2, 0], g)
            T.copy(g, Z[b * R, 0])

    source, told = rewritten(moved, "cuda:a100")
    assert barriers(source) == 1
    assert told != ()


def test_a_product_added_to_a_tensor_needs_no_order() -> None:
    """The threads that read a sum's first values are those that store it."""

    @T.prim_func
    def added(
        A: T.Tensor((256, 128), "float16"), B: T.Tensor((128, 128), "float16"), Y: T.Tensor((256, 128), "float32")
    ):
        with T.Kernel(2, threads=128) as b:
            x, y = (T.alloc_shared(shape, "float16") for shape in ((128, 64), (64, 128)))
            sums = T.alloc_fragment((128, 128), "float32")
            T.copy(Y[b * 128, 0], sums)
            for k in T.Pipelined(2, num_stages=2):
                T.copy(A[b * 128, k * 64], x)
                T.copy(B[k * 64, 0], y)
                T.gemm(x, y, sums)
            T.copy(sums, Y[b * 128, 0])

    source, told = rewritten(added)
    assert "tma_load(A_desc" in source
    assert told == ()


def test_launches_are_in_order_by_themselves() -> None:
    @T.prim_func
    def twice(X: rows(), Y: rows(), Z: rows()):
        with T.Kernel(BLOCKS, threads=64) as b:
            for i, j in T.Parallel(R, C):
                Y[b * R + i, j] = X[b * R + i, j]
        with T.Kernel(BLOCKS, threads=64) as b:
            for i, j in T.Parallel(R, C):
                Z[b * R + i, j] = Y[b * R + (R - 1 - i), j]

    source, told = rewritten(twice, "cuda:a100")
    assert barriers(source) == 0
    assert told == ()


def test_a_barrier_that_is_there_counts_and_one_of_some_threads_does_not() -> None:
    def kernel(sync: Callable[[], Any]) -> Any:
        @T.prim_func
        def kernel(X: rows(), Y: rows(), Z: rows()):
            with T.Kernel(BLOCKS, threads=64) as b:
                for i, j in T.Parallel(R, C):
                    Y[b * R + i, j] = X[b * R + i, j]
                sync()
                for i, j in T.Parallel(R, C):
                    Z[b * R + i, j] = Y[b * R + (R - 1 - i), j]

        return kernel

    for sync, expected in ((T.sync_threads, 1), (lambda: T.sync_threads(3, 32), 1)):
        source, told = rewritten(kernel(sync), "cuda:a100")
        assert barriers(source) == expected
        assert bool(told) is (sync is not T.sync_threads)


def test_a_kernel_of_threads_orders_them_itself() -> None:
    @T.prim_func
    def threads(X: rows(), Y: rows(), Z: rows()):
        with T.Kernel(BLOCKS, threads=64) as b:
            t = T.get_thread_binding()
            if t < C:
                Y[b * R, t] = X[b * R, t]
                Z[b * R, t] = Y[b * R, t] + 1.0

    source, told = rewritten(threads, "cuda:a100")
    assert barriers(source) == 0
    assert told == ()


def test_each_statement_has_its_line() -> None:
    program = Program(read_back())
    chip = core.chip("cuda:a100")
    found = [one for one in differences(program.view, chip, CompileOptions()) if one.rule is Rule.GLOBAL_ORDER]
    lines = [one.stmt.location.line for one in found if one.stmt.location is not None]
    first = read_back.__code__.co_firstlineno
    assert lines == [first + 9]
