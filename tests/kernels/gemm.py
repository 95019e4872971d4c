"""Matrix products: every transpose and type, epilogues, batches, groups, split-k, dynamic shapes, persistent blocks."""

from collections.abc import Iterator
from itertools import pairwise

import tilelang
import tilelang.language as T
import torch

from tests.kernels.case import EXACT, Argument, Case, Tolerance, randint, randn, summed, summed_fp8, torch_dtype


@tilelang.jit(out_idx=[2])
def gemm(
    M,
    N,
    K,
    transpose_A=False,
    transpose_B=False,
    dtype="float16",
    accum_dtype="float32",
    out_dtype="float16",
    block_M=64,
    block_N=64,
    block_K=32,
    num_stages=2,
):
    """C = op(A) op(B), the kernel every tutorial starts with."""

    @T.prim_func
    def main(
        A: T.Tensor((K, M) if transpose_A else (M, K), dtype),
        B: T.Tensor((N, K) if transpose_B else (K, N), dtype),
        C: T.Tensor((M, N), out_dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_K, block_M) if transpose_A else (block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_N, block_K) if transpose_B else (block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), accum_dtype)
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                if transpose_A:
                    T.copy(A[k * block_K, by * block_M], A_shared)
                else:
                    T.copy(A[by * block_M, k * block_K], A_shared)
                if transpose_B:
                    T.copy(B[bx * block_N, k * block_K], B_shared)
                else:
                    T.copy(B[k * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local, transpose_A=transpose_A, transpose_B=transpose_B)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return main


@tilelang.jit
def gemm_bias_relu(A, B, bias, block_M: int = 64, block_N: int = 64, block_K: int = 32):
    """C = relu(A B + bias): the epilogue works on the accumulator, the result leaves through shared memory."""
    M, N, K = T.const("M, N, K")
    A: T.Tensor[[M, K], T.bfloat16]
    B: T.Tensor[[K, N], T.bfloat16]
    bias: T.Tensor[[N], T.float32]
    C = T.empty((M, N), T.bfloat16)
    with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
        A_shared = T.alloc_shared((block_M, block_K), "bfloat16")
        B_shared = T.alloc_shared((block_K, block_N), "bfloat16")
        C_shared = T.alloc_shared((block_M, block_N), "bfloat16")
        bias_local = T.alloc_fragment((block_N,), "float32")
        C_local = T.alloc_fragment((block_M, block_N), "float32")
        T.copy(bias[bx * block_N], bias_local)
        for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
            T.copy(A[by * block_M, k * block_K], A_shared)
            T.copy(B[k * block_K, bx * block_N], B_shared)
            T.gemm(A_shared, B_shared, C_local, clear_accum=(k == 0))
        for i, j in T.Parallel(block_M, block_N):
            C_local[i, j] = T.max(C_local[i, j] + bias_local[j], 0.0)
        T.copy(C_local, C_shared)
        T.copy(C_shared, C[by * block_M, bx * block_N])
    return C


@tilelang.jit(out_idx=[2])
def gemm_batched(batch, M, N, K, dtype="float16", block_M=64, block_N=32, block_K=32):
    """C[b] = A[b] B[b]: the batch is the third grid axis."""

    @T.prim_func
    def main(
        A: T.Tensor((batch, M, K), dtype), B: T.Tensor((batch, K, N), dtype), C: T.Tensor((batch, M, N), "float32")
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), batch, threads=128) as (bx, by, bz):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                T.copy(A[bz, by * block_M, k * block_K], A_shared)
                T.copy(B[bz, k * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C[bz, by * block_M, bx * block_N])

    return main


@tilelang.jit(out_idx=[3])
def gemm_grouped(rows, groups, largest, N, K, dtype="float16", block_M=64, block_N=64, block_K=32):
    """Rows offsets[g] .. offsets[g+1] of A times B[g]. Groups may be empty and may end in mid-tile."""

    @T.prim_func
    def main(
        A: T.Tensor((rows, K), dtype),
        B: T.Tensor((groups, K, N), dtype),
        offsets: T.Tensor((groups + 1,), "int32"),
        C: T.Tensor((rows, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(largest, block_M), groups, threads=128) as (bx, by, g):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            first = offsets[g] + by * block_M
            last = offsets[g + 1]
            if first < last:
                T.clear(C_local)
                for k in T.serial(T.ceildiv(K, block_K)):
                    T.copy(A[first, k * block_K], A_shared)
                    T.copy(B[g, k * block_K, bx * block_N], B_shared)
                    T.gemm(A_shared, B_shared, C_local)
                for i, j in T.Parallel(block_M, block_N):
                    if first + i < last and bx * block_N + j < N:
                        C[first + i, bx * block_N + j] = C_local[i, j]

    return main


@tilelang.jit
def gemm_split_k(M, N, K, splits, by_element=False, dtype="float16", block_M=64, block_N=64, block_K=32):
    """C += A B: each of `splits` blocks takes a share of K and adds its part atomically."""
    share = tilelang.cdiv(tilelang.cdiv(K, splits), block_K) * block_K

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), splits, threads=128) as (bx, by, bz):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            C_shared = T.alloc_shared((block_M, block_N), "float32")
            T.clear(C_local)
            for k in T.Pipelined(share // block_K, num_stages=2):
                T.copy(A[by * block_M, bz * share + k * block_K], A_shared)
                T.copy(B[bz * share + k * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            if by_element:
                for i, j in T.Parallel(block_M, block_N):
                    T.atomic_add(C[by * block_M + i, bx * block_N + j], C_local[i, j])
            else:
                T.copy(C_local, C_shared)
                T.atomic_add(C[by * block_M, bx * block_N], C_shared)

    return main


@tilelang.jit(out_idx=[2])
def gemm_dynamic(dtype="float16", block_M=64, block_N=64, block_K=32):
    """One binary for every M, N and K."""
    M = T.dynamic("M")
    N = T.dynamic("N")
    K = T.dynamic("K")

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(B[k * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return main


@tilelang.jit
def gemm_dynamic_rows(A, B, block_M: int = 64, block_N: int = 64, block_K: int = 32):
    """The usual serving shape: the number of rows is known at run time only, N and K are the model's."""
    M = T.dynamic("M")
    N, K = T.const("N, K")
    A: T.Tensor[[M, K], T.float16]
    B: T.Tensor[[N, K], T.float16]
    C = T.empty((M, N), T.float16)
    with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
        A_shared = T.alloc_shared((block_M, block_K), "float16")
        B_shared = T.alloc_shared((block_N, block_K), "float16")
        C_local = T.alloc_fragment((block_M, block_N), "float32")
        T.clear(C_local)
        for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
            T.copy(A[by * block_M : (by + 1) * block_M, k * block_K : (k + 1) * block_K], A_shared)
            T.copy(B[bx * block_N : (bx + 1) * block_N, k * block_K : (k + 1) * block_K], B_shared)
            T.gemm(A_shared, B_shared, C_local, transpose_B=True)
        T.copy(C_local, C[by * block_M, bx * block_N])
    return C


@tilelang.jit(out_idx=[2])
def gemm_persistent(M, N, K, blocks, dtype="float16", block_M=64, block_N=64, block_K=32):
    """A fixed number of blocks walks over the output tiles, more tiles than blocks and not a multiple of them."""

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), "float32")):
        with T.Kernel(blocks, threads=128) as block:
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            for by, bx in T.Persistent([T.ceildiv(M, block_M), T.ceildiv(N, block_N)], blocks, block):
                T.clear(C_local)
                for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                    T.copy(A[by * block_M, k * block_K], A_shared)
                    T.copy(B[k * block_K, bx * block_N], B_shared)
                    T.gemm(A_shared, B_shared, C_local)
                T.copy(C_local, C[by * block_M, bx * block_N])

    return main


def gemm_chain(M, N, K, L, dtype="float16", block_M=64, block_K=32):
    """D = (A B) C with the middle product never leaving the chip: a fragment as the second product's left operand."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((K, N), dtype),
        C: T.Tensor((N, L), dtype),
        D: T.Tensor((M, L), "float32"),
    ):
        with T.Kernel(T.ceildiv(M, block_M), threads=128) as bx:
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, N), dtype)
            C_shared = T.alloc_shared((N, L), dtype)
            middle = T.alloc_fragment((block_M, N), "float32")
            left = T.alloc_fragment((block_M, N), dtype)
            result = T.alloc_fragment((block_M, L), "float32")
            T.use_swizzle(4)
            T.clear(middle)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=1):
                T.copy(A[bx * block_M, k * block_K], A_shared)
                T.copy(B[k * block_K, 0], B_shared)
                T.gemm(A_shared, B_shared, middle, policy=T.GemmWarpPolicy.FullRow)
            T.copy(middle, left)
            T.copy(C, C_shared)
            T.gemm(left, C_shared, result, clear_accum=True, policy=T.GemmWarpPolicy.FullRow)
            T.copy(result, D[bx * block_M, 0])

    return main


def _product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a.double() @ b.double()


def _tolerance(dtype: str, accum: str, out: str, K: int) -> Tolerance:
    if dtype == "int8":
        return EXACT
    return summed_fp8(K, out) if dtype.startswith("float8") else summed(K, out, accumulate=accum)


def _grouped(a: torch.Tensor, b: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    bounds = offsets.tolist()
    parts = [_product(a[lo:hi], b[g]) for g, (lo, hi) in enumerate(pairwise(bounds))]
    return torch.cat(parts)


def _operands(
    gen: torch.Generator, M: int, N: int, K: int, *, dtype: str = "float16", ta: bool = False, tb: bool = False
) -> list[Argument]:
    shapes = ((K, M) if ta else (M, K), (N, K) if tb else (K, N))
    if dtype == "int8":
        return [randint(gen, -128, 128, *shape, dtype=torch.int8) for shape in shapes]
    return [randn(gen, *shape, dtype=torch_dtype(dtype)) for shape in shapes]


def _chain(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    return _product((a.float() @ b.float()).half(), c)


def cases() -> Iterator[Case]:
    plain: list[tuple[str, tuple[int, int, int], dict[str, object]]] = [
        ("nn", (128, 128, 96), {}),
        ("nt", (100, 72, 80), {"transpose_B": True}),  # a tail in every dimension
        ("tn", (72, 96, 64), {"transpose_A": True}),
        ("tt", (64, 72, 40), {"transpose_A": True, "transpose_B": True}),
        ("nn", (65, 130, 70), {"dtype": "bfloat16", "out_dtype": "float32"}),
        ("nt", (96, 64, 128), {"dtype": "int8", "accum_dtype": "int32", "out_dtype": "int32", "transpose_B": True}),
        ("nn", (64, 96, 64), {"dtype": "float32", "out_dtype": "float32"}),
        ("nt", (72, 64, 64), {"dtype": "float8_e4m3fn", "out_dtype": "float32", "transpose_B": True}),
        ("nn", (64, 64, 64), {"accum_dtype": "float16"}),
        ("nn", (16, 24, 48), {"block_M": 16, "block_N": 64, "block_K": 16, "num_stages": 0}),
    ]
    for layout, (M, N, K), options in plain:
        dtype = str(options.get("dtype", "float16"))
        accum = str(options.get("accum_dtype", "float32"))
        out = str(options.get("out_dtype", "float16"))
        ta, tb = bool(options.get("transpose_A")), bool(options.get("transpose_B"))
        yield Case(
            f"gemm.gemm[{layout}-{dtype}-{accum}-{M}x{N}x{K}]",
            gemm,
            lambda gen, M=M, N=N, K=K, dtype=dtype, ta=ta, tb=tb: _operands(gen, M, N, K, dtype=dtype, ta=ta, tb=tb),
            lambda a, b, ta=ta, tb=tb: _product(a.mT if ta else a, b.mT if tb else b),
            _tolerance(dtype, accum, out, K),
            args=(M, N, K),
            kwargs=options,
            tags=frozenset({"gemm", layout, dtype, f"accumulate-{accum}", "pipelined"}),
        )
    yield Case(
        "gemm.gemm_bias_relu[70x96x80]",
        gemm_bias_relu,
        lambda gen: [*_operands(gen, 70, 96, 80, dtype="bfloat16"), randn(gen, 96)],
        lambda a, b, bias: torch.relu(_product(a, b) + bias),
        summed(80, "bfloat16"),
        style="eager",
        tags=frozenset({"gemm", "epilogue", "bfloat16", "tail", "pipelined"}),
    )
    yield Case(
        "gemm.gemm_batched[3x64x40x48]",
        gemm_batched,
        lambda gen: [randn(gen, 3, 64, 48, dtype=torch.float16), randn(gen, 3, 48, 40, dtype=torch.float16)],
        _product,
        summed(48),
        args=(3, 64, 40, 48),
        tags=frozenset({"gemm", "batched", "3d-grid", "tail", "pipelined"}),
    )
    yield Case(
        "gemm.gemm_grouped[5-groups]",
        gemm_grouped,
        lambda gen: [
            randn(gen, 200, 64, dtype=torch.float16),
            randn(gen, 5, 64, 80, dtype=torch.float16),
            torch.tensor([0, 70, 70, 73, 137, 200], dtype=torch.int32),
        ],
        _grouped,
        summed(64),
        args=(200, 5, 70, 80, 64),
        tags=frozenset({"gemm", "grouped", "3d-grid", "indirect", "tail"}),
    )
    for by_element in (False, True):
        yield Case(
            f"gemm.gemm_split_k[{'element' if by_element else 'tile'}-80x72x200]",
            gemm_split_k,
            lambda gen: [*_operands(gen, 80, 72, 200), randn(gen, 80, 72)],
            lambda a, b, c: c.double() + _product(a, b),
            summed(200),
            args=(80, 72, 200, 3),
            kwargs={"by_element": by_element},
            updates=(2,),
            tags=frozenset({"gemm", "atomics", "3d-grid", "tail", "pipelined"}),
        )
    for M, N, K in ((128, 64, 64), (100, 72, 40), (33, 50, 37)):
        yield Case(
            f"gemm.gemm_dynamic[{M}x{N}x{K}]",
            gemm_dynamic,
            lambda gen, M=M, N=N, K=K: _operands(gen, M, N, K),
            _product,
            summed(K),
            tags=frozenset({"gemm", "dynamic", "tail", "pipelined"}),
        )
    yield Case(
        "gemm.gemm_dynamic_rows[77]",
        gemm_dynamic_rows,
        lambda gen: _operands(gen, 77, 128, 64, tb=True),
        lambda a, b: _product(a, b.mT),
        summed(64, "float16"),
        style="eager",
        tags=frozenset({"gemm", "dynamic", "tail", "pipelined"}),
    )
    yield Case(
        "gemm.gemm_persistent[5-blocks-170x200x64]",
        gemm_persistent,
        lambda gen: _operands(gen, 170, 200, 64),
        _product,
        summed(64),
        args=(170, 200, 64, 5),
        tags=frozenset({"gemm", "persistent", "tail", "pipelined"}),
    )
    yield Case(
        "gemm.gemm_chain[100x64x48x32]",
        gemm_chain,
        lambda gen: [
            *_operands(gen, 100, 64, 48),
            randn(gen, 64, 32, dtype=torch.float16, scale=0.125),
        ],
        _chain,
        # The middle product is rounded to float16; where two accumulation orders round differently, 64 terms of one
        # float16 ulp (2^-10 of about 7) times about 0.125 add up at random.
        summed(64, "float16", accumulate="float16", scale=0.25),
        style="factory",
        args=(100, 64, 48, 32),
        out_idx=(3,),
        tags=frozenset({"gemm", "fragment-operand", "tail", "pipelined"}),
    )
