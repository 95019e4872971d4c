"""Copies, by what moves them: registers, threads, or the copy engine."""

from __future__ import annotations

import numpy as np

from core.conformance.schedules import bulk
from core.conformance.schedules.expressions import convert
from core.conformance.schedules.places import Indices, mins_of, read, write
from core.conformance.schedules.tree import Copy
from core.conformance.schedules.warp import Steps, Warp
from core.errors import UnsupportedOp


def copy(warp: Warp, node: Copy) -> Steps | None:
    """Runs a warp's part of a copy."""
    source, target = node.source.tensor, node.target.tensor
    if source.is_fragment or target.is_fragment:
        _through_registers(warp, node)
        return None
    if node.block is not None:
        return bulk.send(warp, node)
    if source.is_global and target.is_shared and not node.no_bulk:
        return bulk.load(warp, node)
    if source.is_shared and target.is_global and not node.no_bulk:
        return bulk.store(warp, node)
    if node.bulk:
        raise UnsupportedOp(f"a bulk copy from {source.scope} to {target.scope}", location=node.location)
    _by_threads(warp, node)
    return None


# -- registers and threads -------------------------------------------------------------------------------------------


def _through_registers(warp: Warp, node: Copy) -> None:
    """Each warp copies what it holds of the fragment; of two fragments, of the one that is written."""
    own_is_target = node.target.tensor.is_fragment
    own, other = (node.target, node.source) if own_is_target else (node.source, node.target)
    layout = own.tensor.layout
    part = layout.part(warp.number) if layout is not None else None
    if layout is None or part is None:
        return
    if not own_is_target and warp.number not in layout.writers(node.group):
        return
    own_mins, other_mins = mins_of(warp, own), mins_of(warp, other)
    mine: Indices = []
    for held, low, extent in zip(part, own_mins, own.extents, strict=True):
        mine.append(held[(held >= low) & (held < low + extent)])
    theirs: Indices = [np.array([low]) for low in other_mins]
    shape = [1] * len(theirs)
    for source_dimension, target_dimension in node.pairs:
        here, there = (target_dimension, source_dimension) if own_is_target else (source_dimension, target_dimension)
        theirs[there] = mine[here] - own_mins[here] + other_mins[there]
        shape[there] = len(mine[here])
    if any(len(each) == 0 for each in mine):
        return
    dtype = node.target.tensor.dtype
    if own_is_target:
        values = convert(read(warp, other, theirs), dtype)
        write(warp, own, mine, values.reshape([len(each) for each in mine]))
    else:
        values = convert(read(warp, own, mine), dtype)
        write(warp, other, theirs, values.reshape(shape))


def _by_threads(warp: Warp, node: Copy) -> None:
    """Between shared and global memory without the copy engine: the warps share the first long dimension."""
    source_mins, target_mins = mins_of(warp, node.source), mins_of(warp, node.target)
    theirs: Indices = [np.array([low]) for low in source_mins]
    ours: Indices = [np.array([low]) for low in target_mins]
    for position, (source_dimension, target_dimension) in enumerate(node.pairs):
        offsets = np.arange(node.target.extents[target_dimension])
        if position == 0:
            offsets = np.array_split(offsets, len(node.group))[node.group.index(warp.number)]
        theirs[source_dimension] = offsets + source_mins[source_dimension]
        ours[target_dimension] = offsets + target_mins[target_dimension]
    if any(len(each) == 0 for each in ours):
        return
    values = convert(read(warp, node.source, theirs), node.target.tensor.dtype)
    write(warp, node.target, ours, values.reshape([len(each) for each in ours]))
