"""The builder: names, constants, what is computed once, what a region hides, types that must agree."""

import math

import pytest

from core.codegen.mlir import Builder, MemRef, Scalar, Tensor, Value, ops
from core.codegen.mlir.types import F16, F32, I1, I8, I32, INDEX
from core.errors import Location


def body(b: Builder) -> str:
    return b.function("f", [], "")


@pytest.mark.parametrize(
    ("value", "type_", "text"),
    [
        (1.5, F32, "1.5 : f32"),
        (1e30, F32, "1.0000000150474662e+30 : f32"),
        (-math.inf, F32, "0xFF800000 : f32"),
        (math.inf, F16, "0x7C00 : f16"),
        (math.nan, Scalar("bf16"), "0x7FC0 : bf16"),
        (200, I8, "-56 : i8"),
        (-1, I32, "-1 : i32"),
        (2**31, I32, "-2147483648 : i32"),
        (7, INDEX, "7 : index"),
        (True, I1, "true"),
    ],
)
def test_a_literal_is_exactly_its_value_in_the_type(value: float, type_: Scalar, text: str) -> None:
    b = Builder()
    b.constant(value, type_)
    assert f"arith.constant {text}\n" in body(b)


def test_a_constant_is_made_once_at_the_top_even_from_inside_a_region() -> None:
    b = Builder()
    x = Value("%x", F32)
    with b.region():
        inside = b.constant(2.0, F32)
    assert b.constant(2.0, F32) is inside
    ops.arith(b, "addf", x, inside)
    assert body(b).count("arith.constant 2.0") == 1
    assert body(b).index("arith.constant 2.0") < body(b).index("arith.addf")


def test_the_same_computation_is_done_once_where_it_can_be_seen() -> None:
    b = Builder()
    x = Value("%x", F32)
    with b.region():
        hidden = ops.arith(b, "mulf", x, x)
    outer = ops.arith(b, "mulf", x, x)
    assert outer is not hidden, "a value made in a region is not known outside"
    assert ops.arith(b, "mulf", x, x) is outer
    with b.region():
        assert ops.arith(b, "mulf", x, x) is outer


def test_memory_is_read_every_time() -> None:
    b = Builder()
    memory = Value("%m", MemRef((None,), F32))
    assert ops.load(b, memory, 0) is not ops.load(b, memory, 0)


def test_a_rollback_forgets_operations_and_that_they_were_known() -> None:
    b = Builder()
    x = Value("%x", F32)
    kept = ops.arith(b, "addf", x, x)
    point = b.checkpoint()
    dropped = ops.arith(b, "mulf", x, x)
    b.rollback(point)
    assert ops.arith(b, "addf", x, x) is kept
    assert ops.arith(b, "mulf", x, x) is not dropped
    assert body(b).count("arith.mulf") == 1


def test_operands_must_agree() -> None:
    b = Builder()
    with pytest.raises(TypeError):
        ops.arith(b, "addf", Value("%x", F32), Value("%y", F16))
    with pytest.raises(TypeError):
        ops.select(b, Value("%c", I1), Value("%x", Tensor((4,), F32)), Value("%y", Tensor((4,), F32)))
    with pytest.raises(TypeError):
        ops.broadcast(b, Value("%x", Tensor((4,), F32)), [8, 5], [0])
    with pytest.raises(TypeError):
        ops.for_loop(b, 0, 4, [Value("%x", F32)], lambda counter, carried: [Value("%y", F16)])


def test_lines_of_two_files_have_locations_of_their_own() -> None:
    b = Builder()
    x = Value("%x", F32)
    for file in ("/a/k.py", "/b/other.py"):
        b.location = Location(file, 3)
        ops.arith(b, "addf" if "k.py" in file else "mulf", x, x)
    assert b.location_lines() == ['#line3 = loc("k.py":3:0)', '#line3_1 = loc("other.py":3:0)']
    assert b.files == {"k.py": "/a/k.py", "other.py": "/b/other.py"}


@pytest.mark.parametrize(
    ("source", "target", "operation"),
    [
        ((16,), (16, 1), "tensor.expand_shape"),
        ((16, 1), (16,), "tensor.collapse_shape"),
        ((1, 64), (64,), "tensor.collapse_shape"),
        ((4, 8, 2), (4, 16), "tensor.collapse_shape"),
        ((8, 48), (4, 96), "tensor.reshape"),
    ],
)
def test_a_reshape_is_the_simplest_operation_that_does_it(
    source: tuple[int, ...], target: tuple[int, ...], operation: str
) -> None:
    b = Builder()
    result = ops.reshape(b, Value("%x", Tensor(source, F32)), target)
    assert result.type == Tensor(target, F32)
    assert f"{operation} " in body(b)


def test_a_subview_keeps_strides_and_moves_the_offset() -> None:
    b = Builder()
    tile = Value("%t", MemRef((8, 64), F32, (100, 1), 5))
    part = ops.subview(b, tile, [2, 0], [4, 64])
    assert part.type == MemRef((4, 64), F32, (100, 1), 205)
    assert ops.subview(b, tile, [0, 0], [8, 64]) is tile


def test_index_arithmetic_on_numbers_needs_no_operation() -> None:
    b = Builder()
    assert ops.add_index(b, 3, 4) == 7
    assert ops.ceildiv_index(b, -7, 2) == -3
    n = Value("%n", INDEX)
    assert ops.mul_index(b, n, 1) is n
    assert ops.mul_index(b, n, 0) == 0
    assert "arith." not in body(b)
