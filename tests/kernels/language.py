"""Rarer parts of the language: workspaces, private arrays, typed views, reducers, host branches, less usual types."""

from collections.abc import Iterator

import tilelang
import tilelang.language as T
import torch

from tests.kernels.case import EXACT, Argument, Case, randint, randn, rounded, summed


@tilelang.jit(out_idx=[1])
def workspace(M, N, block=64):
    """Row maxima kept in a hidden global workspace between two launches."""

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(M, threads=128) as row:
            maxima = T.alloc_global((M,), "float32")
            x = T.alloc_fragment((1, N), "float32")
            largest = T.alloc_fragment((1,), "float32")
            T.copy(X[row, 0], x)
            T.reduce_max(x, largest, dim=1)
            maxima[row] = largest[0]
            for j in T.Parallel(N):
                Y[row, j] = X[row, j] - maxima[row]

    return main


@tilelang.jit
def insertion_sort(X):
    """Each row of eight sorted in a private array."""
    M, N = T.const("M, N")
    X: T.Tensor[[M, N], T.float32]
    Y = T.empty((M, N), T.float32)
    with T.Kernel(M, threads=128) as row:
        values = T.alloc_local((N,), "float32")
        place = T.alloc_var("int32", init=0)
        for i in T.serial(N):
            values[i] = X[row, i]
        for i in T.serial(1, N):
            inserted = values[i]
            place = i
            while place > 0 and values[T.max(place - 1, 0)] > inserted:
                values[place] = values[place - 1]
                place = place - 1
            values[place] = inserted
        for i in T.serial(N):
            Y[row, i] = values[i]
    return Y


