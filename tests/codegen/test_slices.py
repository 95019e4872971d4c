"""Slice assignments are one access only where the slice is known to begin at a multiple of its length."""

from typing import Any

import pytest
import tilelang.language as T
import torch

import core

ROWS = 64


def rows(columns: int, begin: int = 0, dtype: str = "float16") -> Any:
    """Each thread moves four elements of its row, from `begin` on."""

    @T.prim_func
    def main(A: T.Tensor((ROWS, columns), dtype), B: T.Tensor((ROWS, columns), dtype)):
        with T.Kernel(1, threads=ROWS):
            row = T.get_thread_binding()
            B[row, 0:4] = A[row, begin : begin + 4]

    return main


def bound() -> Any:
    """The row's number is a variable, known to be even: rows of 34 then begin at multiples of 4."""

    @T.prim_func
    def main(A: T.Tensor((2 * ROWS, 34), "float16"), B: T.Tensor((2 * ROWS, 34), "float16")):
        with T.Kernel(1, threads=ROWS):
            row = T.get_thread_binding() * 2
            B[row, 0:4] = A[row, 4:8]

    return main


def symbolic() -> Any:
    N = T.dynamic("N")

    @T.prim_func
    def main(A: T.Tensor((ROWS, N), "float16"), B: T.Tensor((ROWS, N), "float16")):
        with T.Kernel(1, threads=ROWS):
            row = T.get_thread_binding()
            B[row, 0:4] = A[row, 0:4]

    return main


def private() -> Any:
    @T.prim_func
    def main(A: T.Tensor((ROWS, 4), "float16"), B: T.Tensor((ROWS, 4), "float32")):
        with T.Kernel(1, threads=ROWS):
            row = T.get_thread_binding()
            mine = T.alloc_local((8,), "float32")
            mine[1:5] = A[row, 0:4]
            for j in T.serial(4):
                B[row, j] = mine[j + 1]

    return main


def arithmetic() -> Any:
    """An expression of vectors, of which one alone begins at no multiple of four."""

    @T.prim_func
    def main(A: T.Tensor((ROWS, 8), "float16"), B: T.Tensor((ROWS, 4), "float32")):
        with T.Kernel(1, threads=ROWS):
            row = T.get_thread_binding()
            B[row, 0:4] = T.Cast("float32x4", T.exp(A[row, 1:5]) * A[row, 0:4]) + T.Broadcast(T.float32(2), 4)

    return main


def is_wide(prim_func: Any, target: str) -> bool:
    source = core.compile(prim_func, target=target, build=False).get_kernel_source()
    return any(f"({vector}*)" in source.split("__global__")[-1] for vector in ("uint2", "float4"))


@pytest.mark.parametrize("target", ["metax:c500", "cuda:h200"])
@pytest.mark.parametrize(
    ("prim_func", "wide"),
    [
        pytest.param(rows(32), True, id="rows of 32"),
        pytest.param(rows(32, begin=4), True, id="from the fifth element on"),
        pytest.param(bound(), True, id="every other row of 34"),
        pytest.param(rows(33), False, id="rows of 33"),
        pytest.param(rows(34), False, id="rows of 34"),
        pytest.param(rows(32, begin=1), False, id="from the second element on"),
        pytest.param(symbolic(), False, id="rows of unknown length"),
        pytest.param(private(), False, id="into a thread's own array"),
        pytest.param(arithmetic(), False, id="one operand of several"),
    ],
)
def test_only_what_begins_at_a_multiple_of_its_length_is_one_access(prim_func: Any, wide: bool, target: str) -> None:
    assert is_wide(prim_func, target) is wide


def run(prim_func: Any, *tensors: torch.Tensor) -> None:
    core.compile(prim_func, target="metax:c500", simulate=True, options={"simulator": "checked"})(*tensors)


@pytest.mark.parametrize(("columns", "begin"), [(32, 0), (33, 0), (33, 5), (34, 2)])
def test_rows_move(columns: int, begin: int) -> None:
    a, b = torch.randn(ROWS, columns).half(), torch.zeros(ROWS, columns).half()
    run(rows(columns, begin), a, b)
    assert torch.equal(b[:, :4], a[:, begin : begin + 4])
    assert not b[:, 4:].any()


def test_each_lane_computes_with_its_own_elements() -> None:
    a, b = torch.randn(ROWS, 8).half(), torch.zeros(ROWS, 4)
    run(arithmetic(), a, b)
    want = (a[:, 1:5].float().exp().half().float() * a[:, :4].float()).half().float() + 2
    torch.testing.assert_close(b, want, atol=2e-3, rtol=2e-3)


def test_a_threads_own_array_is_filled_from_where_the_slice_begins() -> None:
    a, b = torch.randn(ROWS, 4).half(), torch.zeros(ROWS, 4)
    run(private(), a, b)
    assert torch.equal(b, a.float())


def test_provenance_says_which_lines() -> None:
    made = core.compile(rows(33), target="metax:c500", build=False)
    (said,) = (line for line in made.provenance.rewrites if "slice" in line)
    assert said.startswith("elements of a slice that begins at no multiple of its length move one by one (line ")


def test_what_cannot_be_taken_apart_is_refused_with_its_line() -> None:
    @T.prim_func
    def main(A: T.Tensor((ROWS, 33), "float16"), B: T.Tensor((ROWS, 33), "float16")):
        with T.Kernel(1, threads=ROWS):
            row = T.get_thread_binding()
            B[row, 0:4] = T.Shuffle([A[row, 0:4]], [3, 2, 1, 0])

    with pytest.raises(core.UnsupportedOp, match=r"B: 4 elements are assigned at once") as caught:
        core.compile(main, target="metax:c500", build=False)
    assert caught.value.location is not None
    assert "T.vectorized(4)" in caught.value.hint
