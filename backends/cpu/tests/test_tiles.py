"""Tile operators on real kernels: copies with tails, matrix products, reductions, scans, transposes, im2col."""

import functools
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import tilelang.language as T
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.properties import compiling

Compile = Callable[..., Any]


def randn(*shape: int, dtype: str = "float32", seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(getattr(torch, dtype))


# ---------------------------------------------------------------------------------------------------- copy, fill


def tile_copy(M: int, N: int, bm: int, bn: int, dtype: str = "float32", via: str = "float32") -> Any:
    @T.prim_func
    def kernel(X: T.Tensor((M, N), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, bn), T.ceildiv(M, bm)) as (bx, by):
            tile = T.alloc_shared((bm, bn), via)
            T.copy(X[by * bm, bx * bn], tile)
            T.copy(tile, Y[by * bm, bx * bn])

    return kernel


@compiling(8)
@given(m=st.integers(1, 70), n=st.integers(1, 70), bm=st.integers(1, 40), bn=st.integers(1, 40))
def test_copies_through_tiles_of_any_size_give_the_tensor_back(m: int, n: int, bm: int, bn: int) -> None:
    import core

    x = randn(m, n)
    assert torch.equal(core.compile(tile_copy(m, n, bm, bn), target="cpu", out_idx=[1])(x), x)


def test_a_partial_tile_overwrites_the_tail_with_zeros(cpu: Compile) -> None:
    @T.prim_func
    def kernel(X: T.Tensor((10, 10), "float32"), Y: T.Tensor((16, 16), "float32")):
        with T.Kernel(1):
            tile = T.alloc_shared((16, 16), "float32")
            T.fill(tile, 7.0)
            T.copy(X[0, 0], tile)
            T.copy(tile, Y)

    x = randn(10, 10)
    want = torch.zeros(16, 16)
    want[:10, :10] = x
    assert torch.equal(cpu(kernel, [1])(x), want)


def test_elements_before_the_start_of_a_tensor_read_as_zero(cpu: Compile) -> None:
    @T.prim_func
    def kernel(X: T.Tensor((20,), "float32"), Y: T.Tensor((3, 8), "float32")):
        with T.Kernel(3) as bx:
            tile = T.alloc_shared((8,), "float32")
            T.copy(X[bx * 8 - 3], tile)
            T.copy(tile, Y[bx, 0])

    x = randn(20)
    padded = torch.cat([torch.zeros(3), x, torch.zeros(8)])
    assert torch.equal(cpu(kernel, [1])(x), padded[:24].view(3, 8))


def test_the_safe_value_replaces_zero(cpu: Compile) -> None:
    @T.prim_func
    def kernel(X: T.Tensor((10,), "float32"), Y: T.Tensor((16,), "float16")):
        with T.Kernel(1):
            T.annotate_safe_value({X: -T.infinity("float32")})
            tile = T.alloc_fragment((16,), "float16")
            T.copy(X[0], tile)
            T.copy(tile, Y)

    x = randn(10)
    assert torch.equal(cpu(kernel, [1])(x), torch.cat([x.half(), torch.full((6,), -torch.inf).half()]))


def test_a_gathered_row_is_found_once_before_the_copy(cpu: Compile) -> None:
    @T.prim_func
    def kernel(X: T.Tensor((9, 33), "float32"), Rows: T.Tensor((4,), "int32"), Y: T.Tensor((4, 33), "float32")):
        with T.Kernel(4) as bx:
            row = T.alloc_fragment((33,), "float32")
            T.copy(X[Rows[bx], 0:33], row)
            T.copy(row, Y[bx, 0:33])

    x, index = randn(9, 33), torch.tensor([3, 0, 8, 100], dtype=torch.int32)
    want = torch.stack([x[3], x[0], x[8], torch.zeros(33)])  # a row that does not exist reads as zeros
    assert torch.equal(cpu(kernel, [2])(x, index), want)


def test_rank_and_unit_dimensions_pair_in_order(cpu: Compile) -> None:
    @T.prim_func
    def kernel(X: T.Tensor((2, 5, 3, 16), "float16"), Y: T.Tensor((2, 3, 5, 16), "float32")):
        with T.Kernel(2, 3) as (b, h):
            tile = T.alloc_shared((5, 16), "float16")
            T.copy(X[b, :, h, :], tile)
            T.copy(tile, Y[b, h, :, :])

    x = randn(2, 5, 3, 16, dtype="float16")
    assert torch.equal(cpu(kernel, [1])(x), x.permute(0, 2, 1, 3).float())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "uint8", "bool", "int64", "float8_e4m3fn"])
