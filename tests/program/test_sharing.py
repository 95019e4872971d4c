"""Elements that iterations of a `T.Parallel` add up into: totals in fragments, races in memory that threads share."""

import numpy as np
import pytest
import tilelang.language as T

from core.errors import UnsupportedOp
from core.program import Parallel, Program, ReducerUpdate, Store
from core.program.sharing import accumulated_over
from core.program.walk import statements


def loop_of(prim_func) -> Parallel:
    """The first parallel loop of a kernel."""
    return next(stmt for stmt in statements(Program(prim_func).view) if isinstance(stmt, Parallel))


@pytest.mark.parametrize(("operator", "kind"), [("add", "sum"), ("max", "max"), ("min", "min")])
def test_a_fragments_totals_are_updates(run, operator, kind):
    combine = {"add": lambda x, y: x + y, "max": T.max, "min": T.min}[operator]

    @T.prim_func
    def main(A: T.Tensor((4, 8), "int32"), y: T.Tensor((4,), "int32")):
        with T.Kernel(1, threads=32):
            total = T.alloc_fragment((4,), "int32")
            T.fill(total, 3)
            for i, j in T.Parallel(4, 8):
                if j != 2:
                    total[i] = combine(A[i, j], total[i])
            T.copy(total, y)

    updates = [stmt for stmt in statements(loop_of(main)) if isinstance(stmt, Store | ReducerUpdate)]
    assert [type(stmt) for stmt in updates] == [ReducerUpdate]
    assert updates[0].kind == kind
    a, y = np.arange(32, dtype=np.int32).reshape(4, 8), np.zeros(4, np.int32)
    a[0] -= 40
    run(main, a, y)
    combined = {"add": np.sum, "max": np.max, "min": np.min}[operator]
    taken = np.delete(a, 2, axis=1)
    assert y.tolist() == [combined([3, *row]) for row in taken]


def test_what_each_iteration_has_to_itself_stays_a_store():
    @T.prim_func
    def main(A: T.Tensor((4, 8), "float32"), y: T.Tensor((4,), "float32")):
        with T.Kernel(1, threads=32):
            total = T.alloc_fragment((4,), "float32")
            T.clear(total)
            for i in T.Parallel(4):
                for j in T.serial(8):
                    total[i] += A[i, j]
            T.copy(total, y)

    assert any(isinstance(stmt, Store) for stmt in statements(loop_of(main)))
    assert not accumulated_over(loop_of(main))


def test_a_total_that_is_read_besides_stays_a_store():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32"), y: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32):
            total = T.alloc_fragment((1,), "float32")
            T.clear(total)
            for i in T.Parallel(8):
                total[0] += A[i]
                y[i] = total[0]

    assert not any(isinstance(stmt, ReducerUpdate) for stmt in statements(loop_of(main)))
    assert {var.name for var in accumulated_over(loop_of(main))} == {"i"}


@pytest.mark.parametrize("memory", ["shared", "global"])
@pytest.mark.parametrize("operator", ["sum", "difference", "max"])
def test_a_total_in_memory_that_threads_share_is_refused(memory, operator):
    combine = {"sum": lambda x, y: x + y, "difference": lambda x, y: x - y, "max": T.max}[operator]

    @T.prim_func
    def main(A: T.Tensor((4, 8), "float32"), y: T.Tensor((4,), "float32")):
        with T.Kernel(1, threads=32):
            tile = T.alloc_shared((4,), "float32")
            total = y if memory == "global" else tile
            for i, j in T.Parallel(4, 8):
                total[i] = combine(total[i], A[i, j])  # the race

    with pytest.raises(UnsupportedOp, match=r"every iteration over j reads total\[i\] and writes it") as caught:
        _ = Program(main).view
    assert "T.atomic_add" in caught.value.hint
    with open(caught.value.location.file) as source:
        assert "# the race" in source.readlines()[caught.value.location.line - 1]


def test_one_thread_races_with_nobody():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32"), y: T.Tensor((1,), "float32")):
        with T.Kernel(1, threads=1):
            for i in T.Parallel(8):
                y[0] = y[0] + A[i]

    assert Program(main).view.launches


def test_one_value_stored_by_many_is_no_race():
    """Idempotent, of an operand that the iterations agree on."""

    @T.prim_func
    def main(A: T.Tensor((4,), "float32"), B: T.Tensor((4, 8), "float32"), y: T.Tensor((4,), "float32")):
        with T.Kernel(1, threads=32):
            for i, j in T.Parallel(4, 8):
                y[i] = T.max(y[i], A[i])
                B[i, j] = B[i, j] + 1.0

    assert Program(main).view.launches


@pytest.mark.parametrize(
    ("index", "over"),
    [
        (lambda i, j: i * 8 + j, set()),
        (lambda i, j: j * 4 + i, set()),
        (lambda i, j: 31 - i * 8 - j, set()),
        (lambda i, j: i * 7 + j, {"i", "j"}),
        (lambda i, j: (i * 8 + j) // 2, {"i", "j"}),
    ],
)
def test_iterations_are_told_apart_by_the_digits_of_their_index(index, over):
    @T.prim_func
    def main(A: T.Tensor((4, 8), "float32"), y: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=32):
            tile = T.alloc_shared((32,), "float32")
            T.clear(tile)
            for i, j in T.Parallel(4, 8):
                tile[index(i, j)] += A[i, j]
            T.copy(tile, y)

    assert {var.name for var in accumulated_over(loop_of(main))} == over


def test_a_sum_of_indices_is_told_apart_with_the_other_index():
    @T.prim_func
    def main(A: T.Tensor((4, 8), "float32"), y: T.Tensor((11, 8), "float32")):
        with T.Kernel(1, threads=32):
            for i, j in T.Parallel(4, 8):
                y[i + j, j] += A[i, j]

    assert not accumulated_over(loop_of(main))


def test_a_legacy_reducer_updated_with_another_operator_is_refused():
    @T.prim_func
    def main(A: T.Tensor((4, 8), "float32"), y: T.Tensor((4,), "float32")):
        with T.Kernel(1, threads=32):
            with pytest.warns(DeprecationWarning, match="alloc_reducer"):
                most = T.alloc_reducer((4,), "float32", op="max", replication="all")
            T.clear(most)
            for i, j in T.Parallel(4, 8):
                most[i] = most[i] + A[i, j]  # adds
            T.finalize_reducer(most)
            T.copy(most, y)

    with pytest.raises(UnsupportedOp, match="most is a reducer of max, and is updated with sum") as caught:
        _ = Program(main).view
    with open(caught.value.location.file) as source:
        assert "# adds" in source.readlines()[caught.value.location.line - 1]
