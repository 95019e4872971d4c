"""Copies, by what moves them: registers, threads, or the copy engine."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from core.conformance.schedules.accesses import Box
from core.conformance.schedules.expressions import convert
from core.conformance.schedules.state import Array, Block, Operation
from core.conformance.schedules.tree import Copy, Place
from core.conformance.schedules.warp import Pause, Steps, Warp
from core.errors import UnsupportedOp

Indices = list[np.ndarray[Any, Any]]


def copy(warp: Warp, node: Copy) -> Steps | None:
    """Runs a warp's part of a copy."""
    source, target = node.source.tensor, node.target.tensor
    if source.is_fragment or target.is_fragment:
        _through_registers(warp, node)
        return None
    if node.block is not None:
        return _to_another_block(warp, node)
    if source.is_global and target.is_shared and not node.no_bulk:
        return _bulk_load(warp, node)
    if source.is_shared and target.is_global and not node.no_bulk:
        return _bulk_store(warp, node)
    if node.bulk:
        raise UnsupportedOp(f"a bulk copy from {source.scope} to {target.scope}", location=node.location)
    _by_threads(warp, node)
    return None


# -- places ----------------------------------------------------------------------------------------------------------


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


def _read(warp: Warp, place: Place, indices: Indices) -> Array:
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
    return _read_global(array, indices)


def _read_global(array: Array, indices: Indices) -> Array:
    inside = [(each >= 0) & (each < extent) for each, extent in zip(indices, array.shape, strict=True)]
    values = np.zeros([len(each) for each in indices], array.dtype)
    values[np.ix_(*inside)] = array[np.ix_(*(each[mask] for each, mask in zip(indices, inside, strict=True)))]
    return values


def _write(warp: Warp, place: Place, indices: Indices, values: Array) -> None:
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
    _write_global(array, indices, values)


def _write_global(array: Array, indices: Indices, values: Array) -> None:
    inside = [(each >= 0) & (each < extent) for each, extent in zip(indices, array.shape, strict=True)]
    kept = [each[mask] for each, mask in zip(indices, inside, strict=True)]
    array[np.ix_(*kept)] = values[np.ix_(*inside)]


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
        values = convert(_read(warp, other, theirs), dtype)
        _write(warp, own, mine, values.reshape([len(each) for each in mine]))
    else:
        values = convert(_read(warp, own, mine), dtype)
        _write(warp, other, theirs, values.reshape(shape))


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
    values = convert(_read(warp, node.source, theirs), node.target.tensor.dtype)
    _write(warp, node.target, ours, values.reshape([len(each) for each in ours]))


# -- the copy engine -------------------------------------------------------------------------------------------------


