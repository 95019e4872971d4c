"""Control flow and state: while loops, variables, loop kinds, several launches, run-time and symbolic sizes."""

from collections.abc import Iterator

import tilelang
import tilelang.language as T
import torch

from tests.kernels.case import EXACT, Case, maths, randint, randn, summed


@tilelang.jit(out_idx=[1])
def collatz(N, limit=200):
    """Steps until 1: a while loop over two variables, its length unknown beforehand."""

    @T.prim_func
    def main(X: T.Tensor((N,), "int32"), steps: T.Tensor((N,), "int32")):
        with T.Kernel(N, threads=128) as bx:
            value = T.alloc_var("int32", init=0)
            count = T.alloc_var("int32", init=0)
            value = X[bx]
            while value != 1 and count < limit:
                if value % 2 == 0:
                    value = value // 2
                else:
                    value = 3 * value + 1
                count = count + 1
            steps[bx] = count

    return main


@tilelang.jit
def binary_search(table, queries):
    """How many entries of a sorted table are smaller than each query."""
    N, Q = T.const("N, Q")
    table: T.Tensor[[N], T.float32]
    queries: T.Tensor[[Q], T.float32]
    found = T.empty((Q,), T.int32)
    with T.Kernel(Q, threads=128) as q:
        low = T.alloc_var("int32", init=0)
        high = T.alloc_var("int32", init=N)
        while low < high:
            middle = (low + high) // 2
            if table[middle] < queries[q]:
                low = middle + 1
            else:
                high = middle
        found[q] = low
    return found


@tilelang.jit(out_idx=[1, 2])
def loop_kinds(M, N):
    """Serial with a step, backwards, unrolled, a start other than 0, break and continue."""

    @T.prim_func
    def main(X: T.Tensor((M, N), "int32"), sums: T.Tensor((M, 4), "int32"), first: T.Tensor((M,), "int32")):
        with T.Kernel(M, threads=128) as bx:
            total = T.alloc_var("int32", init=0)
            for j in T.serial(1, N, 3):
                total += X[bx, j]
            sums[bx, 0] = total
            total = 0
            for j in T.serial(N - 1, -1, -2):
                total = total * 3 + X[bx, j]
            sums[bx, 1] = total
            total = 0
            for j in T.unroll(4):
                total += X[bx, j] * (j + 1)
            sums[bx, 2] = total
            total = 0
            for j in range(2, N):
                if X[bx, j] % 2 == 0:
                    continue
                total += X[bx, j]
            sums[bx, 3] = total
            place = T.alloc_var("int32", init=-1)
            for j in range(N):
                if X[bx, j] > 90:
                    place = j
                    break
            first[bx] = place

    return main


@tilelang.jit(out_idx=[1])
def two_launches(M, N, block=64):
    """Column means in one launch, subtracted in a second that reads them through a workspace tensor."""

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32"), mean: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            total = T.alloc_fragment((block,), "float32")
            T.clear(total)
            for i in T.serial(M):
                for j in T.Parallel(block):
                    total[j] += X[i, bx * block + j]
            for j in T.Parallel(block):
                mean[bx * block + j] = total[j] / M
        with T.Kernel(T.ceildiv(N, block), M, threads=128) as (bx, by):
            for j in T.Parallel(block):
                Y[by, bx * block + j] = X[by, bx * block + j] - mean[bx * block + j]

    return main


@tilelang.jit(out_idx=[1])
def grid_3d(A, B, C, block=32):
    """Every grid axis used, none of them equal; the output encodes the block that wrote it."""

    @T.prim_func
    def main(X: T.Tensor((A, B, C), "int32"), Y: T.Tensor((A, B, C), "int32")):
        with T.Kernel(T.ceildiv(C, block), B, A, threads=128) as (bx, by, bz):
            for i in T.Parallel(block):
                if bx * block + i < C:
                    Y[bz, by, bx * block + i] = X[bz, by, bx * block + i] + bx * 10000 + by * 100 + bz

    return main


