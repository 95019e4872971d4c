"""What counts as wrong, and how it is said."""

from __future__ import annotations

import pytest
import torch

from core.runtime.signature import ScalarArgument, Signature, TensorArgument
from core.tuning.checking import difference, written

SIGNATURE = Signature(
    "f",
    (
        TensorArgument("A", "float32", (2, 3)),
        ScalarArgument("n", "int32"),
        TensorArgument("S", "float32", (2, 3), writes=True),
        TensorArgument("C", "float32", (2, 3), is_output=True, reads=False, writes=True),
    ),
    outputs=(3,),
)
RIGHT = torch.tensor([[1.0, 2.0, -3.0], [4.0, float("inf"), float("nan")]])


def compare(found, right, tolerance=None):
    return difference(SIGNATURE, [None, 1, None, found], {3: right}, tolerance)


def test_what_is_compared_is_what_the_kernel_writes():
    assert written(SIGNATURE) == [2, 3]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn])
def test_rounding_is_no_fault(dtype):
    right = torch.randn(200, 30, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert compare(right.to(dtype), right.to(dtype).to(torch.float64).to(dtype)) is None
    noise = torch.finfo(dtype).eps / 2 * right.abs()
    assert compare((right + noise).to(dtype), right.to(dtype)) is None


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn])
def test_one_element_that_is_off_by_half_is_found(dtype):
    right = torch.ones(64, 64)
    found = right.clone()
    found[5, 7] = 1.5
    said = compare(found.to(dtype), right.to(dtype))
    assert said.startswith("C: 1 of 4,096 elements are wrong")
    assert "the worst, [5, 7], is 1.5 instead of 1" in said


def test_infinities_and_nans_must_be_where_they_should():
    assert compare(RIGHT.clone(), RIGHT) is None
    for place in ((0, 0), (1, 1)):
        found = RIGHT.clone()
        found[place] = float("nan")
        assert "1 of 6 elements" in compare(found, RIGHT)
    found = RIGHT.clone()
    found[1, 2] = 0.0
    assert "is 0 instead of nan" in compare(found, RIGHT)


def test_a_small_element_among_large_ones_is_judged_by_the_whole():
    right = torch.tensor([1000.0, 1e-6] * 50)
    assert compare(right + 0.1, right) is None
    assert compare(right + 10.0, right) is not None


def test_whole_numbers_are_exact():
    right = torch.tensor([1, 2, 3], dtype=torch.int32)
    assert compare(right.clone(), right) is None
    assert "the worst, [1], is 7 instead of 2" in compare(torch.tensor([1, 7, 3], dtype=torch.int32), right)


def test_the_user_s_tolerance_counts():
    right = torch.ones(10)
    assert compare(right * 1.05, right) is not None
    assert compare(right * 1.05, right, 0.1) is None


def test_another_shape_is_said():
    assert "its shape is (2,), the reference's (3,)" in compare(torch.ones(2), torch.ones(3))
