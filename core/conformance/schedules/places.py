"""Boxes of tensors: which elements a place stands for, and how a warp gets at them."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from core.conformance.schedules.accesses import Box
from core.conformance.schedules.state import Array
from core.conformance.schedules.tree import Place
from core.conformance.schedules.warp import Warp

Indices = list[np.ndarray[Any, Any]]


def mins_of(warp: Warp, place: Place) -> list[int]:
    """First index of a place, per dimension."""
    return [warp.number_of(index, "an index of a tile") for index in place.mins]


def runs(indices: np.ndarray[Any, Any]) -> list[tuple[int, int]]:
    """Sorted indices as ranges."""
    breaks = np.flatnonzero(np.diff(indices) != 1)
    firsts, lasts = [0, *(breaks + 1)], [*breaks, len(indices) - 1]
    return [(int(indices[i]), int(indices[j]) + 1) for i, j in zip(firsts, lasts, strict=True)]


def boxes(indices: Indices) -> list[Box]:
    """The boxes that indices per dimension make up."""
    return [tuple(box) for box in product(*(runs(each) for each in indices))]


def whole(mins: list[int], place: Place) -> Box:
    """A whole place as one box."""
    return tuple((low, low + extent) for low, extent in zip(mins, place.extents, strict=True))


def read(warp: Warp, place: Place, indices: Indices) -> Array:
    """Elements at these indices, by the warp itself; zero outside a global tensor."""
    tensor = place.tensor
    if tensor.is_fragment:
        held: Array = warp.registers(tensor)[np.ix_(*indices)]
        return held
    array = warp.block.array(tensor)
    if tensor.is_shared:
        for box in boxes(indices):
            warp.touch(tensor, warp.within(tensor, box), write=False)
        values: Array = array[np.ix_(*indices)]
        return values
    return read_global(array, indices)


def read_global(array: Array, indices: Indices) -> Array:
    inside = [(each >= 0) & (each < extent) for each, extent in zip(indices, array.shape, strict=True)]
    values = np.zeros([len(each) for each in indices], array.dtype)
    values[np.ix_(*inside)] = array[np.ix_(*(each[mask] for each, mask in zip(indices, inside, strict=True)))]
    return values


def write(warp: Warp, place: Place, indices: Indices, values: Array) -> None:
    tensor = place.tensor
    if tensor.is_fragment:
        warp.registers(tensor)[np.ix_(*indices)] = values
        return
    array = warp.block.array(tensor)
    if tensor.is_shared:
        for box in boxes(indices):
            warp.touch(tensor, warp.within(tensor, box), write=True)
        array[np.ix_(*indices)] = values
        return
    write_global(array, indices, values)


def write_global(array: Array, indices: Indices, values: Array) -> None:
    inside = [(each >= 0) & (each < extent) for each, extent in zip(indices, array.shape, strict=True)]
    kept = [each[mask] for each, mask in zip(indices, inside, strict=True)]
    array[np.ix_(*kept)] = values[np.ix_(*inside)]
