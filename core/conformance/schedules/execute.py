"""Runs statements for one warp."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from core.conformance.schedules import tree
from core.conformance.schedules.bulk import wait_for_stores
from core.conformance.schedules.clocks import Clock
from core.conformance.schedules.copies import copy
from core.conformance.schedules.faults import BarrierMisuse, EndsEarly
from core.conformance.schedules.lanes import WARP, Lanes
from core.conformance.schedules.products import fill, meet, multiply, reduce, wait_for_products
from core.conformance.schedules.tree import Body, Node
from core.conformance.schedules.warp import Pause, Steps, Warp

Handler = Callable[[Warp, Any], "Steps | None"]


def run(warp: Warp, body: Body) -> Steps:
    """The statements of a sequence, in order. Each pause is a place where others may go first."""
    for node in body:
        warp.location = node.location
        if node.synchronised:
            yield from meet(warp, warp.block.added_barrier(node.group), len(node.group) * WARP)
            warp.location = node.location
        steps = _HANDLERS[type(node)](warp, node)
        if steps is not None:
            yield from steps


# -- control ---------------------------------------------------------------------------------------------------------


def _bind(warp: Warp, node: tree.Bind) -> None:
    warp.slots[node.slot] = warp.settle(node.value.evaluate(warp))


def _assign(warp: Warp, node: tree.Assign) -> None:
    indices = [index.evaluate(warp) for index in node.indices]
    warp.store(node.tensor, indices, node.value.evaluate(warp))


def _loop(warp: Warp, node: tree.Loop) -> Steps:
    start = warp.number_of(node.start, "the start of a loop")
    for index in range(start, start + warp.number_of(node.extent, "the length of a loop")):
        warp.slots[node.slot] = index
        yield from run(warp, node.body)


def _while(warp: Warp, node: tree.While) -> Steps:
    while warp.number_of(node.condition, "the condition of a loop"):
        yield from run(warp, node.body)


def _branch(warp: Warp, node: tree.Branch) -> Steps:
    condition = warp.settle(node.condition.evaluate(warp))
    if not isinstance(condition, Lanes):
        yield from run(warp, node.then if condition else node.otherwise)
        return
    # The lanes part: one side after the other, as the hardware may do it.
    outer = warp.active
    chosen = condition.values.astype(bool)
    for side, body in ((chosen, node.then), (~chosen, node.otherwise)):
        warp.active = side if outer is None else side & outer
        if body and warp.active.any():
            yield from run(warp, body)
    warp.active = outer


def _parallel(warp: Warp, node: tree.Parallel) -> None:
    part = node.parts.get(warp.number)
    if part is None:
        return
    for slot, indices in zip(node.slots, np.ix_(*part), strict=True):
        warp.slots[slot] = indices
    warp.writes_memory = warp.number in node.writers
    _element_wise(warp, node.body)
    warp.writes_memory = True


def _element_wise(warp: Warp, body: Body) -> None:
    for node in body:
        warp.location = node.location
        match node:
            case tree.Assign():
                _assign(warp, node)
            case tree.Bind():
                warp.slots[node.slot] = node.value.evaluate(warp)
            case tree.Loop():
                start = warp.number_of(node.start, "the start of a loop")
                for index in range(start, start + warp.number_of(node.extent, "the length of a loop")):
                    warp.slots[node.slot] = index
                    _element_wise(warp, node.body)
            case tree.Branch():
                condition = node.condition.evaluate(warp)
                outer = warp.mask
                for side, inner in ((condition, node.then), (np.logical_not(condition), node.otherwise)):
                    warp.mask = side & outer if isinstance(side, np.ndarray) or outer is not True else bool(side)
                    if inner and np.any(warp.mask):
                        _element_wise(warp, inner)
                warp.mask = outer
            case _:
                raise BarrierMisuse(
                    "a statement that threads execute together inside T.Parallel", location=node.location
                )


# -- barriers and waits ----------------------------------------------------------------------------------------------


def _arrive(warp: Warp, node: tree.Arrive) -> Steps:
    yield Pause()
    warp.location = node.location
    index = warp.number_of(node.barrier.index, "the barrier")
    block = warp.block
    if node.block is not None:
        rank = warp.number_of(node.block, "the block")
        if not 0 <= rank < len(block.cluster.blocks):
            raise BarrierMisuse(
                f"an arrival at block {rank} of a cluster of {len(block.cluster.blocks)}", location=node.location
            )
        block = block.cluster.blocks[rank]
        if block.ended:
            raise EndsEarly(
                f"an arrival at a barrier of block {rank} of the cluster, which has ended",
                hint="T.cluster_sync() at the end keeps every block until the others have done with it",
                location=node.location,
            )
    barrier = block.barriers[node.barrier.tensor.storage][index]
    if node.bytes is not None:
        barrier.expect(warp.number_of(node.bytes, "the bytes") * warp.lanes)
    barrier.arrive(warp.lanes, warp.release(), node.location)


def _expect(warp: Warp, node: tree.Expect) -> None:
    barrier = warp.block.barriers[node.barrier.tensor.storage][warp.number_of(node.barrier.index, "the barrier")]
    barrier.expect(warp.number_of(node.bytes, "the bytes") * warp.lanes)


def _wait(warp: Warp, node: tree.Wait) -> Steps:
    barrier = warp.block.barriers[node.barrier.tensor.storage][warp.number_of(node.barrier.index, "the barrier")]
    parity = warp.number_of(node.parity, "the parity")
    yield Pause(lambda: barrier.passed(parity), lambda: f"parity {parity} of {barrier}", node.location)
    warp.location = node.location
    warp.clock.join(barrier.done)


def _named(warp: Warp, node: tree.NamedBarrier) -> Steps:
    yield Pause()
    warp.location = node.location
    identity = warp.number_of(node.identity, "the named barrier")
    threads = warp.number_of(node.threads, "the count of a named barrier")
    if not 0 <= identity < 16 or threads % WARP or threads <= 0:
        raise BarrierMisuse(
            f"named barrier {identity} for {threads} threads",
            hint="there are 16 of them, for whole warps",
            location=node.location,
        )
    barrier = warp.block.named_barrier(identity)
    if node.waits:
        yield from meet(warp, barrier, threads)
    else:
        barrier.arrive(threads, warp.release(), node.location)


def _block_barrier(warp: Warp, node: Node) -> Steps:
    yield from meet(warp, warp.block.added_barrier(node.group), len(node.group) * WARP)


def _fence(warp: Warp, node: Node) -> None:
    warp.fence()


def _wait_products(warp: Warp, node: tree.WaitProducts) -> Steps:
    yield from wait_for_products(warp, warp.number_of(node.in_flight, "the number of products"))


def _commit_stores(warp: Warp, node: Node) -> None:
    warp.stores.append(warp.open_stores)
    warp.open_stores = []


def _wait_stores(warp: Warp, node: tree.WaitStores) -> Steps:
    yield from wait_for_stores(warp, warp.number_of(node.in_flight, "the number of stores"))


def _cluster(warp: Warp, node: tree.ClusterBarrier) -> Steps:
    yield Pause()
    warp.location = node.location
    meeting = warp.block.cluster.meeting
    if node.arrives:
        known = Clock.zero(warp.block.cluster.warps) if node.relaxed else warp.release()
        warp.cluster_generation = meeting.arrive(warp.index, known, node.location)
    if node.waits:
        generation = warp.cluster_generation
        yield Pause(lambda: meeting.generation > generation, lambda: str(meeting), node.location)
        warp.clock.join(meeting.done)


_HANDLERS: dict[type, Handler] = {
    tree.Bind: _bind,
    tree.Assign: _assign,
    tree.Loop: _loop,
    tree.While: _while,
    tree.Branch: _branch,
    tree.Parallel: _parallel,
    tree.Copy: copy,
    tree.Fill: fill,
    tree.Reduce: reduce,
    tree.Product: multiply,
    tree.Arrive: _arrive,
    tree.Expect: _expect,
    tree.Wait: _wait,
    tree.NamedBarrier: _named,
    tree.BlockBarrier: _block_barrier,
    tree.Fence: _fence,
    tree.WaitProducts: _wait_products,
    tree.CommitStores: _commit_stores,
    tree.WaitStores: _wait_stores,
    tree.ClusterBarrier: _cluster,
}
