"""Legalised kernels still mean what their author wrote: each rewritten function is run and compared with torch."""

import itertools

import pytest
import tilelang.language as T
import torch

import core
from core.codegen.tir import Remedy, Rule, differences, legalise
from core.compiler import CompileOptions
from core.errors import UnsupportedOp
from core.program import Gemm, Program
from core.program.walk import statements

OPTIONS = CompileOptions()


def product(a: str, b: str, c: str, *, transpose_a: bool = False, transpose_b: bool = False, clear: bool = False):
    """C += op(A) @ op(B) of 32 x 24 x 16 tiles, two steps of k; `clear` restarts at each step."""
    m, n, k = 32, 24, 16
    shape_a = (k, m) if transpose_a else (m, k)
    shape_b = (n, k) if transpose_b else (k, n)

    @T.prim_func
    def main(A: T.Tensor((2, *shape_a), a), B: T.Tensor((2, *shape_b), b), C: T.Tensor((m, n), c)):
        with T.Kernel(1, threads=128):
            x = T.alloc_shared(shape_a, a)
            y = T.alloc_shared(shape_b, b)
            z = T.alloc_fragment((m, n), c)
            T.clear(z)
            for step in T.serial(2):
                T.copy(A[step, 0, 0], x)
                T.copy(B[step, 0, 0], y)
                T.gemm(x, y, z, transpose_A=transpose_a, transpose_B=transpose_b, clear_accum=clear)
            T.copy(z, C)

    return main


def found(prim_func, target: str, options: CompileOptions = OPTIONS):
    return differences(Program(prim_func).view, core.chip(target), options)


# Every form with one type; the other types in the first and the last form.
FORMS = list(itertools.product([False, True], repeat=3))


@pytest.mark.parametrize(
    ("a", "b", "c", "transpose_a", "transpose_b", "clear"),
    [
        *(("int16", "int16", "int32", *form) for form in FORMS),
        *((*[dtype] * 3, *form) for dtype in ("int32", "float32") for form in (FORMS[0], FORMS[-1])),
    ],
)
def test_products_without_an_instruction_are_spelled_out_and_right(a, b, c, transpose_a, transpose_b, clear):
    prim_func = product(a, b, c, transpose_a=transpose_a, transpose_b=transpose_b, clear=clear)
    legal = legalise(Program(prim_func), core.chip("cuda:h200"), OPTIONS)
    assert not [s for s in statements(Program(legal.prim_func).view) if isinstance(s, Gemm)]

    generator = torch.Generator().manual_seed(sum(map(ord, a + c)) + 4 * transpose_a + 2 * transpose_b + clear)

    def fresh(dtype, *shape):
        if dtype.startswith("int"):
            return torch.randint(-100, 100, shape, generator=generator).to(getattr(torch, dtype))
        return torch.randn(shape, generator=generator)

    x = fresh(a, 2, *((16, 32) if transpose_a else (32, 16)))
    y = fresh(b, 2, *((24, 16) if transpose_b else (16, 24)))
    got = torch.empty(32, 24, dtype=getattr(torch, c))
    core.compile(legal.prim_func, target="cpu")(x, y, got)
    left = (x.mT if transpose_a else x).double()
    steps = left @ (y.mT if transpose_b else y).double()
    expected = steps[1] if clear else steps.sum(0)
    torch.testing.assert_close(got.double(), expected, rtol=1e-5, atol=1e-4)


def test_products_with_an_instruction_stay():
    legal = legalise(Program(product("float16", "float16", "float32")), core.chip("cuda:h200"), OPTIONS)
    assert [s for s in statements(Program(legal.prim_func).view) if isinstance(s, Gemm)]
    assert legal.rewrites == []


def test_only_the_products_that_need_it_are_replaced():
    @T.prim_func
    def main(
        A: T.Tensor((32, 32), "float16"),
        B: T.Tensor((32, 32), "int16"),
        C: T.Tensor((32, 32), "float32"),
        D: T.Tensor((32, 32), "int32"),
    ):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((32, 32), "float16")
            b = T.alloc_shared((32, 32), "int16")
            c = T.alloc_fragment((32, 32), "float32")
            d = T.alloc_fragment((32, 32), "int32")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, a, c, clear_accum=True)
            T.gemm(b, b, d, clear_accum=True)
            T.copy(c, C)
            T.copy(d, D)

    legal = legalise(Program(main), core.chip("cuda:h200"), OPTIONS)
    [left] = [s for s in statements(Program(legal.prim_func).view) if isinstance(s, Gemm)]
    assert left.a.buffer.dtype == "float16"