def test_every_dtype_moves_through_a_tile(cpu: Compile, dtype: str) -> None:
    x = (randn(50, 70) * 3).to(getattr(torch, dtype))
    y = cpu(tile_copy(50, 70, 16, 32, dtype, dtype), [1])(x)
    assert torch.equal(y.view(torch.uint8), x.view(torch.uint8))


def test_fill_of_a_region_leaves_the_rest(cpu: Compile) -> None:
    @T.prim_func
    def kernel(Y: T.Tensor((8, 8), "int32")):
        with T.Kernel(1):
            tile = T.alloc_fragment((8, 8), "int32")
            T.clear(tile)
            T.fill(tile[2:5, 3:7], 9)
            T.copy(tile, Y)

    want = torch.zeros(8, 8, dtype=torch.int32)
    want[2:5, 3:7] = 9
    assert torch.equal(cpu(kernel, [0])(), want)


def test_a_view_of_a_tile_is_the_same_memory(cpu: Compile) -> None:
    @T.prim_func
    def kernel(X: T.Tensor((8, 16), "float32"), Y: T.Tensor((128,), "float32"), Z: T.Tensor((128,), "int32")):
        with T.Kernel(1):
            tile = T.alloc_shared((8, 16), "float32")
            flat = T.reshape(tile, (128,))
            bits = T.view(tile, (128,), "int32")
            T.copy(X, tile)
            for i in T.Parallel(128):
                flat[i] = flat[i] * 2.0
            T.copy(tile, T.view(Y, (8, 16), "float32"))
            T.copy(bits, Z)

    x = randn(8, 16)
    y, z = cpu(kernel, [1, 2])(x)
    assert torch.equal(y, x.flatten() * 2)
    assert torch.equal(z, (x * 2).flatten().view(torch.int32))


# ---------------------------------------------------------------------------------------------------- gemm


NN = [(False, False)]
LAYOUTS = [*NN, (False, True), (True, False), (True, True)]


def gemm(
    M: int, N: int, K: int, *, dtype: str, accumulate: str, tile: tuple[int, int, int], layouts: list[tuple[bool, bool]]
) -> Any:
    """`C[r] = op(A) @ op(B)`, the operands stored as row r of `layouts` says."""
    bm, bn, bk = tile

    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), dtype), At: T.Tensor((K, M), dtype),
        B: T.Tensor((K, N), dtype), Bt: T.Tensor((N, K), dtype),
        C: T.Tensor((len(layouts), M, N), accumulate),
    ):  # fmt: skip
        with T.Kernel(T.ceildiv(N, bn), T.ceildiv(M, bm)) as (bx, by):
            for row, (ta, tb) in enumerate(layouts):
                a = T.alloc_shared((bk, bm) if ta else (bm, bk), dtype)
                b = T.alloc_shared((bn, bk) if tb else (bk, bn), dtype)
                c = T.alloc_fragment((bm, bn), accumulate)
                T.clear(c)
                for k in T.Pipelined(T.ceildiv(K, bk), num_stages=2):
                    if ta:
                        T.copy(At[k * bk, by * bm], a)
                    else:
                        T.copy(A[by * bm, k * bk], a)
                    if tb:
                        T.copy(Bt[bx * bn, k * bk], b)
                    else:
                        T.copy(B[k * bk, bx * bn], b)
                    T.gemm(a, b, c, transpose_A=ta, transpose_B=tb)
                T.copy(c, C[row, by * bm, bx * bn])

    return kernel


def products(
    cpu: Compile,
    a: torch.Tensor,
    b: torch.Tensor,
    accumulate: str,
    tile: tuple[int, int, int] = (32, 48, 16),
    layouts: list[tuple[bool, bool]] = LAYOUTS,
) -> torch.Tensor:
    """`a @ b` with each layout of the operands; shape (layouts, M, N)."""
    (m, k), n = a.shape, b.shape[1]
    dtype = str(a.dtype).removeprefix("torch.")
    kernel = cpu(gemm(m, n, k, dtype=dtype, accumulate=accumulate, tile=tile, layouts=layouts), [4])
    result: torch.Tensor = kernel(a, a.T.contiguous(), b, b.T.contiguous())
    return result


