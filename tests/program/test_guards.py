"""Guards: a dimension is tested at run time exactly when an index of it can be outside."""

import itertools

import pytest
import tilelang.language as T
from hypothesis import given
from hypothesis import strategies as st

from core.conformance.interpreter.machine import Machine
from core.program import Buffer, Copy, Load, Parallel, Program, Store, Var, walk
from tests.properties import examples

small = st.integers(1, 6)


def stores(view) -> list[Store]:
    return [stmt for stmt in walk.statements(view) if isinstance(stmt, Store)]


def loads_of(view, buffer: Buffer) -> list[Load]:
    found = []
    for stmt in walk.statements(view):
        found += [e for e in walk.expressions(stmt) if isinstance(e, Load) and e.buffer is buffer]
    return found


def values_taken(index, ranges: dict[Var, int]) -> set[int]:
    """Every value of an index expression, by brute force."""
    machine = Machine(backwards=False)
    taken = set()
    for point in itertools.product(*(range(size) for size in ranges.values())):
        machine.variables.update(zip(ranges, point, strict=True))
        taken.add(int(machine.value(index)))
    return taken


@examples(60)
@given(size=st.integers(1, 40), blocks=small, tile=small, scale=st.integers(1, 4), offset=st.integers(-3, 5))
def test_affine_indices_are_guarded_exactly_when_they_leave_the_tensor(size, blocks, tile, scale, offset):
    @T.prim_func
    def main(A: T.Tensor((size,), "int32"), B: T.Tensor((blocks, tile), "int32")):
        with T.Kernel(blocks, threads=32) as b:
            for i in T.Parallel(tile):
                B[b, i] = A[(b * tile + i) * scale + offset]

    view = Program(main).view
    (launch,) = view.launches
    (block, _), loop = launch.grid[0], launch.body[0]
    assert isinstance(loop, Parallel)
    (load,) = loads_of(view, view.parameters[0].buffer)
    ranges = {block: blocks, loop.vars[0]: tile}
    taken = values_taken(load.indices[0], ranges)
    outside = any(not 0 <= value < size for value in taken)
    assert bool(load.guard) == outside
    wrapped = (blocks * tile - 1) * scale + offset < 0  # provably negative for every iteration: counts from the end
    if not wrapped:
        expected = {(b * tile + i) * scale + offset for b in range(blocks) for i in range(tile)}
        assert taken == expected


