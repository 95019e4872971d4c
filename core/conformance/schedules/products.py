"""Products of the matrix unit, and what else is done to whole fragments: fills and reductions."""

from __future__ import annotations

from typing import Any

import numpy as np

from core.conformance.schedules.expressions import convert
from core.conformance.schedules.layouts import product_divisions
from core.conformance.schedules.places import boxes, mins_of
from core.conformance.schedules.state import Array
from core.conformance.schedules.tree import Fill, Place, Product, Reduce
from core.conformance.schedules.warp import Pause, Steps, Warp
from core.errors import UnsupportedOp

_GROUP_ROWS = 64


def multiply(warp: Warp, node: Product) -> Steps:
    """Issues a warp's part of a product, and waits for it where the kernel does not.

    The rows of A that the unit may read are those of the whole warpgroup: nothing says which warp's instruction reads
    which.
    """
    yield Pause()
    warp.location = node.location
    if not node.c.tensor.is_fragment or node.a.tensor.is_global or not node.b.tensor.is_shared:
        raise UnsupportedOp("a product whose sums are not in registers", location=node.location)
    if node.fenced:
        warp.added_fence(node.group)
    rows_of, columns_of = _divisions(node)
    rows, columns = rows_of[warp.number], columns_of[warp.number]
    first = warp.number * 32
    what = f"the product of threads {first} to {first + 31}"
    block = warp.block
    operation = block.cluster.issue(warp.index, warp.release(), what, node.location)
    operation.after = warp.last_product
    steps = np.arange(node.k)
    if node.a.tensor.is_shared:
        around = np.unique(rows // _GROUP_ROWS)[:, None] * _GROUP_ROWS + np.arange(_GROUP_ROWS)
        _record(warp, node.a, operation, _order(around.reshape(-1), steps, node.transpose_a))
        read_a = _reader(warp, node.a, _order(rows, steps, node.transpose_a), node.transpose_a)
    else:
        registers = warp.operand(node.a.tensor)
        warp.hold(node.a.tensor, operation)
        index = np.ix_(*_order(rows, steps, node.transpose_a))
        read_a = lambda: registers[index].T if node.transpose_a else registers[index]  # noqa: E731
    _record(warp, node.b, operation, _order(steps, columns, node.transpose_b))
    read_b = _reader(warp, node.b, _order(steps, columns, node.transpose_b), node.transpose_b)
    sums = warp.accumulator(node.c.tensor)
    warp.hold(node.c.tensor, operation, sums=True)
    clear = bool(warp.settle(node.clear.evaluate(warp)))
    place = np.ix_(rows, columns)
    wide = np.float32 if node.c.tensor.dtype.startswith(("float", "bfloat")) else np.int64

    def perform() -> None:
        result = np.matmul(read_a().astype(wide), read_b().astype(wide))
        if not clear:
            result = sums[place].astype(wide) + result
        sums[place] = convert(result, node.c.tensor.dtype)

    operation.perform = perform
    block.cluster.start(operation)
    warp.products.append(operation)
    warp.last_product = operation
    if node.waits:
        yield from wait_for_products(warp, 0)


def wait_for_products(warp: Warp, in_flight: int) -> Steps:
    """Waits for all products of this warp but the last so many."""
    waited = warp.products[: max(0, len(warp.products) - in_flight)]
    yield Pause(lambda: all(operation.performed for operation in waited), lambda: "its products", warp.location)
    for operation in waited:
        warp.clock.seen |= 1 << operation.number
    del warp.products[: len(waited)]


def _divisions(node: Product) -> Any:
    if node.divisions is None:
        node.divisions = product_divisions(node)
    return node.divisions


def _order(first: Array, second: Array, transposed: bool) -> list[Array]:
    return [second, first] if transposed else [first, second]


def _indices(warp: Warp, place: Place, offsets: list[Array]) -> list[Array]:
    *lead, row, column = mins_of(warp, place)
    return [*(np.array([low]) for low in lead), offsets[0] + row, offsets[1] + column]


def _record(warp: Warp, place: Place, operation: Any, offsets: list[Array]) -> None:
    for box in boxes(_indices(warp, place, offsets)):
        warp.block.record(place.tensor, warp.within(place.tensor, box), False, operation, operation.location)


def _reader(warp: Warp, place: Place, offsets: list[Array], transposed: bool) -> Any:
    """Reads an operand when the product is performed."""
    index = np.ix_(*_indices(warp, place, offsets))
    array = warp.block.array(place.tensor)
    shape = [len(each) for each in offsets]

    def read() -> Array:
        values: Array = array[index].reshape(shape)
        return values.T if transposed else values

    return read


# -- fills and reductions --------------------------------------------------------------------------------------------


def fill(warp: Warp, node: Fill) -> None:
    """Sets a warp's part of a tile."""
    target = node.target
    value = convert(warp.settle(node.value.evaluate(warp)), target.tensor.dtype)
    mins = mins_of(warp, target)
    if target.tensor.is_fragment:
        layout = target.tensor.layout
        part = layout.part(warp.number) if layout is not None else None
        if part is not None:
            held = [e[(e >= low) & (e < low + n)] for e, low, n in zip(part, mins, target.extents, strict=True)]
            warp.registers(target.tensor)[np.ix_(*held)] = value
        return
    pieces = np.array_split(np.arange(target.extents[0]), len(node.group))
    rows = pieces[node.group.index(warp.number)] + mins[0]
    if not len(rows):
        return
    indices = [rows, *(np.arange(low, low + n) for low, n in zip(mins[1:], target.extents[1:], strict=True))]
    if target.tensor.is_shared:
        for box in boxes(indices):
            warp.touch(target.tensor, warp.within(target.tensor, box), write=True)
    warp.block.array(target.tensor)[np.ix_(*indices)] = value


_COMBINE: dict[str, Any] = {
    "sum": np.add,
    "abssum": np.add,
    "max": np.maximum,
    "absmax": np.maximum,
    "min": np.minimum,
    "bitand": np.bitwise_and,
    "bitor": np.bitwise_or,
    "bitxor": np.bitwise_xor,
}


def reduce(warp: Warp, node: Reduce) -> Steps | None:
    """Reduces a warp's part of a fragment; warps that share a row put their results together."""
    source, target = node.source.tensor, node.target.tensor
    if not (source.is_fragment and target.is_fragment) or source.layout is None or target.layout is None:
        raise UnsupportedOp("a reduction that is not of fragments", location=node.location)
    part = source.layout.part(warp.number)
    if part is None:
        return None
    if node.source.extents != source.extents:
        raise UnsupportedOp("a reduction of a part of a fragment", location=node.location)
    values = convert(warp.registers(source)[np.ix_(*part)], target.dtype)
    if node.kind.startswith("abs"):
        values = np.abs(values)
    with np.errstate(all="ignore"):
        result = _COMBINE[node.kind].reduce(values, axis=node.dim)
    if len(part[node.dim]) == source.extents[node.dim]:
        _finish(warp, node, part, result)
        return None
    return _together(warp, node, part, result)


def _together(warp: Warp, node: Reduce, part: tuple[Array, ...], result: Array) -> Steps:
    """The compiler's reduction between warps, through shared memory of its own, with a barrier before and after."""
    group = tuple(w for w in node.group if node.source.tensor.layout and node.source.tensor.layout.part(w) is not None)
    barrier = warp.block.added_barrier(group)
    warp.block.scratch[(id(node), warp.number)] = (part, result)
    yield from meet(warp, barrier, len(group) * 32)
    for other in group:
        if other == warp.number:
            continue
        their_part, their_result = warp.block.scratch[(id(node), other)]
        kept = [d for d in range(len(part)) if d != node.dim]
        if all(np.array_equal(part[d], their_part[d]) for d in kept):
            result = _COMBINE[node.kind](result, their_result)
    _finish(warp, node, part, result)
    yield from meet(warp, barrier, len(group) * 32)


def _finish(warp: Warp, node: Reduce, part: tuple[Array, ...], result: Array) -> None:
    target = node.target.tensor
    kept = [indices for dimension, indices in enumerate(part) if dimension != node.dim]
    if len(target.extents) == len(part):
        kept.insert(node.dim, np.array([0]))
        result = np.expand_dims(result, node.dim)
    index = np.ix_(*(kept or [np.array([0])]))
    registers = warp.registers(target)
    if not node.clear:
        result = _COMBINE[node.kind](registers[index], result)
    registers[index] = convert(np.asarray(result), target.dtype).reshape(registers[index].shape)


def meet(warp: Warp, barrier: Any, threads: int) -> Steps:
    """Arrives at a counted barrier and waits for the others."""
    location = warp.location
    generation = barrier.arrive(threads, warp.release(), location)
    yield Pause(lambda: bool(barrier.generation > generation), lambda: str(barrier), location)
    warp.clock.join(barrier.done)