# What a product compiles to depends on its type and tile, what the copies around it do on the shape.
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        *(((100, 77, 59), dtype) for dtype in ("float16", "bfloat16", "float32", "float8_e4m3fn", "int8")),
        ((1, 130, 33), "float16"),
    ],
)
def test_gemm_of_every_layout_and_dtype(cpu: Compile, shape: tuple[int, int, int], dtype: str) -> None:
    m, n, k = shape
    gen = torch.Generator().manual_seed(0)
    if dtype == "int8":
        a, b = (torch.randint(-128, 128, size, generator=gen).to(torch.int8) for size in ((m, k), (k, n)))
    else:
        a, b = (torch.randn(size, generator=gen).to(getattr(torch, dtype)) for size in ((m, k), (k, n)))
    exact = a.double() @ b.double()
    for layout, c in zip(LAYOUTS, products(cpu, a, b, "int32" if dtype == "int8" else "float32"), strict=True):
        assert float((c.double() - exact).abs().max()) <= (0 if dtype == "int8" else 2e-5), layout


def test_gemm_in_float64(cpu: Compile) -> None:
    a, b = randn(40, 50, dtype="float64"), randn(50, 60, dtype="float64", seed=1)
    assert torch.allclose(products(cpu, a, b, "float64", (16, 16, 16), NN)[0], a @ b, rtol=1e-13, atol=1e-13)


def test_integer_accumulators_wrap(cpu: Compile) -> None:
    a, b = torch.full((16, 256), 127, dtype=torch.int8), torch.full((256, 16), 127, dtype=torch.int8)
    total = 127 * 127 * 256
    assert products(cpu, a, b, "int16", (16, 16, 32), NN).unique().tolist() == [(total + 2**15) % 2**16 - 2**15]


def test_float16_accumulators_keep_wide_sums_inside_one_product(cpu: Compile) -> None:
    a, b = randn(32, 64, dtype="float16"), randn(64, 32, dtype="float16", seed=1)
    assert torch.equal(products(cpu, a, b, "float16", (32, 32, 64), NN)[0], (a.double() @ b.double()).half())


def test_clear_accum_of_a_slice_leaves_the_rest_of_c(cpu: Compile) -> None:
    @T.prim_func
    def kernel(A: T.Tensor((16, 16), "float16"), B: T.Tensor((16, 16), "float16"), C: T.Tensor((32, 16), "float32")):
        with T.Kernel(1):
            a = T.alloc_shared((16, 16), "float16")
            b = T.alloc_shared((16, 16), "float16")
            c = T.alloc_fragment((32, 16), "float32")
            T.fill(c, 5.0)
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c[16:32, :], clear_accum=True)
            T.copy(c, C)

    a, b = randn(16, 16, dtype="float16"), randn(16, 16, dtype="float16", seed=1)
    c = cpu(kernel, [2])(a, b)
    assert torch.equal(c[:16], torch.full((16, 16), 5.0))
    assert torch.allclose(c[16:], a.float() @ b.float(), atol=1e-5)


def test_clear_accum_as_a_condition_and_an_operand_chosen_by_a_leading_index(cpu: Compile) -> None:
    @T.prim_func
    def kernel(A: T.Tensor((3, 16, 24), "float16"), B: T.Tensor((24, 16), "float16"), C: T.Tensor((16, 16), "float32")):
        with T.Kernel(1):
            a = T.alloc_shared((2, 16, 24), "float16")
            b = T.alloc_shared((24, 16), "float16")
            c = T.alloc_fragment((16, 16), "float32")
            T.copy(B, b)
            for k in T.serial(3):
                T.copy(A[k, :, :], a[k % 2, :, :])
                T.gemm(a[k % 2, :, :], b, c, clear_accum=(k == 0))
            T.copy(c, C)

    a, b = randn(3, 16, 24, dtype="float16"), randn(24, 16, dtype="float16", seed=1)
    assert torch.allclose(cpu(kernel, [2])(a, b), a.float().sum(0) @ b.float(), atol=1e-4)


# ---------------------------------------------------------------------------------------------------- reductions


def reduce(
    shape: tuple[int, ...], kinds: Iterable[str], dim: int, dtype: str, accumulate: str, *, keep: bool = False
) -> Any:
    """`Y[row]` is `X` reduced along `dim` in the way of that row."""
    rest = tuple(extent for axis, extent in enumerate(shape) if axis != dim) or (1,)
    if keep:
        rest = tuple(1 if axis == dim else extent for axis, extent in enumerate(shape))
    functions = [getattr(T, f"reduce_{kind}") for kind in kinds]

    @T.prim_func
    def kernel(X: T.Tensor(shape, dtype), Y: T.Tensor((len(functions), *rest), accumulate)):
        with T.Kernel(1):
            x = T.alloc_fragment(shape, dtype)
            T.copy(X, x)
            for row, function in enumerate(functions):
                y = T.alloc_fragment(rest, accumulate)
                function(x, y, dim=dim)
                T.copy(y, Y[row, *[slice(0, extent) for extent in rest]])

    return kernel


