"""Copies of the copy engine: one thread issues one, and it happens some time later."""

from __future__ import annotations

from typing import Any

import numpy as np

from core.conformance.schedules.expressions import convert
from core.conformance.schedules.places import Indices, mins_of, read_global, whole, write_global
from core.conformance.schedules.state import Block, Operation
from core.conformance.schedules.tree import Copy, Place
from core.conformance.schedules.warp import Pause, Steps, Warp


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


def load(warp: Warp, node: Copy) -> Steps:
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
        values = convert(read_global(array, indices), target.tensor.dtype)
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


def store(warp: Warp, node: Copy) -> Steps:
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
        write_global(array, indices, values.reshape([len(each) for each in indices]))

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


def send(warp: Warp, node: Copy) -> Steps:
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