def test_a_chip_that_multiplies_float32_itself_keeps_its_instruction():
    assert found(product("float32", "float32", "float32"), "metax:c500") == ()


def test_tf32_is_a_relaxation_the_user_asks_for():
    prim_func = product("float32", "float32", "float32")
    [strict] = found(prim_func, "cuda:h200")
    [relaxed] = found(prim_func, "cuda:h200", CompileOptions(fast_math=True))
    assert (strict.rule, strict.remedy) == (Rule.EXACT_FLOAT32, Remedy.REWRITTEN)
    assert (relaxed.rule, relaxed.remedy) == (Rule.EXACT_FLOAT32, Remedy.RELAXED)
    legal = legalise(Program(prim_func), core.chip("cuda:h200"), CompileOptions(fast_math=True))
    assert legal.relaxations == ["tf32: float32 matrix products round their operands to TF32 (10-bit mantissa)"]


def test_a_refusal_is_raised_with_its_line_and_hint():
    @T.prim_func
    def main(A: T.Tensor((32, 32), "int32"), C: T.Tensor((32, 32), "int32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_fragment((32, 32), "int32")
            c = T.alloc_fragment((32, 32), "int32")
            T.copy(A, a)
            T.gemm(a, a, c, clear_accum=True)
            T.copy(c, C)

    [first, _] = found(main, "cuda:h200")
    assert (first.rule, first.remedy) == (Rule.OPERAND_IN_FRAGMENT, Remedy.REFUSED)
    with pytest.raises(UnsupportedOp) as caught:
        legalise(Program(main), core.chip("cuda:h200"), OPTIONS)
    assert caught.value.location == first.stmt.location
    assert "shared buffer" in caught.value.hint


def test_rewrites_are_told_once_with_their_lines():
    legal = legalise(Program(product("int16", "int16", "int32")), core.chip("cuda:h200"), OPTIONS)
    told = [line for line in legal.rewrites if "multiply-add loops" in line]
    assert len(told) == 1
    assert "(line " in told[0]


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_bits_of_signed_integers_are_counted_as_those_of_unsigned_ones(dtype):
    @T.prim_func
    def main(A: T.Tensor((64,), dtype), B: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                B[i] = T.cast(T.popcount(A[i]), "int32")

    assert [one.rule for one in found(main, "cuda:h200")] == [Rule.SIGNED_POPCOUNT]
    legal = legalise(Program(main), core.chip("cuda:h200"), OPTIONS)
    bits = torch.iinfo(getattr(torch, dtype)).bits
    values = torch.tensor([0, 1, -1, 5, -128, 127, 64, -2] * 8).to(getattr(torch, dtype))
    got = torch.empty(64, dtype=torch.int32)
    core.compile(legal.prim_func, target="cpu")(values, got)
    assert got.tolist() == [(int(value) & (2**bits - 1)).bit_count() for value in values]
    assert "__popc" in core.compile(main, target="cuda:h200", build=False).get_kernel_source()


@pytest.mark.parametrize("target", ["cpu", "metax:c500", "ascend:910b3"])
@pytest.mark.parametrize(("dtype", "shift"), [("uint8", 4), ("int8", 3), ("uint16", 5), ("int16", 9)])
def test_bits_shifted_out_of_a_narrow_integer_are_gone(target, dtype, shift):
    """C shifts and complements in int: `uint8` 200 << 4 was 3200, and ~200 was -201."""
    kind, width = getattr(torch, dtype), 8 * getattr(torch, dtype).itemsize

    @T.prim_func
    def main(A: T.Tensor((64,), dtype), UP: T.Tensor((64,), "int32"), NOT: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                UP[i] = A[i] << T.cast(shift, dtype)
                NOT[i] = ~A[i]

    a = torch.randint(0, 2**width, (64,)).to(torch.int32).to(kind)
    up, complement = (torch.full((64,), -77, dtype=torch.int32) for _ in range(2))
    core.compile(main, target=target, simulate=target != "cpu")(a, up, complement)
    held = [x & (2**width - 1) for x in ((a.int() << shift), ~a.int())]
    expected = [x if dtype.startswith("u") else (x + 2 ** (width - 1)) % 2**width - 2 ** (width - 1) for x in held]
    assert torch.equal(up, expected[0])
    assert torch.equal(complement, expected[1])
