"""Moving data: transposes, permutations, gathers, scatters, views, slices, higher ranks, atomics on indices."""

from collections.abc import Iterator

import tilelang
import tilelang.language as T
import torch

from tests.kernels.case import EXACT, Case, randint, randn, rounded


@tilelang.jit(out_idx=[1])
def transpose_tile(M, N, block_M=32, block_N=64, dtype="float16"):
    """The tile operation, through shared memory."""

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), Y: T.Tensor((N, M), dtype)):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            x = T.alloc_shared((block_M, block_N), dtype)
            y = T.alloc_shared((block_N, block_M), dtype)
            T.copy(X[by * block_M, bx * block_N], x)
            T.transpose(x, y)
            T.copy(y, Y[bx * block_N, by * block_M])

    return main


@tilelang.jit
def transpose_index(X, block: int = 32):
    """The same with indices only: reads columns from global memory."""
    M, N = T.const("M, N")
    X: T.Tensor[[M, N], T.float32]
    Y = T.empty((N, M), T.float32)
    with T.Kernel(T.ceildiv(M, block), T.ceildiv(N, block), threads=128) as (bx, by):
        for i, j in T.Parallel(block, block):
            if by * block + i < N and bx * block + j < M:
                Y[by * block + i, bx * block + j] = X[bx * block + j, by * block + i]
    return Y


@tilelang.jit(out_idx=[1])
def permute_4d(B, S, H, D, dtype="float16"):
    """(batch, sequence, head, dim) to (batch, head, sequence, dim): a rank-4 copy with unit extents on both sides."""
    block_S = 16

    @T.prim_func
    def main(X: T.Tensor((B, S, H, D), dtype), Y: T.Tensor((B, H, S, D), dtype)):
        with T.Kernel(T.ceildiv(S, block_S), H, B, threads=128) as (bs, h, b):
            x = T.alloc_shared((block_S, D), dtype)
            T.copy(X[b, bs * block_S : (bs + 1) * block_S, h, 0:D], x)
            T.copy(x, Y[b, h, bs * block_S : (bs + 1) * block_S, 0:D])

    return main


@tilelang.jit(out_idx=[2])
def embedding(rows, width, count, dtype="bfloat16"):
    """Rows of a table picked by index: the copy's start is itself loaded."""

    @T.prim_func
    def main(
        table: T.Tensor((rows, width), dtype), ids: T.Tensor((count,), "int64"), Y: T.Tensor((count, width), dtype)
    ):
        with T.Kernel(count, threads=128) as bx:
            row = T.alloc_fragment((width,), dtype)
            T.copy(table[ids[bx], 0:width], row)
            T.copy(row, Y[bx, 0:width])

    return main


@tilelang.jit
def gather_elements(X, index, block: int = 64):
    """Y[i, j] = X[index[i, j], j]."""
    M, N, R = T.const("M, N, R")
    X: T.Tensor[[M, N], T.float32]
    index: T.Tensor[[R, N], T.int32]
    Y = T.empty((R, N), T.float32)
    with T.Kernel(R, T.ceildiv(N, block), threads=128) as (r, bx):
        for j in T.Parallel(block):
            if bx * block + j < N:
                Y[r, bx * block + j] = X[index[r, bx * block + j], bx * block + j]
    return Y


@tilelang.jit
def scatter_rows(rows, width, count, block=8):
    """Y[slots[i]] = X[i] for distinct slots; a slot of -1 drops the row."""

    @T.prim_func
    def main(
        X: T.Tensor((count, width), "float32"),
        slots: T.Tensor((count,), "int32"),
        Y: T.Tensor((rows, width), "float32"),
    ):
        with T.Kernel(T.ceildiv(count, block), threads=128) as bx:
            for i, j in T.Parallel(block, width):
                if bx * block + i < count and slots[bx * block + i] >= 0:
                    Y[slots[bx * block + i], j] = X[bx * block + i, j]

    return main


@tilelang.jit
def scatter_add(rows, width, count, dtype="float32"):
    """Y[segments[i]] += X[i], several rows to one segment: atomic additions."""

    @T.prim_func
    def main(
        X: T.Tensor((count, width), dtype), segments: T.Tensor((count,), "int32"), Y: T.Tensor((rows, width), dtype)
    ):
        with T.Kernel(count, threads=128) as bx:
            for j in T.Parallel(width):
                T.atomic_add(Y[segments[bx], j], X[bx, j])

    return main


@tilelang.jit
def histogram(N, bins, block=128):
    """counts[X[i]] += 1 with integer atomics; values outside [0, bins) are not counted."""

    @T.prim_func
    def main(X: T.Tensor((N,), "int32"), counts: T.Tensor((bins,), "int32")):
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            for i in T.Parallel(block):
                if bx * block + i < N:
                    value = X[bx * block + i]
                    if value >= 0 and value < bins:
                        T.atomic_add(counts[value], 1)

    return main


