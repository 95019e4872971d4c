"""Loads and stores of whole tiles: windows of global memory, boxes of on-chip tensors, and what is out of bounds.

An access whose indices are no box (a gather, a scatter) is done in loops over just the axes that make it none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from core.codegen.mlir import ops
from core.codegen.mlir.affine import Affine
from core.codegen.mlir.boxes import Window, add_condition, add_guard, guarded_dims, proved
from core.codegen.mlir.builder import Value
from core.codegen.mlir.elementwise import zero_of
from core.codegen.mlir.lanes import Lanes, NeedsLoop
from core.codegen.mlir.liveness import is_on_chip
from core.codegen.mlir.ops import Extent
from core.codegen.mlir.types import Tensor, element_of, memory_type
from core.program.expressions import constant_int
from core.program.nodes import BinaryOp, Buffer, Const, Expr, Load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from core.codegen.mlir.context import Context

_COMBINED = {"add": BinaryOp.ADD, "max": BinaryOp.MAX, "min": BinaryOp.MIN}
#: Writes one window: the value over the axes given, into memory or a box of a tensor.
Writer = Callable[[Value, Value], None]


class Memory:
    """Accesses of one block."""

    def __init__(self, context: Context) -> None:
        self.c = context
        self.b = context.b
        #: Tiles of global memory already fetched, until something is written or the region ends.
        self._fetched: dict[Load, Lanes] = {}

    def forget(self) -> None:
        """Global memory may have changed, or values made so far may be out of scope."""
        self._fetched.clear()

    # ------------------------------------------------------------------------------------------------ loads

    def load(self, load: Load) -> Lanes:
        """An element for every iteration."""
        c, buffer = self.c, load.buffer
        c.check_dtype(buffer.dtype)
        if buffer.storage in c.private:
            return c.specialise(c.private[buffer.storage])
        axes = sorted(c.axes_of(load))
        if not is_on_chip(buffer):
            if load in self._fetched and not c.points:
                return self._fetched[load]
            lanes = self._global(load, axes)
            if not c.points and axes:
                self._fetched[load] = lanes
            return lanes
        if not axes:
            return self._element(load)
        return self._on_chip(load, axes)

    def _value(self, memory: Value, buffer: Buffer) -> Value:
        """What is computed with, from what is in memory."""
        if buffer.dtype != "bool":
            return memory
        zero = self.c.elementwise.constant_like(memory, 0)
        return ops.compare(self.b, "ne", memory, zero)

    def _element(self, load: Load) -> Lanes:
        """A scalar of an on-chip buffer."""
        c, buffer = self.c, load.buffer
        value = c.current(buffer.storage)
        if not isinstance(value.type, Tensor):
            canonical = c.canonical[buffer.storage]
            if canonical.dtype != buffer.dtype:
                value = c.elementwise.reinterpret(value, canonical.dtype, buffer.dtype)
            return Lanes(value)
        tensor = c.tensor(buffer)
        indices = [c.index(index) for index in load.indices]
        if c.speculative or load.guard:
            # Any element will do where the index is outside: the value is not used, or replaced below.
            sizes = c.shape(buffer)
            clipped = [
                index
                if all(proved(c, expr, extent))
                else ops.min_index(self.b, ops.max_index(self.b, index, 0), size - 1)
                for index, expr, extent, size in zip(indices, load.indices, buffer.shape, sizes, strict=True)
            ]
            element = self._value(ops.extract(self.b, tensor, clipped), buffer)
            window = Window()
            for dim in load.guard:
                add_guard(c, window, Affine({}, load.indices[dim]), load.indices[dim], buffer.shape[dim])
            test = window.test(c)
            if test is None:
                return Lanes(element)
            return Lanes(ops.select(self.b, test, element, c.scalar(self._fill(load))))
        return Lanes(self._value(ops.extract(self.b, tensor, indices), buffer))

    def _fill(self, load: Load) -> Expr:
        return load.fill if load.fill is not None else Const(load.buffer.dtype, zero_of(load.buffer.dtype))

    def _on_chip(self, load: Load, axes: list[int]) -> Lanes:
        c, buffer = self.c, load.buffer
        dims = self._dims(buffer, load.indices, on_chip=True)
        guard = guarded_dims(c, buffer, load.indices, load.guard)
        window = Window()
        loops = self._loop_axes(dims, load.indices, buffer, guard, window)
        if dims is None or loops:
            return self._gathered(load, axes, loops)
        shape, dims = self._expanded(buffer, dims)
        tensor = ops.reshape(self.b, c.tensor(buffer), shape)
        offsets, sizes, strides, order = self._box(dims)
        partial = {axis: window.bound(c, axis) for axis in order if axis in window.lows or axis in window.highs}
        test = window.test(c)
        if not partial and test is None:
            box = ops.extract_slice(self.b, tensor, offsets, sizes, strides)
            return self._lanes(self._value(box, buffer), order)
        fill = self._memory_scalar(self._fill(load), buffer)
        blank = ops.fill(self.b, fill, [size for size in sizes if isinstance(size, int)])

        def part() -> list[Value]:
            starts: list[Extent] = []
            counts: list[Extent] = []
            targets: list[Extent] = []
            for dim, item in enumerate(dims):
                low, count = 0, 1
                for axis, factor in item.factors.items():
                    low, count = partial.get(axis, (0, c.axes[axis].extent))  # type: ignore[assignment]  # extents
                    starts.append(ops.add_index(self.b, offsets[dim], ops.mul_index(self.b, low, factor)))
                if not item.factors:
                    starts.append(offsets[dim])
                counts.append(count)
                targets.append(low)
            piece = ops.extract_slice(self.b, tensor, starts, counts, strides)
            return [ops.insert_box(self.b, piece, blank, targets, counts, [1] * len(counts))]

        box = part()[0] if test is None else ops.if_else(self.b, test, part, lambda: [blank])[0]
        return self._lanes(self._value(box, buffer), order)

    def _lanes(self, box: Value, order: Sequence[int]) -> Lanes:
        """A box whose dimensions walk the axes in `order` (dimensions that walk none are 1) as lanes."""
        c = self.c
        value = ops.reshape(self.b, box, c.extents(order))
        ascending = sorted(order)
        return Lanes(ops.transpose(self.b, value, [list(order).index(axis) for axis in ascending]), tuple(ascending))

    def _global(self, load: Load, axes: list[int]) -> Lanes:
        c, buffer = self.c, load.buffer
        guard = guarded_dims(c, buffer, load.indices, load.guard)
        window = Window()
        dims = self._dims(buffer, load.indices, on_chip=False)
        if not axes:
            return self._global_scalar(load, guard)
        loops = self._loop_axes(dims, load.indices, buffer, guard, window)
        if dims is None or loops:
            return self._gathered(load, axes, loops)
        order = self._order(dims)
        if not order:
            raise NeedsLoop
        fill = self._memory_scalar(self._fill(load), buffer)
        extents = c.extents(order)
        local = ops.alloc(self.b, extents, memory_type(buffer.dtype))
        ranges = [window.bound(c, axis) for axis in order]
        lows, sizes = [low for low, _ in ranges], [size for _, size in ranges]
        whole = all(low == 0 and size == extent for low, size, extent in zip(lows, sizes, extents, strict=True))
        test = window.test(c)

        def fetch() -> list[Value]:
            source = self._window(buffer, dims, order, lows, sizes)
            ops.copy_memory(self.b, source, ops.subview(self.b, local, lows, sizes))
            return []

        if test is not None:
            ops.fill_memory(self.b, fill, local)
            ops.if_else(self.b, test, fetch)
        else:
            if not whole:
                self._fill_when_partial(fill, local, sizes, extents)
            fetch()
        return self._lanes(self._value(ops.to_tensor(self.b, local), buffer), order)

    def _fill_when_partial(self, fill: Value, local: Value, sizes: list[Extent], extents: list[int]) -> None:
        partial: Value | None = None
        for size, extent in zip(sizes, extents, strict=True):
            if size == extent:
                continue
            short = ops.compare(self.b, "slt", ops.index_value(self.b, size), self.b.index(extent))
            partial = short if partial is None else ops.arith(self.b, "ori", partial, short)
        assert partial is not None

        def fill_all() -> list[Value]:
            ops.fill_memory(self.b, fill, local)
            return []

        ops.if_else(self.b, partial, fill_all)

    def _global_scalar(self, load: Load, guard: Sequence[int]) -> Lanes:
        c, buffer = self.c, load.buffer
        window = Window()
        for dim in guard:
            add_guard(c, window, Affine({}, load.indices[dim]), load.indices[dim], buffer.shape[dim])
        test = window.test(c)

        def fetch() -> list[Value]:
            return [self._value(ops.load(self.b, self._argument(buffer), self.offset(buffer, load.indices)), buffer)]

        if test is None:
            return Lanes(fetch()[0])
        return Lanes(ops.if_else(self.b, test, fetch, lambda: [c.scalar(self._fill(load))])[0])

    def offset(self, buffer: Buffer, indices: Sequence[Expr]) -> Extent:
        """Elements from the start of global memory to an element."""
        total: Extent = 0
        for index, stride in zip(indices, buffer.strides, strict=True):
            total = ops.add_index(self.b, total, ops.mul_index(self.b, self.c.index(index), self.c.index(stride)))
        return total

    def _gathered(self, load: Load, axes: list[int], loops: Sequence[int]) -> Lanes:
        """Loops over some axes, each iteration fetching the box (or element) over the others."""
        c = self.c
        element = self._value_type(load.buffer)
        result = ops.empty(self.b, c.extents(axes), element)

        def fetch(tensor: Value) -> Value:
            part = self.load(load)
            free = [axis for axis in axes if axis not in c.points]
            points: list[Extent] = [c.points.get(axis, 0) for axis in axes]
            if not free:
                return ops.insert(self.b, part.value, tensor, points)
            value = c.align(part, free)
            sizes = [1 if axis in c.points else c.axes[axis].extent for axis in axes]
            return ops.insert_slice(self.b, ops.reshape(self.b, value, sizes), tensor, points, [1] * len(sizes))

        bound = [axis for axis in axes if axis in loops] or axes
        return Lanes(self._looped(bound, result, fetch), tuple(axes))

    def _value_type(self, buffer: Buffer) -> Any:
        from core.codegen.mlir.types import value_type

        return value_type(buffer.dtype)

    def _looped(self, axes: Sequence[int], init: Value | None, body: Callable[[Any], Any]) -> Any:
        """Nested loops that bind axes to one iteration each, carrying one value if there is one."""
        if not axes:
            return body(init)
        axis, rest = axes[0], axes[1:]

        def iteration(counter: Value, carried: tuple[Value, ...]) -> list[Value]:
            with self._bound(axis, counter):
                result = self._looped(rest, carried[0] if carried else None, body)
            return [] if result is None else [result]

        inits = [] if init is None else [init]
        results = ops.for_loop(self.b, 0, self.c.axes[axis].extent, inits, iteration)
        return results[0] if results else None

    @contextmanager
    def _bound(self, axis: int, counter: Value) -> Iterator[None]:
        self.c.points[axis] = counter
        try:
            yield
        finally:
            del self.c.points[axis]

    # ------------------------------------------------------------------------------------------------ forms

    def _dims(self, buffer: Buffer, indices: Sequence[Expr], *, on_chip: bool) -> list[Affine] | None:
        found = [self.c.indices.affine(index) for index in indices]
        if any(item is None for item in found):
            return None
        return [item for item in found if item is not None]

    def _loop_axes(
        self,
        dims: list[Affine] | None,
        indices: Sequence[Expr],
        buffer: Buffer,
        guard: Sequence[int],
        window: Window,
    ) -> list[int]:
        """Axes that must be bound to one iteration before the rest is a box; also narrows the window to the guards."""
        c = self.c
        bound: set[int] = set()
        taken = [c.indices.affine(index) for index in indices]
        for index, item in zip(indices, taken, strict=True):
            if item is None:
                bound |= c.axes_of(index)
        seen: set[int] = set()
        for dim, item in enumerate(taken):
            if item is None:
                continue
            moving = {axis for axis in item.factors if c.axes[axis].extent > 1}
            negative = {axis for axis, factor in item.factors.items() if factor < 0 and axis in moving}
            bound |= negative
            if is_on_chip(buffer):
                if len(item.factors) > 1 and self._digits(buffer, dim, item) is None:
                    bound |= set(sorted(item.factors)[:-1])
                bound |= {axis for axis in item.factors if axis in seen}
                seen |= set(item.factors)
            if dim in guard and not bound & moving and not add_guard(c, window, item, indices[dim], buffer.shape[dim]):
                bound |= set(sorted(moving)[:-1]) or moving
        return sorted(bound)

    def _digits(self, buffer: Buffer, dim: int, item: Affine) -> list[int] | None:
        """Axes, outermost first, whose places together count through a whole dimension; None when they do not."""
        c = self.c
        axes = sorted(item.factors, key=lambda axis: -item.factors[axis])
        step = 1
        for axis in reversed(axes):
            if item.factors[axis] != step:
                return None
            step *= c.axes[axis].extent
        return axes if constant_int(item.rest) == 0 and step == c.shape(buffer)[dim] else None

    def _expanded(self, buffer: Buffer, dims: list[Affine]) -> tuple[list[int], list[Affine]]:
        """The buffer's shape and the dims with every dimension that several axes count through taken apart."""
        c = self.c
        shape: list[int] = []
        taken: list[Affine] = []
        for dim, (extent, item) in enumerate(zip(c.shape(buffer), dims, strict=True)):
            axes = self._digits(buffer, dim, item) if len(item.factors) > 1 else None
            if axes is None:
                shape.append(extent)
                taken.append(item)
                continue
            shape += c.extents(axes)
            taken += [Affine({axis: 1}, item.rest) for axis in axes]
        return shape, taken

    def _box(self, dims: list[Affine]) -> tuple[list[Extent], list[Extent], list[int], list[int]]:
        """Offsets, sizes, steps and the axes in order, of an on-chip box."""
        c = self.c
        offsets = [c.index(item.rest) for item in dims]
        sizes: list[Extent] = []
        strides: list[int] = []
        order: list[int] = []
        for item in dims:
            axis = next(iter(item.factors), None)
            sizes.append(1 if axis is None else c.axes[axis].extent)
            strides.append(1 if axis is None else item.factors[axis])
            if axis is not None:
                order.append(axis)
        return offsets, sizes, strides, order

    def _order(self, dims: list[Affine]) -> list[int]:
        """Axes in the order of memory: those of outer dimensions first."""
        order: list[int] = []
        for item in dims:
            for axis in sorted(item.factors, key=lambda a: -abs(item.factors[a])):
                if axis not in order:
                    order.append(axis)
        return order

    def _argument(self, buffer: Buffer) -> Value:
        """The memory of a tensor.

        Raises:
            UnsupportedOp: a view whose elements are not the tensor's: a memref has one type of element.
        """
        argument = self.c.arguments[buffer.storage]
        if element_of(argument.type) != memory_type(buffer.dtype, buffer.location):
            raise self.c.unsupported(
                f"{buffer.name} views a tensor as {buffer.dtype}, but its elements are {element_of(argument.type)}",
                "copy the tensor to a tile of its own dtype and view the tile (T.view), or pass it as another dtype",
            )
        return argument

    def _window(
        self, buffer: Buffer, dims: list[Affine], order: Sequence[int], lows: Sequence[Extent], sizes: Sequence[Extent]
    ) -> Value:
        """The window of global memory that iterations `lows` to `lows + sizes` walk."""
        c = self.c
        offset: Extent = 0
        steps: dict[int, Extent] = dict.fromkeys(order, 0)
        for item, stride in zip(dims, buffer.strides, strict=True):
            step = c.index(stride)
            offset = ops.add_index(self.b, offset, ops.mul_index(self.b, c.index(item.rest), step))
            for axis, factor in item.factors.items():
                steps[axis] = ops.add_index(self.b, steps[axis], ops.mul_index(self.b, step, factor))
        extents: list[Extent] = list(c.extents(order))
        strides = [steps[axis] for axis in order]
        for low, step in zip(lows, strides, strict=True):
            offset = ops.add_index(self.b, offset, ops.mul_index(self.b, low, step))
        tile = ops.reinterpret(self.b, self._argument(buffer), offset, extents, strides)
        return ops.subview(self.b, tile, [0] * len(order), sizes)

    def _memory_scalar(self, expr: Expr, buffer: Buffer) -> Value:
        value = self.c.scalar(expr)
        return self.c.elementwise.cast(value, "bool", "int8") if buffer.dtype == "bool" else value

    def _as_memory(self, lanes: Lanes, buffer: Buffer) -> Lanes:
        if buffer.dtype != "bool":
            return lanes
        return Lanes(self.c.elementwise.cast(lanes.value, "bool", "int8"), lanes.axes)

    # ------------------------------------------------------------------------------------------------ stores

    def store(
        self,
        buffer: Buffer,
        indices: Sequence[Expr],
        lanes: Lanes,
        guard: Sequence[int] = (),
        *,
        atomic: str | None = None,
    ) -> None:
        """Writes (or atomically combines) an element for every iteration for which all conditions in force hold."""
        c = self.c
        c.check_dtype(buffer.dtype)
        self.forget()
        if buffer.storage in c.private:
            self._store_private(
                buffer, lanes if atomic is None else self._combined(buffer, indices, lanes, guard, atomic)
            )
            return
        window = Window()
        index_axes = frozenset().union(*map(c.axes_of, indices)) if indices else frozenset()
        dims = self._dims(buffer, indices, on_chip=is_on_chip(buffer))
        loops = set(self._loop_axes(dims, indices, buffer, guard, window))
        lanes = c.specialise(lanes)
        loops |= set(lanes.axes) - index_axes
        if atomic is not None:
            loops |= {axis for axis in range(len(c.axes)) if axis not in c.points} - index_axes
        if is_on_chip(buffer):
            for condition in c.conditions:
                loops |= set(c.specialise(condition.lanes).axes) - index_axes
        else:
            for condition in c.conditions:
                held = c.specialise(condition.lanes)
                if not held.axes:
                    value = held.value if condition.holds else c.elementwise.invert(held.value, "bool")
                    window.tests.append(value)
                elif not add_condition(c, window, condition.expr, condition.holds, condition.scalars):
                    loops |= set(held.axes)
        for axis in {*window.lows, *window.highs}:
            if axis not in index_axes:
                loops.add(axis)
        if dims is None or loops:
            self._scattered(buffer, indices, lanes, guard, atomic, sorted(loops))
            return
        if is_on_chip(buffer):
            # One block alone has it: what is left to see to is that no two iterations combine into one element at once.
            if atomic is not None:
                lanes = self._combined(buffer, indices, lanes, guard, atomic)
            self._store_on_chip(buffer, dims, lanes, window)
        else:
            self._store_global(buffer, indices, dims, lanes, window, atomic)

    def _combined(
        self, buffer: Buffer, indices: Sequence[Expr], lanes: Lanes, guard: Sequence[int], atomic: str
    ) -> Lanes:
        """What an element on the chip holds, combined with what an atomic brings."""
        c = self.c
        if atomic not in _COMBINED:
            raise c.unsupported(f"atomic {atomic} on the chip", "use atomic_add, atomic_max or atomic_min")
        held = self.load(Load(buffer.dtype, buffer, tuple(indices), tuple(guard)))
        (old, new), axes = c.together(held, lanes)
        return Lanes(c.elementwise.binary(_COMBINED[atomic], buffer.dtype, old, new), axes)

    def _store_private(self, buffer: Buffer, lanes: Lanes) -> None:
        c = self.c
        mask = c.condition_lanes()
        if mask is None:
            c.private[buffer.storage] = lanes
            return
        (m, new, old), axes = c.together(mask, lanes, c.private[buffer.storage])
        c.private[buffer.storage] = Lanes(ops.select(self.b, m, new, old), axes)

    def _scattered(
        self,
        buffer: Buffer,
        indices: Sequence[Expr],
        lanes: Lanes,
        guard: Sequence[int],
        atomic: str | None,
        loops: Sequence[int],
    ) -> None:
        c = self.c
        if not loops:
            raise NeedsLoop
        if not is_on_chip(buffer):

            def write(_: Value | None) -> None:
                self.store(buffer, indices, lanes, guard, atomic=atomic)

            self._looped(loops, None, write)
            return
        storage = buffer.storage
        if c.is_scalar(storage):
            raise NeedsLoop

        def replace(tensor: Value) -> Value:
            c.values[storage] = tensor
            self.store(buffer, indices, lanes, guard, atomic=atomic)
            return c.values[storage]

        c.values[storage] = self._looped(loops, c.current(storage), replace)

    def _store_on_chip(self, buffer: Buffer, dims: list[Affine], lanes: Lanes, window: Window) -> None:
        c = self.c
        lanes = self._as_memory(lanes, buffer)
        if window.lows or window.highs or window.tests:
            mask = self._window_mask(window)
        else:
            mask = c.condition_lanes()
        extra = c.condition_lanes() if (window.lows or window.highs or window.tests) else None
        if extra is not None and mask is not None:
            (x, y), axes = c.together(mask, extra)
            mask = Lanes(ops.arith(self.b, "andi", x, y), axes)
        if not isinstance(c.current(buffer.storage).type, Tensor):
            self._store_scalar(buffer, lanes, mask)
            return
        shape, dims = self._expanded(buffer, dims)
        offsets, sizes, strides, order = self._box(dims)
        ascending = sorted(order)
        static = [size for size in sizes if isinstance(size, int)]
        if not order:
            value = c.align(lanes, ())
            if mask is not None:
                old_element = ops.extract(self.b, c.tensor(buffer), offsets)
                value = ops.select(self.b, c.align(mask, ()), value, old_element)
            if all(extent == 1 for extent in c.shape(buffer)):
                c.set_tensor(buffer, ops.fill(self.b, value, c.shape(buffer)))
            else:
                c.set_tensor(buffer, ops.insert(self.b, value, c.tensor(buffer), offsets))
            return
        value = c.align(lanes, ascending)
        if mask is not None:
            held = ops.reshape(self.b, c.tensor(buffer), shape)
            old = ops.extract_slice(self.b, held, offsets, sizes, strides)
            previous = self._lanes(old, order)
            value = ops.select(self.b, c.align(mask, ascending), value, c.align(previous, ascending))
        value = ops.transpose(self.b, value, [ascending.index(axis) for axis in order])
        box = ops.reshape(self.b, value, static)
        whole = all(o == 0 for o in offsets) and static == shape and all(step == 1 for step in strides)
        if not whole:
            box = ops.insert_slice(self.b, box, ops.reshape(self.b, c.tensor(buffer), shape), offsets, strides)
        c.set_tensor(buffer, ops.reshape(self.b, box, c.shape(buffer)))

    def _window_mask(self, window: Window) -> Lanes | None:
        """A window as a condition of every iteration."""
        c = self.c
        total: Lanes | None = None
        test = window.test(c)
        if test is not None:
            total = Lanes(test)
        for axis in sorted({*window.lows, *window.highs}):
            low, size = window.bound(c, axis)
            high = ops.add_index(self.b, low, size)
            from core.codegen.mlir.types import I32

            counter = ops.iota(self.b, c.axes[axis].extent, I32)
            for predicate, limit in (("sge", low), ("slt", high)):
                bound = ops.index_cast(self.b, ops.index_value(self.b, limit), I32)
                inside = ops.compare(self.b, predicate, counter, ops.fill(self.b, bound, [c.axes[axis].extent]))
                if total is None:
                    total = Lanes(inside, (axis,))
                else:
                    (x, y), axes = c.together(total, Lanes(inside, (axis,)))
                    total = Lanes(ops.arith(self.b, "andi", x, y), axes)
        return total

    def _single(self, lanes: Lanes) -> Value:
        """The one element of lanes whose axes all have extent 1: a tile operation walks a scalar too."""
        c = self.c
        lanes = c.specialise(lanes)
        if any(c.axes[axis].extent != 1 for axis in lanes.axes):
            raise NeedsLoop
        return ops.extract(self.b, lanes.value, [0] * len(lanes.axes)) if lanes.axes else lanes.value

    def _store_scalar(self, buffer: Buffer, lanes: Lanes, mask: Lanes | None) -> None:
        c = self.c
        canonical = c.canonical[buffer.storage]
        value = self._single(lanes)
        if canonical.dtype == "bool":
            value = c.elementwise.cast(value, "int8", "bool")
        if canonical.dtype != buffer.dtype:
            value = c.elementwise.reinterpret(value, buffer.dtype, canonical.dtype)
        if mask is not None:
            value = ops.select(self.b, self._single(mask), value, c.current(buffer.storage))
        c.values[buffer.storage] = value

    def _store_global(
        self,
        buffer: Buffer,
        indices: Sequence[Expr],
        dims: list[Affine],
        lanes: Lanes,
        window: Window,
        atomic: str | None,
    ) -> None:
        c = self.c
        c.facts.stores += 1
        order = self._order(dims)
        ascending = sorted(order)
        lanes = self._as_memory(lanes, buffer)
        test = window.test(c)
        value = c.align(lanes, ascending)

        def write() -> list[Value]:
            if not order:
                self._write_element(buffer, indices, value, atomic)
                return []
            ranges = [window.bound(c, axis) for axis in order]
            lows, sizes = [low for low, _ in ranges], [size for _, size in ranges]
            tile = ops.transpose(self.b, value, [ascending.index(axis) for axis in order])
            part = ops.extract_slice(self.b, tile, lows, sizes, [1] * len(sizes))
            target = self._window(buffer, dims, order, lows, sizes)
            if atomic is None:
                ops.materialize(self.b, part, target)
            else:
                c.facts.atomics += 1
                c.dialect.atomic(self.b, atomic, part, target)
            return []

        if test is None:
            write()
        else:
            ops.if_else(self.b, test, write)

    def _write_element(self, buffer: Buffer, indices: Sequence[Expr], value: Value, atomic: str | None) -> None:
        offset = self.offset(buffer, indices)
        if atomic is None:
            ops.store(self.b, value, self._argument(buffer), offset)
            return
        self.c.facts.atomics += 1
        place = ops.reinterpret(self.b, self._argument(buffer), offset, [1], [1])
        self.c.dialect.atomic(self.b, atomic, ops.fill(self.b, value, [1]), place)
