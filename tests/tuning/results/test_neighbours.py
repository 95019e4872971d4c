"""Which measured shape stands for another."""

from __future__ import annotations

from math import log2, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import TuningError
from core.tuning.results.neighbours import covering, distance, reach

SHAPE = {"M": 4096, "K": 1024, "dtype": "float16", "causal": True}


@pytest.mark.parametrize(
    ("change", "octaves"),
    [
        ({}, 0.0),
        ({"M": 2048}, 1.0),
        ({"M": 8192}, 1.0),
        ({"M": 8200}, None),
        ({"M": 8192, "K": 2048}, sqrt(2)),
        ({"M": 5000}, log2(5000 / 4096)),
        # Wide accesses do not fit any more: half an octave further.
        ({"M": 4097}, log2(4097 / 4096) + 0.5),
        ({"dtype": "bfloat16"}, None),
        ({"causal": False}, None),
        ({"causal": 1}, None),
        ({"M": 0}, None),
    ],
)
def test_distance_in_octaves(change, octaves):
    found = distance(SHAPE, {**SHAPE, **change})
    assert found == (None if octaves is None else pytest.approx(octaves))


def test_an_argument_that_changes_the_block_counts_double():
    assert distance({"D": 64}, {"D": 88}, ["D"]) == pytest.approx(2 * log2(88 / 64))
    assert distance({"D": 64}, {"D": 128}, ["D"]) is None
    assert distance({"D": 64}, {"D": 128}) == 1.0


@given(st.integers(1, 3000), st.integers(0, 3000))
def test_a_covering_leaves_nothing_out_and_is_sparse(low, more):
    found = covering(low, low + more)
    assert all(
        any(distance({"M": one}, {"M": extent}) is not None for one in found)
        for extent in range(low, low + more + 1, 7)
    )
    assert distance({"M": found[0]}, {"M": low}) is not None
    assert distance({"M": found[-1]}, {"M": low + more}) is not None
    assert len(found) <= 1 + log2(1 + more / low) / 2
    assert covering(16, 8192) == [32, 128, 512, 2048, 8192]


def test_an_empty_range_is_refused():
    for low, high in ((0, 4), (5, 4)):
        with pytest.raises(TuningError, match="nothing from"):
            covering(low, high)


def test_other_arguments_are_another_kernel():
    assert distance({"M": 1}, {"M": 1, "N": 1}) is None


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.booleans())
def test_it_is_the_same_both_ways_and_within_reach_exactly(one, other, structural):
    names = ["M"] if structural else []
    there, back = distance({"M": one}, {"M": other}, names), distance({"M": other}, {"M": one}, names)
    assert there == (None if back is None else pytest.approx(back))
    low, high = reach(one, structural=structural)
    if structural:  # the square root of two has no exact value
        assert (there is not None) == (low <= other <= high) or other in (low - 1, high + 1)
    else:
        assert (there is not None) == (low <= other <= high)