def is_leader(warp: Warp, node: Copy) -> bool:
    """Whether one of this warp's threads issues a bulk copy: TileLang takes the first warp of each so many threads."""
    threads = node.leader_threads or len(node.group) * 32
    return warp.active is not None or warp.number % max(1, threads // 32) == 0


def _tile(mins: list[int], place: Place) -> Indices:
    return [np.arange(low, low + extent) for low, extent in zip(mins, place.extents, strict=True)]


def _size(node: Copy) -> int:
    return int(np.prod(node.target.extents if node.target.tensor.is_shared else node.source.extents)) * (
        node.source.tensor.item_bytes
    )


def _bulk_load(warp: Warp, node: Copy) -> Steps:
    yield Pause()
    block = warp.block
    warp.location = node.location
    if node.barrier is None:
        yield from _blocking_load(warp, node)
        return
    if not is_leader(warp, node):
        return
    if node.fenced:
        warp.added_fence(node.group)
    index = warp.number_of(node.barrier.index, "the barrier")
    block.barriers[node.barrier.tensor.storage][index].expect(_size(node))
    receivers = [block]
    if node.multicast >> block.rank & 1:
        ranks = [rank for rank in range(len(block.cluster.blocks)) if node.multicast >> rank & 1]
        receivers = [block.cluster.blocks[rank] for rank in ranks] if ranks[0] == block.rank else []
    for receiver in receivers:
        operation = _load_into(warp, node, receiver)
        barrier = receiver.barriers[node.barrier.tensor.storage][index]
        done = operation.perform

        def perform(done: Any = done, barrier: Any = barrier, number: int = operation.number) -> None:
            done()
            barrier.complete(_size(node), number)

        operation.perform = perform
        block.cluster.start(operation)


def _load_into(warp: Warp, node: Copy, receiver: Block) -> Operation:
    """A load to a block's shared memory, which holds no value from here until it is performed."""
    source, target = node.source, node.target
    what = f"the copy engine's write (for threads {warp.number * 32} to {warp.number * 32 + 31})"
    operation = warp.block.cluster.issue(warp.index, warp.release(), what, node.location)
    target_mins = mins_of(warp, target)
    box = warp.within(target.tensor, whole(target_mins, target))
    receiver.record(target.tensor, box, True, operation, node.location)
    indices = _tile(mins_of(warp, source), source)
    there = receiver.array(target.tensor)[tuple(slice(low, high) for low, high in box)]
    there[...] = np.full(1, 0xFF, np.uint8).repeat(target.tensor.item_bytes).view(target.tensor.kind)[0]
    array = warp.block.array(source.tensor)

    def perform() -> None:
        values = convert(_read_global(array, indices), target.tensor.dtype)
        there[...] = values.reshape(there.shape)

    operation.perform = perform
    return operation


def _blocking_load(warp: Warp, node: Copy) -> Steps:
    """`T.copy` of a tile: one thread issues it, and all wait for it on a barrier of the compiler's."""
    block = warp.block
    turn = warp.turns.get(id(node), 0)
    warp.turns[id(node)] = turn + 1
    key = (id(node), turn)
    if warp.number == node.group[0]:
        if node.fenced:
            warp.added_fence(node.group)
        operation = _load_into(warp, node, block)
        block.scratch[key] = operation
        block.cluster.start(operation)

    def ready() -> bool:
        return key in block.scratch and block.scratch[key].performed

    yield Pause(ready, lambda: "the end of this copy", node.location)
    operation = block.scratch[key]
    warp.clock.join(operation.clock)
    warp.clock.seen |= 1 << operation.number


def _bulk_store(warp: Warp, node: Copy) -> Steps:
    yield Pause()
    warp.location = node.location
    if not is_leader(warp, node):
        return
    if node.fenced:
        warp.added_fence(node.group)
    source, target = node.source, node.target
    block = warp.block
    what = f"the copy engine's read (for threads {warp.number * 32} to {warp.number * 32 + 31})"
    operation = block.cluster.issue(warp.index, warp.release(), what, node.location)
    box = warp.within(source.tensor, whole(mins_of(warp, source), source))
    block.record(source.tensor, box, False, operation, node.location)
    indices = _tile(mins_of(warp, target), target)
    here = block.array(source.tensor)[tuple(slice(low, high) for low, high in box)]
    array = block.array(target.tensor)

    def perform() -> None:
        values = convert(here, target.tensor.dtype)
        _write_global(array, indices, values.reshape([len(each) for each in indices]))

    operation.perform = perform
    block.cluster.start(operation)
    warp.stores.append([*warp.open_stores, operation])
    warp.open_stores = []
    if not node.bulk:
        yield from wait_for_stores(warp, 0)


def wait_for_stores(warp: Warp, in_flight: int) -> Steps:
    """Waits until the source of all but the last so many stores of this warp's leader has been read."""
    groups = warp.stores[: len(warp.stores) - in_flight] if in_flight else warp.stores
    waited = [operation for group in groups for operation in group]
    location = warp.location
    yield Pause(
        lambda: all(operation.performed for operation in waited), lambda: "its stores to read their source", location
    )
    for operation in waited:
        warp.clock.seen |= 1 << operation.number
    warp.stores = warp.stores[len(groups) :]


def _to_another_block(warp: Warp, node: Copy) -> Steps:
    """From shared memory to that of a block of the cluster, one of whose barriers it completes."""
    yield Pause()
    warp.location = node.location
    if warp.number != node.group[0]:
        return
    assert node.block is not None
    assert node.barrier is not None
    block = warp.block
    other = block.cluster.blocks[warp.number_of(node.block, "the block")]
    barrier = other.barriers[node.barrier.tensor.storage][warp.number_of(node.barrier.index, "the barrier")]
    size = _size(node)
    barrier.expect(size)
    barrier.arrive(1, warp.release(), node.location)
    warp.fence()  # part of what TileLang emits for it
    source, target = node.source, node.target
    what = f"the copy engine's copy to block {other.rank} of the cluster (for threads {warp.number * 32} and on)"
    operation = block.cluster.issue(warp.index, warp.release(), what, node.location)
    box = warp.within(source.tensor, whole(mins_of(warp, source), source))
    place = warp.within(target.tensor, whole(mins_of(warp, target), target))
    block.record(source.tensor, box, False, operation, node.location)
    other.record(target.tensor, place, True, operation, node.location)
    here = block.array(source.tensor)[tuple(slice(low, high) for low, high in box)]
    there = other.array(target.tensor)[tuple(slice(low, high) for low, high in place)]

    def perform() -> None:
        there[...] = convert(here, target.tensor.dtype).reshape(there.shape)
        barrier.complete(size, operation.number)

    operation.perform = perform
    block.cluster.start(operation)
