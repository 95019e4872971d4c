"""Scans: running sums and maxima inside a tile, along long rows, and over a vector of several blocks."""

from collections.abc import Iterator

import tilelang
import tilelang.language as T
import torch

from tests.kernels.case import EXACT, Case, randint, randn, summed


@tilelang.jit(out_idx=[1])
def cumsum(M, N, dim, reverse=False, block_M=16, block_N=64):
    """Running sums inside each tile of a matrix along one dimension, forwards or backwards."""

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(M, block_M), T.ceildiv(N, block_N), threads=128) as (bx, by):
            x = T.alloc_shared((block_M, block_N), "float32")
            T.copy(X[bx * block_M, by * block_N], x)
            T.cumsum(src=x, dim=dim, reverse=reverse)
            T.copy(x, Y[bx * block_M, by * block_N])

    return main


@tilelang.jit
def cumsum_fragment(X, block: int = 128):
    """Running sums of a 1-D fragment, in place."""
    N = T.const("N")
    X: T.Tensor[[N], T.float32]
    Y = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
        x = T.alloc_fragment((block,), "float32")
        T.copy(X[bx * block], x)
        T.cumsum(x, dim=0)
        T.copy(x, Y[bx * block])
    return Y


@tilelang.jit(out_idx=[1])
def cummax(M, N, block_M=16):
    """Running maximum along rows."""

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(M, block_M), threads=128) as bx:
            x = T.alloc_shared((block_M, N), "float32")
            T.copy(X[bx * block_M, 0], x)
            T.cummax(x, dim=1)
            T.copy(x, Y[bx * block_M, 0])

    return main


@tilelang.jit(out_idx=[1])
def long_cumsum(M, N, block_M=8, block_N=64):
    """Rows longer than a tile: each tile's scan is raised by the total of those before."""

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(M, block_M), threads=128) as bx:
            tile = T.alloc_shared((block_M, block_N), "float32")
            x = T.alloc_fragment((block_M, block_N), "float32")
            carry = T.alloc_fragment((block_M,), "float32")
            tile_sum = T.alloc_fragment((block_M,), "float32")
            T.clear(carry)
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(X[bx * block_M, k * block_N], tile)
                T.copy(tile, x)
                T.reduce_sum(x, tile_sum, dim=1)
                T.cumsum(tile, dim=1)
                T.copy(tile, x)
                for i, j in T.Parallel(block_M, block_N):
                    x[i, j] += carry[i]
                T.copy(x, Y[bx * block_M, k * block_N])
                for i in T.Parallel(block_M):
                    carry[i] += tile_sum[i]

    return main


@tilelang.jit(out_idx=[1, 2])
def prefix_sum(N, block=64):
    """An inclusive prefix sum over several blocks in three launches: block scans, a scan of their totals, the sum."""
    blocks = tilelang.cdiv(N, block)

    @T.prim_func
    def main(
        X: T.Tensor((N,), "int32"),
        Y: T.Tensor((N,), "int32"),
        starts: T.Tensor((blocks,), "int32"),
        totals: T.Tensor((blocks,), "int32"),
    ):
        with T.Kernel(blocks, threads=128) as bx:
            x = T.alloc_shared((block,), "int32")
            T.copy(X[bx * block], x)
            T.cumsum(x, dim=0)
            T.copy(x, Y[bx * block])
            totals[bx] = x[block - 1]
        with T.Kernel(1, threads=128):
            running = T.alloc_var("int32", init=0)
            for k in T.serial(blocks):
                starts[k] = running
                running = running + totals[k]
        with T.Kernel(blocks, threads=128) as bx:
            for i in T.Parallel(block):
                Y[bx * block + i] = Y[bx * block + i] + starts[bx]

    return main


def _tile_cumsum(x: torch.Tensor, dim: int, reverse: bool, block: tuple[int, int]) -> torch.Tensor:
    """Scan of each tile; what hangs over the end of the matrix counts as zero."""
    result = torch.empty_like(x, dtype=torch.float64)
    for i in range(0, x.shape[0], block[0]):
        for j in range(0, x.shape[1], block[1]):
            tile = x[i : i + block[0], j : j + block[1]].double()
            tile = tile.flip(dim).cumsum(dim).flip(dim) if reverse else tile.cumsum(dim)
            result[i : i + block[0], j : j + block[1]] = tile
    return result


def _prefix_sum(x: torch.Tensor, _: torch.Tensor) -> list[torch.Tensor]:
    totals = torch.stack([part.sum() for part in x.split(64)])
    return [x.cumsum(0), totals.cumsum(0) - totals, totals]


def cases() -> Iterator[Case]:
    for dim, reverse in ((0, False), (1, False), (0, True), (1, True)):
        yield Case(
            f"scan.cumsum[dim{dim}{'-reverse' if reverse else ''}-40x100]",
            cumsum,
            lambda gen: [randn(gen, 40, 100)],
            lambda x, dim=dim, reverse=reverse: _tile_cumsum(x, dim, reverse, (16, 64)),
            summed(64),
            args=(40, 100, dim, reverse),
            tags=frozenset({"scan", "cumsum", "tail", "shared"} | ({"reverse"} if reverse else set())),
        )
    yield Case(
        "scan.cumsum_fragment[300]",
        cumsum_fragment,
        lambda gen: [randn(gen, 300)],
        lambda x: _tile_cumsum(x[:, None], 0, False, (128, 1))[:, 0],
        summed(128),
        style="eager",
        tags=frozenset({"scan", "cumsum", "1d", "tail"}),
    )
    yield Case(
        "scan.cummax[20x96]",
        cummax,
        lambda gen: [randn(gen, 20, 96)],
        lambda x: x.cummax(1).values,
        EXACT,
        args=(20, 96),
        tags=frozenset({"scan", "cummax", "tail"}),
    )
    yield Case(
        "scan.long_cumsum[10x200]",
        long_cumsum,
        lambda gen: [randn(gen, 10, 200)],
        lambda x: x.double().cumsum(1),
        summed(200),
        args=(10, 200),
        tags=frozenset({"scan", "cumsum", "reduce", "tail"}),
    )
    yield Case(
        "scan.prefix_sum[500]",
        prefix_sum,
        lambda gen: [randint(gen, -1000, 1000, 500), torch.full((8,), -12345, dtype=torch.int32)],
        _prefix_sum,
        EXACT,
        args=(500,),
        updates=(1,),
        tags=frozenset({"scan", "cumsum", "several-launches", "variable", "integer", "tail"}),
    )