REFERENCES: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "sum": lambda x, d: x.sum(d),
    "abssum": lambda x, d: x.abs().sum(d),
    "max": lambda x, d: x.amax(d),
    "min": lambda x, d: x.amin(d),
    "absmax": lambda x, d: x.abs().amax(d),
}


@pytest.mark.parametrize(
    ("shape", "dim"), [((37, 100), 1), ((37, 100), 0), ((5, 7, 33), 1), ((5, 7, 33), 0), ((65,), 0)]
)
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_reduction_of_any_dimension(cpu: Compile, shape: tuple[int, ...], dim: int, dtype: str) -> None:
    x = (randn(*shape) * 20).to(getattr(torch, dtype))
    y = cpu(reduce(shape, REFERENCES, dim, dtype, dtype), [1])(x)
    for (kind, reference), got in zip(REFERENCES.items(), y, strict=True):
        want = reference(x.double(), dim).reshape(got.shape)
        exact = dtype == "int32" or "max" in kind or "min" in kind
        assert torch.allclose(got.double(), want, rtol=0, atol=0 if exact else 1e-3), kind


def test_a_reduction_may_keep_its_dimension(cpu: Compile) -> None:
    x = randn(9, 21)
    y = cpu(reduce((9, 21), ["max"], 1, "float32", "float32", keep=True), [1])(x)
    assert torch.equal(y[0], x.amax(1, keepdim=True))


@pytest.mark.parametrize("dim", [0, 1])
def test_sums_of_narrow_floats_are_rounded_once(cpu: Compile, dim: int) -> None:
    x = randn(200, 200, dtype="float16").abs()
    y = cpu(reduce((200, 200), ["sum"], dim, "float16", "float16"), [1])(x)[0]
    assert float((y.double() - x.double().sum(dim)).abs().max()) <= 0.0626  # half a unit at 128...256
    assert not torch.allclose(y, torch.stack(list(x.unbind(dim))).cumsum(0, dtype=torch.float16)[-1] * 1.01)


@pytest.mark.parametrize("dim", [0, 1])
def test_max_ignores_nan(cpu: Compile, dim: int) -> None:
    x = randn(40, 50)
    x[3, :] = torch.nan
    x[:, 7] = torch.nan
    x[5, 5] = torch.nan
    y = cpu(reduce((40, 50), ["max"], dim, "float32", "float32"), [1])(x)[0]
    assert torch.equal(y, torch.where(x.isnan(), -torch.inf, x).amax(dim))


def test_a_sum_of_nan_is_nan(cpu: Compile) -> None:
    x = randn(4, 40)
    x[2, 39] = torch.nan
    y = cpu(reduce((4, 40), ["sum"], 1, "float32", "float32"), [1])(x)[0]
    assert y.isnan().tolist() == [False, False, True, False]


@pytest.mark.parametrize("dim", [0, 1])
def test_bitwise_reductions(cpu: Compile, dim: int) -> None:
    x = torch.randint(-(2**31), 2**31 - 1, (33, 40), generator=torch.Generator().manual_seed(0)).int()
    operations = {"bitand": torch.bitwise_and, "bitor": torch.bitwise_or, "bitxor": torch.bitwise_xor}
    y = cpu(reduce((33, 40), operations, dim, "int32", "int32"), [1])(x)
    for (kind, operation), got in zip(operations.items(), y, strict=True):
        assert torch.equal(got, functools.reduce(operation, x.unbind(dim))), kind


def test_clear_false_combines_with_the_old_value(cpu: Compile) -> None:
    @T.prim_func
    def kernel(X: T.Tensor((6, 50), "float32"), Y: T.Tensor((6,), "float32"), Z: T.Tensor((50,), "float32")):
        with T.Kernel(1):
            x = T.alloc_fragment((6, 50), "float32")
            y = T.alloc_fragment((6,), "float32")
            z = T.alloc_fragment((50,), "float32")
            T.copy(X, x)
            T.fill(y, 1.0)
            T.fill(z, 0.5)
            T.reduce_max(x, y, dim=1, clear=False)
            T.reduce_sum(x, z, dim=0, clear=False)
            T.copy(y, Y)
            T.copy(z, Z)

    x = randn(6, 50) - 2
    y, z = cpu(kernel, [1, 2])(x)
    assert torch.equal(y, x.amax(1).clamp_min(1.0))
    assert torch.allclose(z, x.sum(0) + 0.5, atol=1e-5)


