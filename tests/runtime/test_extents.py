"""Grid extents of a call: constants, symbols, scalars."""

import pytest

from core.errors import LaunchError
from core.runtime import Expression, Extent, GridExtents, ScalarArgument, Signature, TensorArgument

SIGNATURE = Signature(
    "f", (TensorArgument("A", "float32", ("M",)), ScalarArgument("n", "int32")), symbols=("M",), outputs=()
)


@pytest.mark.parametrize(("text", "value"), [(7, 7), ("7", 7), ("-3", -3), ("(M + 15) // 16", 2), ("max(n, 1)", 5)])
def test_an_extent_is_an_integer_expression(text: int | str, value: int) -> None:
    extent = Extent(text)
    assert extent({"M": 17, "n": 5}) == value
    assert extent.is_constant == (str(text).lstrip("-").isdigit())


def test_a_grid_reads_symbols_and_scalars_of_each_call() -> None:
    grid = GridExtents(SIGNATURE, [["(M + 15) // 16", "n"], ["1"]])
    assert not grid.is_constant
    assert grid([object(), 3], {"M": 33}) == ((3, 3), (1,))
    assert grid([object(), 0], {"M": 33}) == ((3, 0), (1,))


def test_a_grid_of_numbers_is_constant() -> None:
    assert GridExtents(SIGNATURE, [["4", "2"]]).is_constant


def test_an_expression_keeps_a_fraction_and_an_extent_is_whole() -> None:
    assert Expression("alpha * 2")({"alpha": 0.75}) == 1.5
    assert Extent("alpha * 2")({"alpha": 0.75}) == 1


def test_a_name_that_no_argument_determines_is_named() -> None:
    with pytest.raises(LaunchError, match="the launch needs K, which no argument determines") as caught:
        Extent("(K + 15) // 16")({"M": 17})
    assert caught.value.hint == "pass it as a scalar, or make it a tensor's extent"