@tilelang.jit
def segment_extremes(N, segments, block=128):
    """Largest and smallest value of each segment with atomics."""

    @T.prim_func
    def main(
        X: T.Tensor((N,), "int32"),
        ids: T.Tensor((N,), "int32"),
        top: T.Tensor((segments,), "int32"),
        bottom: T.Tensor((segments,), "int32"),
    ):
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            for i in T.Parallel(block):
                if bx * block + i < N:
                    T.atomic_max(top[ids[bx * block + i]], X[bx * block + i])
                    T.atomic_min(bottom[ids[bx * block + i]], X[bx * block + i])

    return main


@tilelang.jit(out_idx=[1, 2])
def reshaped(M, N, dtype="float16"):
    """The same tile seen flat and as a matrix; nothing moves."""

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), flat: T.Tensor((M * N,), dtype), folded: T.Tensor((M // 2, 2 * N), dtype)):
        with T.Kernel(1, threads=128):
            x = T.alloc_shared((M, N), dtype)
            T.copy(X, x)
            line = T.reshape(x, [M * N])
            T.copy(line, flat)
            for i in T.Parallel(M * N):
                line[i] = line[i] * 2
            wide = T.view(x, [M // 2, 2 * N])
            T.copy(wide, folded)

    return main


@tilelang.jit(out_idx=[1])
def bits_of(N, block=128):
    """The bit pattern of a float as an integer, and back with the sign bit cleared."""

    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((2, N), "float32")):
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            for i in T.Parallel(block):
                bits = T.reinterpret(X[bx * block + i], "int32")
                Y[0, bx * block + i] = T.cast((bits >> 23) & 255, "float32")
                Y[1, bx * block + i] = T.reinterpret(bits & 0x7FFFFFFF, "float32")

    return main


@tilelang.jit
def concatenate(A, B, block: int = 64):
    """Two matrices side by side: each copy starts in the middle of the output's rows."""
    M, N, K = T.const("M, N, K")
    A: T.Tensor[[M, N], T.float32]
    B: T.Tensor[[M, K], T.float32]
    C = T.empty((M, N + K), T.float32)
    with T.Kernel(M, threads=128) as row:
        for k in T.serial(T.ceildiv(N, block)):
            for j in T.Parallel(block):
                if k * block + j < N:
                    C[row, k * block + j] = A[row, k * block + j]
        for k in T.serial(T.ceildiv(K, block)):
            for j in T.Parallel(block):
                if k * block + j < K:
                    C[row, N + k * block + j] = B[row, k * block + j]
    return C


@tilelang.jit(out_idx=[1])
def pad(M, N, margin, value, block=32):
    """A border of `value` around a matrix: reads that would be outside are never made."""

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M + 2 * margin, N + 2 * margin), "float32")):
        with T.Kernel(T.ceildiv(N + 2 * margin, block), M + 2 * margin, threads=128) as (bx, by):
            for j in T.Parallel(block):
                column = bx * block + j - margin
                if bx * block + j < N + 2 * margin:
                    Y[by, bx * block + j] = T.if_then_else(
                        by >= margin and by < M + margin and column >= 0 and column < N, X[by - margin, column], value
                    )

    return main