@examples(60)
@given(
    size=st.integers(1, 24),
    count=st.integers(1, 24),
    divisor=st.integers(1, 6),
    modulus=st.integers(1, 12),
    form=st.sampled_from(["div", "mod", "mix", "min", "max"]),
)
def test_a_missing_guard_is_always_justified(size, count, divisor, modulus, form):
    @T.prim_func
    def main(A: T.Tensor((size,), "int32"), B: T.Tensor((count,), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(count):
                if form == "div":
                    B[i] = A[i // divisor]
                elif form == "mod":
                    B[i] = A[i % modulus]
                elif form == "mix":
                    B[i] = A[(i // divisor) * divisor + i % divisor]
                elif form == "min":
                    B[i] = A[T.min(i, modulus)]
                else:
                    B[i] = A[T.max(i - modulus, 0)]

    view = Program(main).view
    (load,) = loads_of(view, view.parameters[0].buffer)
    loop = view.launches[0].body[0]
    taken = values_taken(load.indices[0], {loop.vars[0]: count})
    if not load.guard:
        assert all(0 <= value < size for value in taken)
    if form in ("div", "mod"):
        assert bool(load.guard) == any(not 0 <= value < size for value in taken)


@examples(40)
@given(rows=st.integers(1, 40), columns=st.integers(1, 40), tile=st.integers(2, 16), blocks=small)
def test_copies_guard_the_dimensions_that_hang_over(rows, columns, tile, blocks):
    @T.prim_func
    def main(A: T.Tensor((rows, columns), "float32")):
        with T.Kernel(blocks, threads=32) as b:
            s = T.alloc_shared((tile, tile), "float32")
            T.copy(A[b * tile % rows, 0], s)

    (launch,) = Program(main).view.launches
    copy = launch.body[0]
    assert isinstance(copy, Copy)
    starts = values_taken(copy.src.mins[0], {launch.grid[0][0]: blocks})
    if 0 not in copy.src_guard:
        assert all(start + tile <= rows for start in starts)
    assert (1 in copy.src_guard) == (tile > columns)
    assert copy.dst_guard == ()


def test_symbolic_sizes_are_proved_for_every_size():
    M = T.dynamic("M")

    @T.prim_func
    def main(A: T.Tensor((M,), "int32"), B: T.Tensor((2 * M,), "int32")):
        with T.Kernel(T.ceildiv(M, 8), threads=32) as b:
            for i in T.serial(M):
                B[2 * i + 1] = A[i]
            for i in T.serial(M):
                B[2 * i + 2] = A[M - 1 - i]
            for i in T.Parallel(8):
                A[b * 8 + i] = 1
            for i in T.Parallel(8):
                if b * 8 + i < M:
                    A[b * 8 + i] = 2

    view = Program(main).view
    assert [store.guard for store in stores(view)] == [(), (0,), (0,), ()]
    assert [load.guard for load in loads_of(view, view.parameters[0].buffer)] == [(), ()]


def test_conditions_on_memory_prove_nothing_once_the_memory_may_have_changed():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), n: T.int32):
        with T.Kernel(1, threads=32):
            v = T.alloc_var("int32", init=n)
            if v >= 0 and v < 8:
                v += 100
                A[v] = 1

    view = Program(main).view
    assert stores(view)[-1].guard == (0,)


def test_a_captured_value_keeps_its_condition():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), rows: T.Tensor((4,), "int32")):
        with T.Kernel(4, threads=32) as b:
            row = rows[b]
            if row >= 0 and row < 8:
                A[row] = 1
            A[row] = 2

    first, second = stores(Program(main).view)
    assert first.guard == ()
    assert second.guard == (0,)


def test_named_conditions_are_seen_through():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), n: T.int32):
        with T.Kernel(4, threads=32):
            inside = n >= 0 and n < 8
            if inside:
                A[n] = 1

    (store,) = stores(Program(main).view)
    assert store.guard == ()


def test_assume_and_assert_are_believed():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), n: T.int32, m: T.int32):
        assert n < 8, "n"
        with T.Kernel(1, threads=32):
            T.assume(m >= 0 and m < 8)
            A[m] = 1
            if n >= 0:
                A[n] = 1

    assert [store.guard for store in stores(Program(main).view)] == [(), ()]


def test_negative_indices_count_from_the_end_when_provable(run):
    import numpy as np

    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=32):
            B[0] = A[-1]
            for i in T.Parallel(3):
                B[i + 1] = A[i - 5]
            for i in T.Parallel(4):
                B[i + 4] = A[i - 2]

    out = np.zeros(8, np.int32)
    run(main, np.arange(10, 18, dtype=np.int32), out)
    assert out.tolist() == [17, 13, 14, 15, 0, 0, 10, 11]


def test_safe_values_are_converted_to_what_they_stand_for():
    @T.prim_func
    def main(A: T.Tensor((100,), "float16"), B: T.Tensor((128,), "float32")):
        with T.Kernel(2, threads=32) as b:
            s = T.alloc_shared((64,), "float32")
            T.annotate_safe_value({A: -1.0})
            T.copy(A[b * 64], s)
            for i in T.Parallel(64):
                B[b * 64 + i] = A[b * 64 + i]

    view = Program(main).view
    copy = view.launches[0].body[0]
    assert (copy.fill.dtype, copy.fill.value) == ("float32", -1.0)
    (load,) = loads_of(view, view.parameters[0].buffer)
    assert (load.fill.dtype, load.fill.value) == ("float16", -1.0)


@pytest.mark.parametrize("scope", ["shared", "fragment"])
def test_elements_of_on_chip_buffers_are_not_guarded(scope):
    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), n: T.int32):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((8,), "int32") if scope == "shared" else T.alloc_fragment((8,), "int32")
            T.copy(A, s)
            s[n] = 1
            A[0] = s[n + 1]

    view = Program(main).view
    assert [store.guard for store in stores(view)] == [(), ()]
