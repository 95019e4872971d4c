"""A block's statements keep their order in global memory too; stock TileLang keeps it in shared memory only."""

from __future__ import annotations

import re
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


def count_on_chip() -> Any:
    """Outside of T.Parallel, in shared memory: sums of sums, and atomics, once a block."""

    @T.prim_func
    def count_on_chip(X: rows(), Y: rows(), Z: rows()):
        with T.Kernel(BLOCKS, threads=128) as b:
            s = T.alloc_shared((1, C), "float32")
            n = T.alloc_shared((1,), "float32")
            T.copy(X[b * R, 0], s)
            n[0] = 0.0
            s[0, 0] = s[0, 0] + 1.0
            for k in T.serial(1, C):
                s[0, k] += s[0, k - 1]
                T.atomic_add(n[0], 1.0)
            for i, j in T.Parallel(R, C):
                Z[b * R + i, j] = s[0, j] + n[0] - (C - 1)

    return count_on_chip


def slice_after_vectors() -> Any:
    """Rows are copied by vectors and then filled by elements, by other threads."""

    @T.prim_func
    def slice_after_vectors(X: rows(), Y: rows(), Z: rows()):
        with T.Kernel(BLOCKS, threads=64) as b:
            s = T.alloc_shared((8, 16), "float32")
            for i, j in T.Parallel(R, C):
                Z[b * R + i, j] = X[b * R + i, j]
            T.copy(X[b * R, 0], s)
            T.fill(s[5:8, 4:16], 7.0)
            T.copy(s, Z[b * R, 0])

    return slice_after_vectors


def rows_of_few() -> Any:
    """Each round reads the row before the other way round; there are more threads than elements."""

    @T.prim_func
    def rows_of_few(X: rows(), Y: rows(), Z: rows()):
        with T.Kernel(1, threads=256):
            t = T.alloc_shared((16, 128), "float32")
            for i, j in T.Parallel(16, 128):
                t[i, j] = X[i, j % C]
            for k in T.serial(1, 16):
                for j in T.Parallel(128):
                    t[k, j] = t[k - 1, 127 - j] + 1.0
            for i, j in T.Parallel(2 * R, C):
                Z[i, j] = t[15, j]

    return rows_of_few


def ring() -> Any:
    """Rounds write the same elements, each time by other threads."""

    @T.prim_func
    def ring(X: rows(), Y: rows(), Z: rows()):
        with T.Kernel(BLOCKS, threads=64) as b:
            for k in T.serial(R):
                for i, j in T.Parallel(R, C):
                    Y[b * R + (i + k) % R, j] = X[b * R + i, j] + k
            for i, j in T.Parallel(R, C):
                Z[b * R + i, j] = Y[b * R + (i + R - 1) % R, j]

    return ring


def windows() -> Any:
    """Rounds write rows that the next ones write again."""

    @T.prim_func
    def windows(X: rows(), Y: rows(), Z: rows()):
        with T.Kernel(1, threads=64):
            s = T.alloc_fragment((R, C), "float32")
            T.copy(X[0, 0], s)
            for k in T.serial(R + 1):
                T.copy(s, Y[k, 0])
                for i, j in T.Parallel(R, C):
                    s[i, j] += 1.0
            for i, j in T.Parallel(2 * R, C):
                Z[i, j] = Y[i, j]

    return windows


def few_elements() -> Any:
    """A fragment of fewer elements than threads: several have each of them, and one stores it."""

    @T.prim_func
    def few_elements(X: rows(), Y: rows(), Z: rows()):
        with T.Kernel(BLOCKS, threads=128) as b:
            f = T.alloc_fragment((2, 16), "float32")
            T.copy(X[b * R, 0], f)
            T.copy(f, Y[b * R, 0])
            T.copy(Y[b * R, 0], f)
            for i, j in T.Parallel(R, C):
                Z[b * R + i, j] = X[b * R + i, j]
            T.copy(f, Z[b * R + 2, 0])

    return few_elements


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


def filled(x: torch.Tensor) -> torch.Tensor:
    found = x.view(BLOCKS, R, C).clone()
    found[:, 5:8, 4:16] = 7
    return found.reshape(BLOCKS * R, C)