@tilelang.jit
def horner(X, coefficients, degree: T.int32, block: int = 128):
    """A polynomial whose degree is a run-time scalar: a loop of unknown length over a fragment."""
    N, D = T.const("N, D")
    X: T.Tensor[[N], T.float32]
    coefficients: T.Tensor[[D], T.float32]
    Y = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
        y = T.alloc_fragment((block,), "float32")
        T.clear(y)
        for k in T.serial(degree + 1):
            for i in T.Parallel(block):
                y[i] = y[i] * X[bx * block + i] + coefficients[degree - k]
        T.copy(y, Y[bx * block])
    return Y


@tilelang.jit(out_idx=[2])
def symbolic_sizes(block_M=8, block_N=64):
    """Rows and columns known at the call only, one of them also the length of a vector and inside an expression."""
    M = T.dynamic("M")
    N = T.dynamic("N")

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), w: T.Tensor((N,), "float32"), Y: T.Tensor((M, 2 * N), "float32")):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            for i, j in T.Parallel(block_M, block_N):
                if by * block_M + i < M and bx * block_N + j < N:
                    Y[by * block_M + i, bx * block_N + j] = X[by * block_M + i, bx * block_N + j] * w[bx * block_N + j]
                    Y[by * block_M + i, N + bx * block_N + j] = w[bx * block_N + j]

    return main


@tilelang.jit(out_idx=[1])
def persistent_rows(M, N, blocks):
    """A plain grid-stride loop: each block takes every `blocks`-th row."""

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M,), "float32")):
        with T.Kernel(blocks, threads=128) as bx:
            x = T.alloc_fragment((1, N), "float32")
            y = T.alloc_fragment((1,), "float32")
            for step in T.serial(T.ceildiv(M, blocks)):
                row = step * blocks + bx
                if row < M:
                    T.copy(X[row, 0], x)
                    T.reduce_sum(x, y, dim=1)
                    Y[row] = y[0]

    return main


@tilelang.jit(out_idx=[1])
def rotating_tiles(N, block=16):
    """Each step reads what other elements became in the two steps before: shared tiles rotate, with a barrier."""

    @T.prim_func
    def main(X: T.Tensor((N, block), "int32"), Y: T.Tensor((N, block), "int32")):
        with T.Kernel(1, threads=128):
            previous = T.alloc_shared((block,), "int32")
            current = T.alloc_shared((block,), "int32")
            following = T.alloc_shared((block,), "int32")
            T.copy(X[0, 0:block], previous)
            T.copy(X[1, 0:block], current)
            T.copy(previous, Y[0, 0:block])
            T.copy(current, Y[1, 0:block])
            for k in T.serial(2, N):
                for i in T.Parallel(block):
                    following[i] = previous[i] + current[block - 1 - i] + X[k, i]
                T.sync_threads()
                T.copy(current, previous)
                T.copy(following, current)
                T.copy(following, Y[k, 0:block])

    return main


@T.macro
def _square_root_step(x, a):
    """One Newton step towards sqrt(a); a macro is spliced into the kernel that uses it."""
    for i in T.Parallel(x.shape[0]):
        x[i] = 0.5 * (x[i] + a[i] / x[i])


@tilelang.jit
def newton_square_root(A, steps: int = 8, block: int = 64):
    """Macros, and a loop the tracer unrolls in Python."""
    N = T.const("N")
    A: T.Tensor[[N], T.float32]
    Y = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
        a = T.alloc_fragment((block,), "float32")
        x = T.alloc_fragment((block,), "float32")
        for i in T.Parallel(block):
            a[i] = T.if_then_else(bx * block + i < N, A[bx * block + i], 1.0)
        T.fill(x, 1.0)
        for _ in T.serial(steps):
            _square_root_step(x, a)
        T.copy(x, Y[bx * block])
    return Y


def _collatz(x: torch.Tensor) -> torch.Tensor:
    def steps(value: int) -> int:
        count = 0
        while value != 1 and count < 200:
            value = value // 2 if value % 2 == 0 else 3 * value + 1
            count += 1
        return count

    return torch.tensor([steps(int(value)) for value in x], dtype=torch.int32)