@tilelang.jit(out_idx=[1])
def strided(M, N, pitch, block=32):
    """The input's rows lie `pitch` elements apart: a slice of a wider matrix, taken without copying it."""

    @T.prim_func
    def main(X: T.StridedTensor((M, N), (pitch, 1), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(N, block), M, threads=128) as (bx, by):
            for j in T.Parallel(block):
                if bx * block + j < N:
                    Y[by, bx * block + j] = X[by, bx * block + j] + 1.0

    return main


def _scatter_rows(x: torch.Tensor, slots: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    kept = slots >= 0
    y[slots[kept].long()] = x[kept]
    return y


def _extremes(x: torch.Tensor, ids: torch.Tensor, top: torch.Tensor, bottom: torch.Tensor) -> list[torch.Tensor]:
    return [
        top.scatter_reduce(0, ids.long(), x, "amax"),
        bottom.scatter_reduce(0, ids.long(), x, "amin"),
    ]


def _bits_of(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([((x.view(torch.int32) >> 23) & 255).float(), x.abs()])


def _pad(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.pad(x, (2, 2, 2, 2), value=-7.5)


def cases() -> Iterator[Case]:
    yield Case(
        "movement.transpose_tile[50x100]",
        transpose_tile,
        lambda gen: [randn(gen, 50, 100, dtype=torch.float16)],
        lambda x: x.T.contiguous(),
        EXACT,
        args=(50, 100),
        tags=frozenset({"transpose", "shared", "tail"}),
    )
    yield Case(
        "movement.transpose_index[50x70]",
        transpose_index,
        lambda gen: [randn(gen, 50, 70)],
        lambda x: x.T.contiguous(),
        EXACT,
        style="eager",
        tags=frozenset({"transpose", "tail"}),
    )
    yield Case(
        "movement.permute_4d[2x20x3x64]",
        permute_4d,
        lambda gen: [randn(gen, 2, 20, 3, 64, dtype=torch.float16)],
        lambda x: x.permute(0, 2, 1, 3).contiguous(),
        EXACT,
        args=(2, 20, 3, 64),
        tags=frozenset({"transpose", "rank-4", "3d-grid", "shared", "tail"}),
    )
    yield Case(
        "movement.embedding[50x96]",
        embedding,
        lambda gen: [randn(gen, 50, 96, dtype=torch.bfloat16), randint(gen, 0, 50, 13, dtype=torch.int64)],
        lambda table, ids: table[ids],
        EXACT,
        args=(50, 96, 13),
        tags=frozenset({"gather", "indirect", "bfloat16", "int64"}),
    )
    yield Case(
        "movement.gather_elements[40x70]",
        gather_elements,
        lambda gen: [randn(gen, 40, 70), randint(gen, 0, 40, 9, 70)],
        lambda x, index: x.gather(0, index.long()),
        EXACT,
        style="eager",
        tags=frozenset({"gather", "indirect", "tail"}),
    )
    yield Case(
        "movement.scatter_rows[30x40]",
        scatter_rows,
        lambda gen: [
            randn(gen, 20, 40),
            torch.where(torch.rand(20, generator=gen) < 0.2, -1, torch.randperm(30, generator=gen)[:20]).int(),
            randn(gen, 30, 40),
        ],
        _scatter_rows,
        EXACT,
        args=(30, 40, 20),
        updates=(2,),
        tags=frozenset({"scatter", "indirect", "tail"}),
    )
    yield Case(
        "movement.scatter_add[10x48]",
        scatter_add,
        lambda gen: [randn(gen, 33, 48), randint(gen, 0, 10, 33), randn(gen, 10, 48)],
        lambda x, segments, y: y.double().index_add(0, segments.long(), x.double()),
        rounded("float32", 16, atol=1e-5),  # up to 33 additions of numbers of size 1, in any order
        args=(10, 48, 33),
        updates=(2,),
        tags=frozenset({"scatter", "atomics", "indirect"}),
    )
    yield Case(
        "movement.histogram[1000]",
        histogram,
        lambda gen: [randint(gen, -3, 20, 1000), torch.zeros(16, dtype=torch.int32)],
        lambda x, counts: torch.bincount(x[(x >= 0) & (x < 16)], minlength=16).int(),
        EXACT,
        args=(1000, 16),
        updates=(1,),
        tags=frozenset({"histogram", "atomics", "integer", "tail"}),
    )
    yield Case(
        "movement.segment_extremes[500]",
        segment_extremes,
        lambda gen: [
            randint(gen, -1000, 1000, 500),
            randint(gen, 0, 7, 500),
            torch.full((7,), -(2**31), dtype=torch.int32),
            torch.full((7,), 2**31 - 1, dtype=torch.int32),
        ],
        _extremes,
        EXACT,
        args=(500, 7),
        updates=(2, 3),
        tags=frozenset({"atomics", "integer", "indirect", "tail"}),
    )
    yield Case(
        "movement.reshaped[8x48]",
        reshaped,
        lambda gen: [randn(gen, 8, 48, dtype=torch.float16)],
        lambda x: [x.reshape(-1), (x * 2).reshape(4, 96)],
        EXACT,
        args=(8, 48),
        tags=frozenset({"view", "shared"}),
    )
    yield Case(
        "movement.bits_of[200]",
        bits_of,
        lambda gen: [randn(gen, 200)],
        _bits_of,
        EXACT,
        args=(200,),
        tags=frozenset({"reinterpret", "integer", "tail"}),
    )
    yield Case(
        "movement.concatenate[9x70+33]",
        concatenate,
        lambda gen: [randn(gen, 9, 70), randn(gen, 9, 33)],
        lambda a, b: torch.cat([a, b], 1),
        EXACT,
        style="eager",
        tags=frozenset({"slice", "tail"}),
    )
    yield Case(
        "movement.pad[9x50]",
        pad,
        lambda gen: [randn(gen, 9, 50)],
        _pad,
        EXACT,
        args=(9, 50, 2, -7.5),
        tags=frozenset({"condition", "tail"}),
    )
    yield Case(
        "movement.strided[9x50]",
        strided,
        lambda gen: [randn(gen, 9, 80)[:, :50]],
        lambda x: x + 1.0,
        EXACT,
        args=(9, 50, 80),
        tags=frozenset({"strided", "tail"}),
    )
