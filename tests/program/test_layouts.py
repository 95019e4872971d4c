"""Tensors of global memory with a layout: every access is of the place that the layout gives the element."""

import numpy as np
import pytest
import tilelang.language as T

from core.errors import UnsupportedOp
from core.program import Program, Store
from core.program.walk import statements

ROWS, COLUMNS = 12, 8


def by_columns(tensor):
    """A layout that keeps columns one after the other."""
    return T.Layout(tensor.shape, lambda i, j: [j, i])


def moving(how: str, laid: str):
    """A tile with rows outside, moved from A to B, one of which is kept by columns."""

    @T.prim_func
    def main(A: T.Tensor((ROWS, COLUMNS), "int32"), B: T.Tensor((ROWS, COLUMNS), "int32")):
        with T.Kernel(2, threads=32) as bx:
            if laid == "A":
                T.annotate_layout({A: by_columns(A)})
            else:
                T.annotate_layout({B: by_columns(B)})
            tile = T.alloc_shared((8, COLUMNS), "int32")
            if how == "elements":
                for i, j in T.Parallel(8, COLUMNS):
                    B[bx * 8 + i, j] = A[bx * 8 + i, j]
            else:
                T.fill(tile, 7)
                T.copy(A[bx * 8, 0], tile)
                if how == "copy":
                    T.copy(tile, B[bx * 8, 0])
                elif how == "atomic tile":
                    T.atomic_add(B[bx * 8, 0], tile)
                else:
                    for i, j in T.Parallel(8, COLUMNS):
                        T.atomic_add(B[bx * 8 + i, j], tile[i, j])

    return main


@pytest.mark.parametrize("laid", ["A", "B"])
@pytest.mark.parametrize("how", ["elements", "copy", "atomic tile", "atomics"])
def test_elements_are_where_the_layout_says_and_guarded_by_their_own_indices(run, how, laid):
    a = np.arange(ROWS * COLUMNS, dtype=np.int32).reshape(ROWS, COLUMNS)
    b = np.zeros_like(a)
    run(moving(how, laid), a, b)
    if laid == "A":
        np.testing.assert_array_equal(b, a.reshape(COLUMNS, ROWS).T)
    else:
        np.testing.assert_array_equal(b, a.T.reshape(ROWS, COLUMNS))


def test_a_fill_and_an_index_read_from_a_tensor_with_a_layout(run):
    @T.prim_func
    def main(at: T.Tensor((2, 4), "int32"), B: T.Tensor((4, 4), "int32")):
        with T.Kernel(1, threads=32):
            T.annotate_layout({at: by_columns(at), B: T.Layout((4, 4), lambda i, j: [i, j // 2, 1 - j % 2])})
            T.fill(B, 1)
            for j in T.serial(4):
                B[at[0, j], j] = 5 + at[1, j]

    at = np.array([[3, 9], [2, 8], [1, 7], [0, 6]], np.int32)  # as the memory has it: columns
    b = np.zeros((4, 4), np.int32)
    run(main, at.reshape(2, 4), b)
    want = np.ones((4, 4), np.int32)
    want[[3, 2, 1, 0], [1, 0, 3, 2]] = [14, 13, 12, 11]
    np.testing.assert_array_equal(b, want)


def test_a_scalar_copy_is_one_store():
    @T.prim_func
    def main(A: T.Tensor((4, 4), "int32"), B: T.Tensor((4, 4), "int32")):
        with T.Kernel(1, threads=32):
            T.annotate_layout({B: by_columns(B)})
            T.copy(A[1:2, 2:3], B[3:4, 1:2])

    (store,) = (stmt for stmt in statements(Program(main).view) if isinstance(stmt, Store))
    assert [index.value for index in store.indices] == [1, 3]


def refused(prim_func, line_holding: str) -> str:
    with pytest.raises(UnsupportedOp) as caught:
        _ = Program(prim_func).view
    with open(caught.value.location.file) as source:
        assert line_holding in source.readlines()[caught.value.location.line - 1]
    assert caught.value.hint
    return caught.value.message


def test_an_operand_with_a_layout_is_refused():
    @T.prim_func
    def main(A: T.Tensor((8, 8), "float32"), B: T.Tensor((8, 8), "float32")):
        with T.Kernel(1, threads=32):
            T.annotate_layout({A: by_columns(A)})
            T.transpose(A, B)  # operand

    assert "transpose of a tensor with a layout of its own" in refused(main, "# operand")


def test_a_view_of_a_tensor_with_a_layout_is_refused():
    @T.prim_func
    def main(A: T.Tensor((8, 8), "float32")):
        with T.Kernel(1, threads=32):
            T.annotate_layout({A: by_columns(A)})
            flat = T.reshape(A, (64,))
            flat[0] = 1.0  # through the view

    assert "is a view of A, which has a layout of its own" in refused(main, "# through the view")


def test_one_tensor_with_a_layout_in_one_launch_only_is_refused():
    @T.prim_func
    def main(A: T.Tensor((8, 8), "float32")):
        with T.Kernel(1, threads=32):
            T.annotate_layout({A: by_columns(A)})
            A[0, 0] = 1.0
        with T.Kernel(1, threads=32):  # the other
            A[1, 0] = 1.0

    assert "in one T.Kernel, not in this" in refused(main, "# the other")