def _loop_kinds(x: torch.Tensor) -> list[torch.Tensor]:
    sums, first = [], []
    for row in x.tolist():
        backwards = 0
        for value in row[::-1][::2]:
            backwards = backwards * 3 + value
        ascending = sum(value * (j + 1) for j, value in enumerate(row[:4]))
        odd = sum(value for value in row[2:] if value % 2)
        sums.append([sum(row[1::3]), backwards, ascending, odd])
        first.append(next((j for j, value in enumerate(row) if value > 90), -1))
    return [torch.tensor(sums, dtype=torch.int32), torch.tensor(first, dtype=torch.int32)]


def _grid_3d(x: torch.Tensor) -> torch.Tensor:
    a, b, c = (torch.arange(extent, dtype=torch.int32) for extent in x.shape)
    return x + (c // 32) * 10000 + b[:, None] * 100 + a[:, None, None]


def _rotating_tiles(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    previous, current = x[0].clone(), x[1].clone()
    for k in range(2, x.shape[0]):
        y[k] = previous + current.flip(0) + x[k]
        previous, current = current, y[k].clone()
    return y


def cases() -> Iterator[Case]:
    yield Case(
        "control.collatz[50]",
        collatz,
        lambda gen: [randint(gen, 1, 1000, 50)],
        _collatz,
        EXACT,
        args=(50,),
        tags=frozenset({"while", "variable", "integer"}),
    )
    yield Case(
        "control.binary_search[1000-in-77]",
        binary_search,
        lambda gen: [randn(gen, 77).sort().values, randn(gen, 100)],
        lambda table, queries: torch.searchsorted(table, queries).int(),
        EXACT,
        style="eager",
        tags=frozenset({"while", "variable", "indirect"}),
    )
    yield Case(
        "control.loop_kinds[7x13]",
        loop_kinds,
        lambda gen: [randint(gen, 0, 100, 7, 13)],
        _loop_kinds,
        EXACT,
        args=(7, 13),
        tags=frozenset({"loops", "variable", "break", "integer"}),
    )
    yield Case(
        "control.two_launches[20x100]",
        two_launches,
        lambda gen: [randn(gen, 20, 100), torch.full((100,), 1e9)],
        lambda x, _: [x.double() - x.double().mean(0), x.double().mean(0)],
        summed(20),
        args=(20, 100),
        updates=(1,),
        tags=frozenset({"several-launches", "workspace", "tail"}),
    )
    yield Case(
        "control.grid_3d[3x5x70]",
        grid_3d,
        lambda gen: [randint(gen, 0, 100, 3, 5, 70)],
        _grid_3d,
        EXACT,
        args=(3, 5, 70),
        tags=frozenset({"3d-grid", "rank-3", "integer", "tail"}),
    )
    yield Case(
        "control.horner[200-degree-5]",
        horner,
        lambda gen: [torch.rand(200, generator=gen), randn(gen, 9), 5],
        lambda x, c, degree: sum(c[k].double() * x.double() ** k for k in range(degree + 1)),
        summed(8),
        style="eager",
        tags=frozenset({"scalar", "dynamic-loop", "tail"}),
    )
    for M, N in ((9, 100), (20, 64)):
        yield Case(
            f"control.symbolic_sizes[{M}x{N}]",
            symbolic_sizes,
            lambda gen, M=M, N=N: [randn(gen, M, N), randn(gen, N)],
            lambda x, w: torch.cat([x * w, w.expand_as(x)], 1),
            EXACT,
            tags=frozenset({"dynamic", "tail"}),
        )
    yield Case(
        "control.persistent_rows[13-by-4]",
        persistent_rows,
        lambda gen: [randn(gen, 13, 128)],
        lambda x: x.double().sum(1),
        summed(128),
        args=(13, 128, 4),
        tags=frozenset({"persistent", "reduce", "tail"}),
    )
    yield Case(
        "control.rotating_tiles[9]",
        rotating_tiles,
        lambda gen: [randint(gen, -10, 10, 9, 16)],
        _rotating_tiles,
        EXACT,
        args=(9,),
        tags=frozenset({"shared", "barrier", "integer"}),
    )
    yield Case(
        "control.newton_square_root[100]",
        newton_square_root,
        lambda gen: [torch.rand(100, generator=gen) * 9.0 + 0.1],
        lambda a: a.double().sqrt(),
        maths(),
        style="eager",
        tags=frozenset({"macro", "tail"}),
    )