@tilelang.jit(out_idx=[1])
def bytes_as_words(N, block=256):
    """A tile of bytes read as 32-bit words: a view of another type."""

    @T.prim_func
    def main(X: T.Tensor((N,), "uint8"), Y: T.Tensor((N // 4,), "int32")):
        with T.Kernel(N // block, threads=128) as bx:
            x = T.alloc_shared((block,), "uint8")
            T.copy(X[bx * block], x)
            words = T.view(x, (block // 4,), "int32")
            for i in T.Parallel(block // 4):
                Y[bx * (block // 4) + i] = words[i]

    return main


@tilelang.jit(out_idx=[1, 2, 3])
def reducers(M, N, block_M=16):
    """Deferred maximum, minimum and bitwise-or of one pass over a matrix."""

    @T.prim_func
    def main(
        X: T.Tensor((M, N), "int32"),
        top: T.Tensor((M,), "int32"),
        bottom: T.Tensor((M,), "int32"),
        bits: T.Tensor((M,), "int32"),
    ):
        with T.Kernel(T.ceildiv(M, block_M), threads=128) as bx:
            high = T.alloc_reducer((block_M,), "int32", op="max")
            low = T.alloc_reducer((block_M,), "int32", op="min")
            union = T.alloc_reducer((block_M,), "int32", op="bitor")
            result = T.alloc_fragment((block_M,), "int32")
            T.reducer_init(high)
            T.reducer_init(low, 10)
            T.reducer_init(union)
            for i, j in T.Parallel(block_M, N):
                x = X[bx * block_M + i, j]
                T.reducer_update(high[i], x)
                T.reducer_update(low[i], x)
                T.reducer_update(union[i], x)
            T.finalize_reducer(high, result)
            T.copy(result, top[bx * block_M])
            T.finalize_reducer(low, result)
            T.copy(result, bottom[bx * block_M])
            T.finalize_reducer(union, result)
            T.copy(result, bits[bx * block_M])

    return main


@tilelang.jit
def tickets(N, block=64):
    """Each element draws a ticket, the counter's value before its own addition: together a permutation."""

    @T.prim_func
    def main(counter: T.Tensor((1,), "int32"), drawn: T.Tensor((N,), "int32")):
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            for i in T.Parallel(block):
                if bx * block + i < N:
                    ticket = T.atomic_add(counter[0], 1, return_prev=True)
                    T.atomic_add(drawn[ticket], ticket + 1)

    return main


@tilelang.jit
def tile_maximum(M, N, block_M=16):
    """Column maxima over row blocks with an atomic of a whole tile."""

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(M, block_M), threads=128) as bx:
            x = T.alloc_fragment((block_M, N), "float32")
            y = T.alloc_fragment((N,), "float32")
            for i, j in T.Parallel(block_M, N):
                x[i, j] = T.if_then_else(bx * block_M + i < M, X[bx * block_M + i, j], -1e30)
            T.reduce_max(x, y, dim=0)
            T.atomic_max(Y, y)

    return main


@tilelang.jit(out_idx=-1)
def doubles(N, block=128):
    """float64 all the way."""

    @T.prim_func
    def main(X: T.Tensor((N,), "float64"), Y: T.Tensor((N,), "float64"), Z: T.Tensor((N,), "float64")):
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            z = T.alloc_fragment((block,), "float64")
            for i in T.Parallel(block):
                z[i] = X[bx * block + i] * Y[bx * block + i] + 0.1
            T.copy(z, Z[bx * block])

    return main


@tilelang.jit(out_idx=[2, 3])
def bytes_and_flags(N, block=128):
    """Images: saturating uint8 arithmetic, and comparisons kept as bool."""

    @T.prim_func
    def main(
        A: T.Tensor((N,), "uint8"), B: T.Tensor((N,), "uint8"), C: T.Tensor((N,), "uint8"), D: T.Tensor((N,), "bool")
    ):
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            for i in T.Parallel(block):
                total = T.cast(A[bx * block + i], "int32") + T.cast(B[bx * block + i], "int32")
                C[bx * block + i] = T.cast(T.min(total, 255), "uint8")
                D[bx * block + i] = A[bx * block + i] > B[bx * block + i]

    return main


@tilelang.jit(out_idx=[1])
def float8_round_trip(N, dtype, block=128):
    """To an 8-bit float and back."""

    @T.prim_func
    def main(X: T.Tensor((N,), "float16"), Y: T.Tensor((N,), "float16")):
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            x = T.alloc_fragment((block,), "float32")
            narrow = T.alloc_fragment((block,), dtype)
            T.copy(X[bx * block], x)
            T.copy(x, narrow)
            for i in T.Parallel(block):
                x[i] = T.cast(narrow[i], "float32")
            T.copy(x, Y[bx * block])

    return main


@tilelang.jit(out_idx=[1])
def default_threads(N, block=200):
    """No `threads=`: the chip's backend chooses."""

    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block)) as bx:
            for i in T.Parallel(block):
                Y[bx * block + i] = X[bx * block + i] * X[bx * block + i]

    return main


@tilelang.jit
def launch_by_flag(N, block=64):
    """A scalar decides on the host which of two launches runs, and how many blocks."""

    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32"), n: T.int32, negate: T.int32):
        if negate != 0:
            with T.Kernel(T.ceildiv(n, block), threads=128) as bx:
                for i in T.Parallel(block):
                    if bx * block + i < n:
                        Y[bx * block + i] = -X[bx * block + i]
        else:
            with T.Kernel(T.ceildiv(n, block), threads=128) as bx:
                for i in T.Parallel(block):
                    if bx * block + i < n:
                        Y[bx * block + i] = X[bx * block + i] + 1.0

    return main


@tilelang.jit(out_idx=[1])
def wide_symbol(block=128):
    """A symbolic length of 64 bits, for tensors of more than 2^31 elements."""
    N = T.dynamic("N", "int64")

    @T.prim_func
    def main(X: T.Tensor((N,), "float16"), Y: T.Tensor((N,), "float16")):
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            for i in T.Parallel(block):
                if bx * block + i < N:
                    Y[bx * block + i] = X[bx * block + i] + X[N - 1 - (bx * block + i)]

    return main


@tilelang.jit(out_idx=[1])
def slices_and_vectors(M, N):
    """Slice assignment, a vectorised loop, an early end of surplus blocks, an assumption and assertions that hold."""

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32"), rows: T.int32):
        assert rows <= M, "rows is at most M"
        with T.Kernel(M, threads=128) as row:
            if row >= rows:
                T.thread_return()
            values = T.alloc_local((8,), "float32")
            for k in T.serial(N // 8):
                values[0:4] = X[row, k * 8 : k * 8 + 4]
                for v in T.vectorized(4):
                    values[4 + v] = X[row, k * 8 + 4 + v] * 2.0
                for v in T.vectorized(8):
                    Y[row, k * 8 + v] = values[v]

    return main


@tilelang.jit(out_idx=[2])
def swizzled_layout(M, N, K, block=64):
    """A product whose shared tiles carry layout hints: scheduling, not meaning."""

    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float16")):
        with T.Kernel(T.ceildiv(N, block), T.ceildiv(M, block), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block, block), "float16")
            B_shared = T.alloc_shared((block, block), "float16")
            C_local = T.alloc_fragment((block, block), "float32")
            C_shared = T.alloc_shared((block, block), "float16")
            T.annotate_layout({C_shared: tilelang.layout.make_swizzled_layout(C_shared)})
            T.use_swizzle(10)
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block), num_stages=3):
                T.copy(A[by * block, k * block], A_shared)
                T.copy(B[k * block, bx * block], B_shared, coalesced_width=8)
                T.gemm(A_shared, B_shared, C_local, policy=T.GemmWarpPolicy.FullCol)
            T.copy(C_local, C_shared)
            T.copy(C_shared, C[by * block, bx * block])

    return main


def _launch_by_flag(x: torch.Tensor, y: torch.Tensor, n: int, negate: int) -> torch.Tensor:
    y[:n] = -x[:n] if negate else x[:n] + 1.0
    return y


def _slices(x: torch.Tensor, rows: int) -> torch.Tensor:
    y = x.clone()
    y.view(x.shape[0], -1, 8)[:, :, 4:] *= 2.0
    return y


def _images(gen: torch.Generator) -> list[Argument]:
    return [randint(gen, 0, 256, 300, dtype=torch.uint8) for _ in range(2)]


def cases() -> Iterator[Case]:
    yield Case(
        "language.workspace[10x128]",
        workspace,
        lambda gen: [randn(gen, 10, 128)],
        lambda x: x - x.amax(1, keepdim=True),
        EXACT,
        args=(10, 128),
        tags=frozenset({"workspace", "reduce", "max"}),
    )
    yield Case(
        "language.insertion_sort[20x8]",
        insertion_sort,
        lambda gen: [randn(gen, 20, 8)],
        lambda x: x.sort(1).values,
        EXACT,
        style="eager",
        tags=frozenset({"local", "while", "variable"}),
    )
    yield Case(
        "language.bytes_as_words[512]",
        bytes_as_words,
        lambda gen: [randint(gen, 0, 256, 512, dtype=torch.uint8)],
        lambda x: x.view(torch.int32),
        EXACT,
        args=(512,),
        tags=frozenset({"view", "uint8", "shared"}),
    )
    yield Case(
        "language.reducers[40x64]",
        reducers,
        lambda gen: [randint(gen, -1000, 1000, 40, 64)],
        lambda x: [x.amax(1), x.amin(1).clamp(max=10), torch.stack([_bitor(row) for row in x])],
        EXACT,
        args=(40, 64),
        tags=frozenset({"reducer", "max", "min", "bitor", "integer", "tail"}),
    )
    yield Case(
        "language.tickets[200]",
        tickets,
        lambda gen: [torch.zeros(1, dtype=torch.int32), randint(gen, 0, 100, 200)],
        lambda counter, drawn: [counter + 200, drawn + torch.arange(1, 201, dtype=torch.int32)],
        EXACT,
        args=(200,),
        updates=(0, 1),
        tags=frozenset({"atomics", "atomic-old-value", "indirect", "integer", "tail"}),
    )
    yield Case(
        "language.tile_maximum[40x64]",
        tile_maximum,
        lambda gen: [randn(gen, 40, 64), torch.full((64,), -1.0)],
        lambda x, y: torch.maximum(x.amax(0), y),
        EXACT,
        args=(40, 64),
        updates=(1,),
        tags=frozenset({"atomics", "atomic-tile", "reduce", "max", "tail"}),
    )
    yield Case(
        "language.doubles[300]",
        doubles,
        lambda gen: [randn(gen, 300).double() / 3.0, randn(gen, 300).double() / 7.0],
        lambda x, y: x * y + 0.1,
        rounded("float64", 2, atol=1e-16),
        args=(300,),
        tags=frozenset({"elementwise", "float64", "tail"}),
    )
    yield Case(
        "language.bytes_and_flags[300]",
        bytes_and_flags,
        _images,
        lambda a, b: [(a.int() + b.int()).clamp(max=255).to(torch.uint8), a > b],
        EXACT,
        args=(300,),
        tags=frozenset({"elementwise", "uint8", "bool", "tail"}),
    )
    for dtype in ("float8_e4m3fn", "float8_e5m2"):
        yield Case(
            f"language.float8_round_trip[{dtype}]",
            float8_round_trip,
            lambda gen: [randn(gen, 256, dtype=torch.float16, scale=8.0)],
            lambda x, dtype=dtype: x.float().to(getattr(torch, dtype)).half(),
            EXACT,
            args=(256, dtype),
            tags=frozenset({"cast", "fp8", dtype}),
        )
    yield Case(
        "language.default_threads[1000]",
        default_threads,
        lambda gen: [randn(gen, 1000)],
        lambda x: x * x,
        EXACT,
        args=(1000,),
        tags=frozenset({"elementwise", "default-threads", "tail"}),
    )
    for negate in (0, 1):
        yield Case(
            f"language.launch_by_flag[{negate}]",
            launch_by_flag,
            lambda gen, negate=negate: [randn(gen, 300), randn(gen, 300), int(randint(gen, 1, 300, 1)), negate],
            _launch_by_flag,
            EXACT,
            args=(300,),
            updates=(1,),
            tags=frozenset({"several-launches", "host-branch", "scalar", "tail"}),
        )
    for length in (1, 1000):
        yield Case(
            f"language.wide_symbol[{length}]",
            wide_symbol,
            lambda gen, length=length: [randn(gen, length, dtype=torch.float16)],
            lambda x: x + x.flip(0),
            EXACT,
            tags=frozenset({"dynamic", "int64", "tail"}),
        )
    yield Case(
        "language.slices_and_vectors[9x32]",
        slices_and_vectors,
        lambda gen: [randn(gen, 9, 32), 9],
        _slices,
        EXACT,
        args=(9, 32),
        tags=frozenset({"slice", "vectorized", "local", "scalar", "assert", "early-exit"}),
    )
    yield Case(
        "language.swizzled_layout[100x128x192]",
        swizzled_layout,
        lambda gen: [randn(gen, 100, 192, dtype=torch.float16), randn(gen, 192, 128, dtype=torch.float16)],
        lambda a, b: a.double() @ b.double(),
        summed(192, "float16"),
        args=(100, 128, 192),
        tags=frozenset({"gemm", "layout", "tail", "pipelined"}),
    )


def _bitor(row: torch.Tensor) -> torch.Tensor:
    result = row[0]
    for value in row[1:]:
        result = result | value
    return result