def in_windows(x: torch.Tensor) -> torch.Tensor:
    found = torch.empty(2 * R, C)
    for k in range(R + 1):
        found[k : k + R] = x[:R] + k
    return found


def moved(x: torch.Tensor) -> torch.Tensor:
    found = x.view(BLOCKS, R, C).clone()
    found[:, 2:4, :16] = found[:, :2, :16]
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
#: What is ordered is on the chip, or between rounds of one statement.
OTHERS: dict[Callable[[], Any], Callable[[torch.Tensor], torch.Tensor]] = {
    count_on_chip: counted,
    slice_after_vectors: filled,
    rows_of_few: lambda x: (x[:1, (127 - torch.arange(C)) % C] + 15).expand(2 * R, C),
    ring: lambda x: x.view(BLOCKS, R, C).roll(-1, 1).roll(1, 1).reshape(BLOCKS * R, C) + (R - 1),
    windows: in_windows,
    few_elements: moved,
}
ALL = {**KERNELS, **OTHERS}
NAMES = [kernel.__name__ for kernel in KERNELS]


def computed(kernel: core.Kernel, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """X, and Z of a call; Y is poisoned before it."""
    x = torch.randint(0, 5, (BLOCKS * R, C)).float()
    y, z = (torch.full_like(x, float("nan"), device=device) for _ in range(2))
    kernel(x.to(device), y, z)
    return x, z.cpu()


#: The CPU and Ascend run a block's statements in order by themselves.
ON = [
    *((make, target) for target in ("cpu", "metax:c500") for make in ALL),
    (count, "ascend:910b3"),
    (count_on_chip, "ascend:910b3"),
    (turn_over_and_over, "ascend:910b3"),
]


@pytest.mark.parametrize(("make", "target"), ON, ids=[f"{make.__name__} {target}" for make, target in ON])
def test_values_are_those_of_statements_in_order(make: Callable[[], Any], target: str) -> None:
    x, z = computed(core.compile(make(), target=target, simulate=target != "cpu"), "cpu")
    torch.testing.assert_close(z, ALL[make](x), rtol=0, atol=0)


@pytest.mark.gpu
@pytest.mark.parametrize("make", ALL, ids=[make.__name__ for make in ALL])
def test_values_on_the_device(make: Callable[[], Any]) -> None:
    kernel = core.compile(make(), target="cuda")
    for _ in range(20):
        x, z = computed(kernel, "cuda")
        torch.testing.assert_close(z, ALL[make](x), rtol=0, atol=0)


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


@pytest.mark.parametrize(
    ("make", "ordered", "expected"),
    [
        (slice_after_vectors, "s", r"__syncthreads\(\);\n.*\n.*= 0x1.cp\+2f"),
        (ring, "Y", r"for \(int k = 0; k < 32; \+\+k\) {\n    __syncthreads"),
        (windows, "Y", r"for \(int k = 0; k < 33; \+\+k\) {\n    __syncthreads"),
        (few_elements, "Y", r"= f\[0\];\n  }\n  __syncthreads\(\);\n  f\[0\] = Y"),
    ],
)
def test_a_barrier_is_where_other_threads_come_to_the_same_elements(make: Any, ordered: str, expected: str) -> None:
    source, told = rewritten(make())
    assert re.search(expected, source), source
    message = f"a barrier where the order matters in which a block's statements touch {ordered} (line"
    assert any(line.startswith(message) for line in told)


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


def synchronised(threads: bool) -> Any:
    """The author's own barrier, which no bulk copy waits for."""

    @T.prim_func
    def synchronised(X: rows(), Y: rows(), Z: rows()):
        with T.Kernel(BLOCKS, threads=64) as b:
            s = T.alloc_shared((R, C), "float32")
            T.copy(X[b * R, 0], s)
            T.copy(s, Y[b * R, 0])
            T.sync_threads()
            if threads:
                t = T.get_thread_binding()
                if t < C:
                    Z[b * R, t] = Y[b * R + R - 1, t]
            else:
                for i, j in T.Parallel(R, C):
                    Z[b * R + i, j] = Y[b * R + (R - 1 - i), j]

    return synchronised


@pytest.mark.parametrize("threads", [False, True])
def test_an_authors_barrier_makes_threads_store_what_is_read_behind_it(threads: bool) -> None:
    source, told = rewritten(synchronised(threads))
    assert "tma_store" not in source
    assert any("touch Y (line" in line for line in told)


def test_loops_that_write_tiles_of_their_own_stay_as_they_are() -> None:
    """Also where what tells the tiles apart is a name, and a row of them is written in a loop inside."""

    @T.prim_func
    def tiles(X: rows(), Y: rows(), Z: rows()):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((16, C), "float32")
            for k in T.Pipelined(BLOCKS, num_stages=2):
                first = k * R
                for i in T.serial(2):
                    T.copy(X[first + i * 16, 0], s)
                    T.copy(s, Y[first + i * 16, 0])

    _, told = rewritten(tiles)
    assert told == ()


def test_what_reads_through_a_pointer_is_ordered_too() -> None:
    @T.prim_func
    def pointer(X: rows(), Y: rows(), Z: rows()):
        with T.Kernel(BLOCKS, threads=64) as b:
            s = T.alloc_shared((R, C), "float32")
            T.copy(X[b * R, 0], s)
            T.copy(s, Y[b * R, 0])
            for i, j in T.Parallel(R, C):
                Z[b * R + i, j] = T.call_extern("float32", "__ldcg", T.address_of(Y[b * R + (R - 1 - i), j]))

    source, told = rewritten(pointer)
    assert "tma_store" not in source
    assert any("touch Y (line" in line for line in told)


def test_an_old_value_for_every_thread_is_refused_at_its_line() -> None:
    @T.prim_func
    def slots(X: rows(), Y: rows(), Z: rows()):
        with T.Kernel(BLOCKS, threads=64) as b:
            first = T.atomic_add(Y[0, 0], 1.0, return_prev=True)
            Z[b, 0] = first

    with pytest.raises(core.UnsupportedOp, match=r"old value is used, outside of T\.Parallel") as caught:
        rewritten(slots, "cuda:a100")
    assert caught.value.location is not None
    assert caught.value.location.line == slots_line(test_an_old_value_for_every_thread_is_refused_at_its_line, 4)


def slots_line(test: Any, below: int) -> int:
    return int(test.__code__.co_firstlineno) + below


@pytest.mark.parametrize("target", ["cpu", "metax:c500"])
def test_an_old_value_that_is_stored_first_is_one_for_all(target: str) -> None:
    @T.prim_func
    def slots(N: T.Tensor((1,), "int32"), Z: T.Tensor((4,), "int32")):
        with T.Kernel(4, threads=128):
            slot = T.alloc_shared((1,), "int32")
            slot[0] = T.atomic_add(N[0], 1, return_prev=True)
            Z[slot[0]] = slot[0] * 10

    kernel = core.compile(slots, target=target, simulate=target != "cpu")
    n, z = torch.zeros(1, dtype=torch.int32), torch.full((4,), -1, dtype=torch.int32)
    kernel(n, z)
    assert n.tolist() == [4]
    assert z.tolist() == [0, 10, 20, 30]


def test_each_statement_has_its_line() -> None:
    program = Program(read_back())
    chip = core.chip("cuda:a100")
    found = [one for one in differences(program.view, chip, CompileOptions()) if one.rule is Rule.GLOBAL_ORDER]
    lines = [one.stmt.location.line for one in found if one.stmt.location is not None]
    first = read_back.__code__.co_firstlineno
    assert lines == [first + 9]


def test_images_that_the_block_writes_itself_are_no_images_for_the_copy_engine() -> None:
    @T.prim_func
    def images(X: T.Tensor((1, 8, 8, 32), "float16"), Y: T.Tensor((64, 32), "float16")):
        with T.Kernel(1, threads=128):
            own = T.alloc_global((1, 8, 8, 32), "float16")
            s = T.alloc_shared((1, 8, 8, 32), "float16")
            t = T.alloc_shared((64, 32), "float16")
            T.copy(X, s)
            T.copy(s, own)
            T.im2col(own, t, 0, 0, 1, 1, 1, 0)
            T.copy(t, Y)

    with pytest.raises(core.UnsupportedOp, match=r"T\.im2col of own, which the same block writes") as caught:
        rewritten(images)
    assert caught.value.location is not None
    below = test_images_that_the_block_writes_itself_are_no_images_for_the_copy_engine.__code__.co_firstlineno
    assert caught.value.location.line == below + 9