def test_a_slice_is_reduced_and_nothing_else(cpu: Compile) -> None:
    @T.prim_func
    def kernel(X: T.Tensor((8, 40), "float32"), Y: T.Tensor((3,), "float32")):
        with T.Kernel(1):
            x = T.alloc_fragment((8, 40), "float32")
            y = T.alloc_fragment((3,), "float32")
            T.copy(X, x)
            T.reduce_sum(x[2:5, 4:36], y, dim=1)
            T.copy(y, Y)

    x = randn(8, 40)
    assert torch.allclose(cpu(kernel, [1])(x), x[2:5, 4:36].sum(1), atol=1e-5)


# ---------------------------------------------------------------------------------------------------- scans and moves


@pytest.mark.parametrize("dim", [0, 1])
def test_scans(cpu: Compile, dim: int) -> None:
    forms = [(T.cumsum, False), (T.cumsum, True), (T.cummax, False), (T.cummax, True)]

    @T.prim_func
    def kernel(X: T.Tensor((13, 37), "float32"), Y: T.Tensor((4, 13, 37), "float32")):
        with T.Kernel(1):
            x = T.alloc_shared((13, 37), "float32")
            for row, (function, reverse) in enumerate(forms):
                T.copy(X, x)
                function(x, dim=dim, reverse=reverse)
                T.copy(x, Y[row, :, :])

    x = randn(13, 37)
    for (function, reverse), y in zip(forms, cpu(kernel, [1])(x), strict=True):
        turned = x.flip(dim) if reverse else x
        want = turned.cumsum(dim) if function is T.cumsum else turned.cummax(dim).values
        assert torch.allclose(y, want.flip(dim) if reverse else want, atol=1e-5), (function, reverse)


def test_transpose(cpu: Compile) -> None:
    @T.prim_func
    def kernel(X: T.Tensor((20, 30), "float16"), Y: T.Tensor((30, 20), "float16")):
        with T.Kernel(1):
            x = T.alloc_shared((20, 30), "float16")
            y = T.alloc_shared((30, 20), "float16")
            T.copy(X, x)
            T.transpose(x, y)
            T.copy(y, Y)

    x = randn(20, 30, dtype="float16")
    assert torch.equal(cpu(kernel, [1])(x), x.T)


@pytest.mark.parametrize(
    ("kernel_size", "stride", "dilation", "padding"), [(3, 1, 1, 1), (3, 2, 1, 0), (2, 1, 2, 1), (1, 1, 1, 0)]
)
def test_im2col_is_torch_s_unfold(cpu: Compile, kernel_size: int, stride: int, dilation: int, padding: int) -> None:
    n, h, w, c = 2, 7, 9, 5
    reach = dilation * (kernel_size - 1) + 1
    oh, ow = (h + 2 * padding - reach) // stride + 1, (w + 2 * padding - reach) // stride + 1
    rows, columns = n * oh * ow, kernel_size * kernel_size * c
    bm, bk = 16, 8

    @T.prim_func
    def kernel(X: T.Tensor((n, h, w, c), "float16"), Y: T.Tensor((rows, columns), "float16")):
        with T.Kernel(T.ceildiv(rows, bm), T.ceildiv(columns, bk)) as (bx, by):
            tile = T.alloc_shared((bm, bk), "float16")
            T.im2col(X, tile, bx, by, kernel_size, stride, dilation, padding)
            T.copy(tile, Y[bx * bm, by * bk])

    x = randn(n, h, w, c, dtype="float16")
    unfolded = torch.nn.functional.unfold(
        x.permute(0, 3, 1, 2).float(), kernel_size, dilation=dilation, padding=padding, stride=stride
    )  # (n, c * k * k, oh * ow)
    want = unfolded.view(n, c, kernel_size * kernel_size, oh * ow).permute(0, 3, 2, 1).reshape(rows, columns)
    assert torch.equal(cpu(kernel, [1])(x).float(), want)


def test_reducers_count_every_update_once(cpu: Compile) -> None:
    kinds = ("sum", "max", "min")

    @T.prim_func
    def kernel(X: T.Tensor((50, 20), "float32"), Y: T.Tensor((3, 20), "float32")):
        with T.Kernel(1):
            x = T.alloc_fragment((50, 20), "float32")
            T.copy(X, x)
            for row, kind in enumerate(kinds):
                acc = T.alloc_reducer((20,), "float32", op=kind)
                y = T.alloc_fragment((20,), "float32")
                T.reducer_init(acc)
                for i, j in T.Parallel(50, 20):
                    T.reducer_update(acc[j], x[i, j])
                T.finalize_reducer(acc, y)
                T.copy(y, Y[row, :])

    x = randn(50, 20)
    want = torch.stack([x.sum(0), x.amax(0), x.amin(0)])
    assert torch.allclose(cpu(kernel, [1])(x), want, atol=1e-5)
