"""What the view means, in values: kernels run by the interpreter and compared with NumPy."""

import math

import ml_dtypes
import numpy as np
import pytest
import tilelang.language as T

from core.conformance.interpreter import interpret
from core.errors import LaunchError, UnsupportedOp
from core.program import Program

NAN, INF = math.nan, math.inf
bf16 = ml_dtypes.bfloat16


def elementwise(expression, dtype="float32", out="float32", count=8):
    """A kernel that stores `expression(A[i], B[i])`."""

    @T.prim_func
    def main(A: T.Tensor((count,), dtype), B: T.Tensor((count,), dtype), C: T.Tensor((count,), out)):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(count):
                C[i] = expression(A[i], B[i])

    return main


def evaluated(run, expression, a, b=None, dtype="float32", out=None):
    out = out or dtype
    kinds = {"bfloat16": bf16, "float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2}
    first = np.array(a, kinds.get(dtype, dtype))
    second = np.array(b if b is not None else a, kinds.get(dtype, dtype))
    result = np.zeros(len(first), kinds.get(out, out))
    run(elementwise(expression, dtype, out, len(first)), first, second, result)
    return result


# -- numbers ---------------------------------------------------------------------------------------------------------


def test_round_takes_ties_to_even(run):
    values = [0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 2.4, 2.6]
    expected = [0, 2, 2, 0, -2, -2, 2, 3]
    assert evaluated(run, lambda a, b: T.round(a), values).tolist() == expected
    assert evaluated(run, lambda a, b: T.nearbyint(a), values).tolist() == expected


def test_max_and_min_ignore_one_nan(run):
    a, b = [NAN, 1, NAN, 3], [1, NAN, NAN, 2]
    np.testing.assert_array_equal(evaluated(run, lambda x, y: T.max(x, y), a, b), [1, 1, NAN, 3])
    np.testing.assert_array_equal(evaluated(run, lambda x, y: T.min(x, y), a, b), [1, 1, NAN, 2])


def test_comparisons_with_nan_are_false_but_for_not_equal(run):
    a, b = [NAN, 1], [1, 1]
    for compare, expected in (
        (lambda x, y: x == y, [0, 1]),
        (lambda x, y: x != y, [1, 0]),
        (lambda x, y: x < y, [0, 0]),
        (lambda x, y: x <= y, [0, 1]),
        (lambda x, y: x > y, [0, 0]),
        (lambda x, y: x >= y, [0, 1]),
    ):
        chosen = evaluated(run, lambda x, y, c=compare: T.if_then_else(c(x, y), T.float32(1), T.float32(0)), a, b)
        assert chosen.tolist() == expected


@pytest.mark.parametrize(("dtype", "a", "b", "total"), [("uint8", 200, 200, 144), ("int8", 100, 100, -56)])
def test_narrow_integers_wrap_before_they_are_widened(run, dtype, a, b, total):
    assert evaluated(run, lambda x, y: x + y, [a], [b], dtype, "int32").tolist() == [total]


def test_integer_division_and_remainder(run):
    a, b = [7, -7, 7, -7], [2, 2, -2, -2]
    assert evaluated(run, lambda x, y: x // y, a, b, "int32").tolist() == [3, -4, -4, 3]
    assert evaluated(run, lambda x, y: x % y, a, b, "int32").tolist() == [1, 1, -1, -1]
    assert evaluated(run, lambda x, y: T.truncdiv(x, y), a, b, "int32").tolist() == [3, -3, -3, 3]
    assert evaluated(run, lambda x, y: T.truncmod(x, y), a, b, "int32").tolist() == [1, -1, 1, -1]


def test_shifts_and_bits(run):
    assert evaluated(run, lambda x, y: x >> 1, [-3, 5], dtype="int32").tolist() == [-2, 2]
    assert evaluated(run, lambda x, y: (x << 4) ^ ~y, [1], [3], "int32").tolist() == [16 ^ ~3]
    assert evaluated(run, lambda x, y: T.popcount(x), [7, -1], dtype="int32").tolist() == [3, 32]
    assert evaluated(run, lambda x, y: T.clz(x), [1, 0], dtype="int32").tolist() == [31, 32]


def test_half_precision_rounds_after_every_operation(run):
    a, b = [1.0, 2048.0], [0.0004885, 1.0]
    result = evaluated(run, lambda x, y: (x + y) - x, a, b, "float16")
    expected = [float(np.float16(np.float16(p) + np.float16(q)) - np.float16(p)) for p, q in zip(a, b, strict=True)]
    assert result.tolist() == expected
    assert result.tolist() != [float(np.float16(q)) for q in b]


def test_a_float_literal_widens_half_precision_and_an_integer_does_not(run):
    a = [2048.0]
    assert evaluated(run, lambda x, y: x + 1 + 1, a, dtype="float16").tolist() == [2048.0]
    assert evaluated(run, lambda x, y: x + 1.0 + 1.0, a, dtype="float16").tolist() == [2050.0]


def test_bfloat16_rounds_to_nearest_even(run):
    a = [1 + 2**-8, 1 + 3 * 2**-8, 3.4e38]
    result = evaluated(run, lambda x, y: T.cast(x, "bfloat16"), a, out="bfloat16")
    assert result.astype(np.float32).tolist() == [1.0, 1 + 4 * 2**-8, INF]


def test_float8_saturates(run):
    a = [1e9, -INF, 449.0, 17.0, NAN]
    result = evaluated(run, lambda x, y: T.cast(x, "float8_e4m3fn"), a, out="float8_e4m3fn").astype(np.float32)
    np.testing.assert_array_equal(result, [448, -448, 448, 16, NAN])


def test_floats_become_integers_towards_zero_and_integers_wrap(run):
    assert evaluated(run, lambda x, y: T.cast(x, "int32"), [2.9, -2.9], out="int32").tolist() == [2, -2]
    assert evaluated(run, lambda x, y: T.cast(x, "int8"), [300, -129], dtype="int32", out="int8").tolist() == [44, 127]


def test_reinterpret_keeps_the_bits(run):
    assert evaluated(run, lambda x, y: T.reinterpret(x, "int32"), [1.0, -0.0], out="int32").tolist() == [
        0x3F800000,
        -(2**31),
    ]


def test_clamp_keeps_nan(run):
    np.testing.assert_array_equal(evaluated(run, lambda x, y: T.clamp(x, 0.0, 1.0), [NAN, -1, 2]), [NAN, 0, 1])


def test_division_by_zero_is_an_infinity(run):
    np.testing.assert_array_equal(evaluated(run, lambda x, y: x / y, [1, -1, 0], [0, 0, 0]), [INF, -INF, NAN])


@pytest.mark.parametrize(
    "name", "exp exp2 log log2 log10 log1p sqrt rsqrt tanh sigmoid erf sin cos tan floor ceil trunc abs".split()
)
def test_functions(run, name):
    reference = {
        "rsqrt": lambda x: 1 / np.sqrt(x),
        "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
        "erf": np.vectorize(math.erf),
    }.get(name) or getattr(np, name)
    values = np.array([0.1, 0.7, 1.3, 2.9], np.float32)
    result = evaluated(run, lambda x, y: getattr(T, name)(x), values)
    np.testing.assert_allclose(result, reference(values.astype(np.float64)), rtol=3e-7)


# -- tile operators --------------------------------------------------------------------------------------------------


def test_partial_tiles_overwrite_the_tail_with_the_safe_value(run):
    @T.prim_func
    def main(A: T.Tensor((5,), "float32"), B: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((8,), "float32")
            T.annotate_safe_value({A: -1.0})
            T.fill(s, 7)
            T.copy(A[0], s)
            T.copy(s, B)

    out = np.zeros(8, np.float32)
    run(main, np.arange(5, dtype=np.float32), out)
    assert out.tolist() == [0, 1, 2, 3, 4, -1, -1, -1]


def test_copies_do_not_write_outside_the_destination(run):
    @T.prim_func
    def main(A: T.Tensor((8, 8), "float32"), B: T.Tensor((5, 6), "float16")):
        with T.Kernel(2, threads=32) as b:
            s = T.alloc_shared((4, 8), "float32")
            T.copy(A[b * 4, 0], s)
            T.copy(s, B[b * 4, 0])

    a = np.arange(64, dtype=np.float32).reshape(8, 8)
    out = np.zeros((5, 6), np.float16)
    run(main, a, out)
    np.testing.assert_array_equal(out, a[:5, :6].astype(np.float16))


@pytest.mark.parametrize("start", [-3, 0, 6, 9])
def test_fills_are_clipped_on_every_scope(run, start):
    @T.prim_func
    def main(A: T.Tensor((8,), "float32"), B: T.Tensor((8,), "float32"), n: T.int32):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((8,), "float32")
            T.clear(s)
            T.fill(s[n : n + 4], 1)
            T.fill(A[n : n + 4], 2)
            T.copy(s, B)

    a, b = np.zeros(8, np.float32), np.zeros(8, np.float32)
    run(main, a, b, start)
    expected = [float(start <= i < start + 4) for i in range(8)]
    assert b.tolist() == expected
    assert a.tolist() == [2 * value for value in expected]


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_gemm_with_a_slice_of_the_accumulator(run, transpose_a, transpose_b):
    M, N, K = 4, 6, 8

    @T.prim_func
    def main(
        A: T.Tensor((K, M) if transpose_a else (M, K), "float16"),
        B: T.Tensor((N, K) if transpose_b else (K, N), "float16"),
        C: T.Tensor((2, M, N), "float32"),
    ):
        with T.Kernel(1, threads=32):
            a = T.alloc_shared((K, M) if transpose_a else (M, K), "float16")
            b = T.alloc_shared((N, K) if transpose_b else (K, N), "float16")
            c = T.alloc_fragment((2, M, N), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.fill(c, 1)
            T.gemm(a, b, c[0, :, :], transpose_A=transpose_a, transpose_B=transpose_b, clear_accum=True)
            T.gemm(a, b, c[1, :, :], transpose_A=transpose_a, transpose_B=transpose_b)
            T.copy(c, C)

    generator = np.random.default_rng(0)
    a = generator.integers(-3, 4, (M, K)).astype(np.float16)
    b = generator.integers(-3, 4, (K, N)).astype(np.float16)
    out = np.zeros((2, M, N), np.float32)
    run(
        main,
        np.ascontiguousarray(a.T if transpose_a else a),
        np.ascontiguousarray(b.T if transpose_b else b),
        out,
    )
    product = a.astype(np.float32) @ b.astype(np.float32)
    np.testing.assert_array_equal(out, np.stack([product, product + 1]))


def test_conditional_clear_and_integer_products_that_wrap(run):
    @T.prim_func
    def main(A: T.Tensor((4, 4), "int8"), C: T.Tensor((4, 4), "int32")):
        with T.Kernel(1, threads=32):
            a = T.alloc_shared((4, 4), "int8")
            c = T.alloc_fragment((4, 4), "int32")
            T.copy(A, a)
            T.fill(c, 99)
            for k in T.serial(3):
                T.gemm(a, a, c, clear_accum=(k == 1))
            T.copy(c, C)

    a = np.arange(-8, 8, dtype=np.int8).reshape(4, 4)
    out = np.zeros((4, 4), np.int32)
    run(main, a, out)
    np.testing.assert_array_equal(out, 2 * (a.astype(np.int32) @ a.astype(np.int32)))


REDUCTIONS = {
    "sum": lambda x: x.sum(1),
    "abssum": lambda x: np.abs(x).sum(1),
    "max": lambda x: x.max(1),
    "absmax": lambda x: np.abs(x).max(1),
    "min": lambda x: x.min(1),
    "bitand": lambda x: np.bitwise_and.reduce(x, 1),
    "bitor": lambda x: np.bitwise_or.reduce(x, 1),
    "bitxor": lambda x: np.bitwise_xor.reduce(x, 1),
}


@pytest.mark.parametrize("kind", sorted(REDUCTIONS))
def test_reductions_of_a_slice_reduce_the_slice(run, kind):
    @T.prim_func
    def main(A: T.Tensor((8, 6), "int32"), B: T.Tensor((3,), "int32")):
        with T.Kernel(1, threads=32):
            x = T.alloc_fragment((8, 6), "int32")
            y = T.alloc_fragment((3,), "int32")
            T.copy(A, x)
            getattr(T, f"reduce_{kind}")(x[2:5, 1:4], y, dim=1)
            T.copy(y, B)

    a = np.random.default_rng(1).integers(-100, 100, (8, 6)).astype(np.int32)
    out = np.zeros(3, np.int32)
    run(main, a, out)
    np.testing.assert_array_equal(out, REDUCTIONS[kind](a[2:5, 1:4]))


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("clear", [True, False])
def test_reductions_over_each_dimension(run, dim, clear):
    shape = (3, 4, 5)
    kept = tuple(size for d, size in enumerate(shape) if d != dim)

    @T.prim_func
    def main(A: T.Tensor(shape, "float32"), B: T.Tensor(kept, "float32")):
        with T.Kernel(1, threads=32):
            x = T.alloc_fragment(shape, "float32")
            y = T.alloc_fragment(kept, "float32")
            T.copy(A, x)
            T.fill(y, 10)
            T.reduce_sum(x, y, dim=dim, clear=clear)
            T.copy(y, B)

    a = np.random.default_rng(2).integers(-9, 9, shape).astype(np.float32)
    out = np.zeros(kept, np.float32)
    run(main, a, out)
    np.testing.assert_array_equal(out, a.sum(dim) + (0 if clear else 10))


def test_maxima_ignore_nan(run):
    @T.prim_func
    def main(A: T.Tensor((3, 4), "float32"), B: T.Tensor((3,), "float32")):
        with T.Kernel(1, threads=32):
            x = T.alloc_fragment((3, 4), "float32")
            y = T.alloc_fragment((3,), "float32")
            T.copy(A, x)
            T.reduce_max(x, y, dim=1)
            T.copy(y, B)

    a = np.array([[9, 1, NAN, 3], [NAN, 2, 5, 1], [NAN] * 4], np.float32)
    out = np.zeros(3, np.float32)
    run(main, a, out)
    assert out.tolist() == [9, 5, -INF]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dim", [0, 1])
def test_scans(run, dim, reverse):
    @T.prim_func
    def main(A: T.Tensor((4, 6), "float32"), B: T.Tensor((4, 6), "float32")):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((4, 6), "float32")
            T.copy(A, s)
            T.cumsum(s, dim=dim, reverse=reverse)
            T.copy(s, B)

    a = np.random.default_rng(3).integers(-9, 9, (4, 6)).astype(np.float32)
    out = np.zeros((4, 6), np.float32)
    run(main, a, out)
    flipped = np.flip(a, dim) if reverse else a
    expected = np.cumsum(flipped, dim)
    np.testing.assert_array_equal(out, np.flip(expected, dim) if reverse else expected)


def test_reducers_count_each_iteration_once(run):
    @T.prim_func
    def main(A: T.Tensor((4, 6), "float32"), B: T.Tensor((4,), "float32")):
        with T.Kernel(1, threads=32):
            acc = T.alloc_reducer((4,), "float32", op="sum")
            y = T.alloc_fragment((4,), "float32")
            T.reducer_init(acc, 100.0)
            for i, j in T.Parallel(4, 6):
                T.reducer_update(acc[i], A[i, j])
            T.finalize_reducer(acc, y)
            T.copy(y, B)

    a = np.arange(24, dtype=np.float32).reshape(4, 6)
    out = np.zeros(4, np.float32)
    run(main, a, out)
    np.testing.assert_array_equal(out, a.sum(1) + 100)


def test_aliases_share_bytes(run):
    @T.prim_func
    def main(A: T.Tensor((4, 2), "float32"), B: T.Tensor((4, 2), "float32")):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((4, 2), "float32")
            bits = T.view(s, (8,), "int32")
            T.copy(A, s)
            for i in T.Parallel(8):
                bits[i] = bits[i] ^ T.int32(-(2**31))
            T.copy(s, B)

    a = np.arange(1, 9, dtype=np.float32).reshape(4, 2)
    out = np.zeros((4, 2), np.float32)
    run(main, a, out)
    np.testing.assert_array_equal(out, -a)


def test_persistent_blocks_visit_every_tile_once(run):
    @T.prim_func
    def main(A: T.Tensor((5, 7), "int32")):
        with T.Kernel(4, threads=32) as w:
            for bx, by in T.Persistent([5, 7], 4, w):
                T.atomic_add(A[bx, by], 1)

    a = np.zeros((5, 7), np.int32)
    run(main, a)
    assert a.tolist() == [[1] * 7] * 5


def test_a_name_keeps_the_value_it_was_given(run):
    @T.prim_func
    def main(A: T.Tensor((2,), "int32")):
        with T.Kernel(1, threads=32):
            old = A[0]
            A[0] = 5
            A[1] = old

    a = np.array([3, 0], np.int32)
    run(main, a)
    assert a.tolist() == [5, 3]


def test_gathers_scatters_and_skipped_rows(run):
    @T.prim_func
    def main(table: T.Tensor((4, 3), "float32"), index: T.Tensor((5,), "int32"), out: T.Tensor((5, 3), "float32")):
        with T.Kernel(5, threads=32) as b:
            row = T.alloc_fragment((3,), "float32")
            T.copy(table[index[b], 0:3], row)
            T.copy(row, out[4 - b, 0:3])

    table = np.arange(12, dtype=np.float32).reshape(4, 3)
    out = np.full((5, 3), 9, np.float32)
    run(main, table, np.array([2, 0, 7, -1, 3], np.int32), out)
    zero = [0.0, 0.0, 0.0]
    assert out.tolist() == [table[3].tolist(), zero, zero, table[0].tolist(), table[2].tolist()]


# -- the interpreter itself ------------------------------------------------------------------------------------------


def test_what_nobody_wrote_reads_as_nan():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((8,), "float32")
            T.copy(s, A)

    a = np.zeros(8, np.float32)
    interpret(Program(main).view, [a])
    assert np.isnan(a).all()


def test_a_race_shows_when_the_order_is_turned_round(run):
    @T.prim_func
    def main(A: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(7):
                A[i + 1] = A[i]

    with pytest.raises(AssertionError):
        run(main, np.arange(8, dtype=np.float32))


def test_an_overrun_of_an_on_chip_buffer_is_caught():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32"), n: T.int32):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((8,), "float32")
            s[n] = 1
            A[0] = s[n]

    view = Program(main).view
    interpret(view, [np.zeros(8, np.float32), 3])
    with pytest.raises(IndexError):
        interpret(view, [np.zeros(8, np.float32), 8])


def test_assertions_and_prints():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), n: T.int32):
        assert n < 5, "too many"
        with T.Kernel(1, threads=32):
            T.print(A[1], msg="second")

    view = Program(main).view
    a = np.arange(8, dtype=np.int32)
    assert interpret(view, [a, 1]) == ["second 1"]
    with pytest.raises(LaunchError):
        interpret(view, [a, 5])


def test_per_thread_code_is_refused():
    @T.prim_func
    def main(A: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            A[T.get_thread_binding(0)] = 1

    with pytest.raises(UnsupportedOp):
        interpret(Program(main).view, [np.zeros(64, np.int32)])
