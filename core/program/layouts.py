"""Tensors that a kernel keeps in another order (`T.annotate_layout` of a tensor of global memory).

A layout maps the indices that the kernel writes to those of a row-major buffer over the same memory. Here every access
of a launch becomes one of that buffer, so that no family need know of layouts: elements with their indices mapped,
tiles element by element. What is outside is told from the kernel's own indices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from core.errors import Location, UnsupportedOp
from core.program import walk
from core.program.expressions import add, cast, constant, is_float
from core.program.nodes import (
    AtomicElement,
    AtomicExpr,
    AtomicTile,
    Buffer,
    Choose,
    Compare,
    CompareOp,
    Const,
    Copy,
    Expr,
    Fill,
    If,
    Load,
    Logical,
    LogicalOp,
    Parallel,
    Region,
    Stmt,
    Storage,
    Store,
    Var,
    VarKind,
)


@dataclass(frozen=True, slots=True)
class GlobalLayout:
    """How one tensor is kept.

    Attributes:
        logical: the tensor as the kernel declares it.
        physical: the row-major buffer over its memory.
        variables: what the indices of an element are called in `index`.
        index: the element's indices in `physical`.
    """

    logical: Buffer
    physical: Buffer
    variables: tuple[Var, ...]
    index: tuple[Expr, ...]


def laid_out(body: tuple[Stmt, ...], layouts: Mapping[Storage, GlobalLayout]) -> tuple[Stmt, ...]:
    """The statements with every access of these tensors made where their layouts put the element.

    Raises:
        UnsupportedOp: a tensor of these used through a view, as an operand of what is no copy, fill or atomic, or at an
            index that has an effect.
    """
    return tuple(map(_Accesses(layouts).statement, body)) if layouts else body


class _Accesses:
    def __init__(self, layouts: Mapping[Storage, GlobalLayout]) -> None:
        self.layouts = layouts
        self.location: Location | None = None

    # -- statements --------------------------------------------------------------------------------------------------

    def statement(self, stmt: Stmt) -> Stmt:
        self.location = stmt.location or self.location
        concerned = any(region.buffer.storage in self.layouts for region in walk.regions(stmt))
        match stmt:
            case Copy() if concerned:
                return self._copy(stmt)
            case Fill() if concerned:
                variables = self._counters(stmt.dst.extents)
                indices = _walked(stmt.dst, range(len(variables)), variables)
                store = Store(stmt.dst.buffer, indices, stmt.value, stmt.guard, location=stmt.location)
                return self._each(variables, stmt.dst.extents, store)
            case AtomicTile() if concerned:
                return self._atomic_tile(stmt)
            case Store(buffer=buffer, indices=indices, guard=guard) if buffer.storage in self.layouts:
                moved = self._moved(buffer, indices)
                value = self._mapped(stmt.value)
                return self._where(
                    buffer, indices, guard, replace(stmt, buffer=moved[0], indices=moved[1], value=value, guard=())
                )
            case AtomicElement(target=target) if target.buffer.storage in self.layouts:
                buffer, indices = self._moved(target.buffer, target.indices)
                made = replace(stmt, target=Load(target.dtype, buffer, indices), value=self._mapped(stmt.value))
                return self._where(target.buffer, target.indices, target.guard, made)
        if concerned:
            raise UnsupportedOp(
                f"{type(stmt).__name__.lower()} of a tensor with a layout of its own (T.annotate_layout)",
                hint="copy the tile into a T.alloc_shared buffer first",
                location=self.location,
            )
        changed: Stmt = self._mapped(stmt)
        return changed

    def _copy(self, stmt: Copy) -> Stmt:
        variables = self._counters(stmt.extents)
        source = _walked(stmt.src, stmt.src_dims, variables)
        target = _walked(stmt.dst, stmt.dst_dims, variables)
        value: Expr = cast(Load(stmt.src.buffer.dtype, stmt.src.buffer, source), stmt.dst.buffer.dtype)
        inside = _inside(stmt.src.buffer, source, stmt.src_guard)
        if inside is not None:
            value = Choose(value.dtype, inside, value, stmt.fill)
        store = Store(stmt.dst.buffer, target, value, location=stmt.location)
        return self._each(variables, stmt.extents, _where(stmt.dst.buffer, target, stmt.dst_guard, store))

    def _atomic_tile(self, stmt: AtomicTile) -> Stmt:
        variables = self._counters(stmt.extents)
        target = _walked(stmt.dst, stmt.dst_dims, variables)
        value, dtype = stmt.value, stmt.dst.buffer.dtype
        inside = None
        if isinstance(value, Region):
            source = _walked(value, stmt.value_dims, variables)
            inside = _inside(value.buffer, source, stmt.value_guard)
            value = Load(value.buffer.dtype, value.buffer, source)
        element = Load(dtype, stmt.dst.buffer, target)
        one: Stmt = AtomicElement(stmt.kind, element, cast(value, dtype), stmt.order, location=stmt.location)
        if inside is not None:
            one = If(inside, (one,), location=stmt.location)
        return self._each(variables, stmt.extents, _where(stmt.dst.buffer, target, stmt.guard, one))

    @staticmethod
    def _counters(extents: Sequence[Expr]) -> tuple[Var, ...]:
        return tuple(Var("int32", f"e{number}", VarKind.PARALLEL) for number in range(len(extents)))

    def _each(self, variables: tuple[Var, ...], extents: Sequence[Expr], stmt: Stmt) -> Stmt:
        """The statement for every element of a box, its own accesses moved."""
        moved = self.statement(stmt)
        return Parallel(variables, tuple(extents), (moved,), location=stmt.location) if variables else moved

    def _where(self, buffer: Buffer, indices: Sequence[Expr], guard: Sequence[int], stmt: Stmt) -> Stmt:
        return _where(buffer, tuple(self._mapped(index) for index in indices), guard, stmt)

    # -- expressions -------------------------------------------------------------------------------------------------

    def _mapped(self, node: Any) -> Any:
        """A node, or a tuple of nodes, with every load inside of it moved."""
        if isinstance(node, tuple):
            made = tuple(self.statement(item) if isinstance(item, Stmt) else self._mapped(item) for item in node)
            return node if all(a is b for a, b in zip(node, made, strict=True)) else made
        if isinstance(node, Buffer | Storage | Var | Location) or not hasattr(node, "__dataclass_fields__"):
            return node
        if isinstance(node, AtomicExpr) and node.target.buffer.storage in self.layouts:
            buffer, indices = self._moved(node.target.buffer, node.target.indices)
            target = Load(node.target.dtype, buffer, indices)
            return replace(node, target=target, value=self._mapped(node.value))
        if isinstance(node, Load) and node.buffer.storage in self.layouts:
            buffer, indices = self._moved(node.buffer, node.indices)
            inside = _inside(node.buffer, tuple(map(self._mapped, node.indices)), node.guard)
            load = Load(node.dtype, buffer, indices)
            if inside is None:
                return load
            fill = node.fill or Const(node.dtype, 0.0 if is_float(node.dtype) else 0)
            return Choose(node.dtype, inside, load, self._mapped(fill))
        changes = {}
        for field in fields(node):
            before = getattr(node, field.name)
            after = self._mapped(before)
            if after is not before:
                changes[field.name] = after
        return replace(node, **changes) if changes else node

    def _moved(self, buffer: Buffer, indices: Sequence[Expr]) -> tuple[Buffer, tuple[Expr, ...]]:
        """Where an element is."""
        layout = self.layouts[buffer.storage]
        if buffer is not layout.logical:
            raise UnsupportedOp(
                f"{buffer.name} is a view of {layout.logical.name}, which has a layout of its own (T.annotate_layout)",
                hint=f"use {layout.logical.name} itself, or lay it out by writing the indices",
                location=self.location,
            )
        if any(isinstance(item, AtomicExpr) for index in indices for item in walk.subexpressions(index)):
            raise UnsupportedOp(
                f"an atomic in an index of {buffer.name}, which has a layout of its own (T.annotate_layout)",
                hint="bind the atomic's value to a variable first",
                location=self.location,
            )
        known = {
            var: cast(self._mapped(index), var.dtype) for var, index in zip(layout.variables, indices, strict=True)
        }
        return layout.physical, tuple(_substituted(expr, known) for expr in layout.index)


def _substituted(node: Any, known: Mapping[Var, Expr]) -> Any:
    if isinstance(node, Var):
        return known.get(node, node)
    changes = {}
    for field in fields(node):
        before = getattr(node, field.name)
        if isinstance(before, Expr):
            changes[field.name] = _substituted(before, known)
        elif isinstance(before, tuple):
            changes[field.name] = tuple(_substituted(item, known) for item in before)
    return replace(node, **changes) if changes else node


def _walked(region: Region, dims: Sequence[int], variables: Sequence[Var]) -> tuple[Expr, ...]:
    indices = list(region.mins)
    for dim, var in zip(dims, variables, strict=True):
        indices[dim] = add(indices[dim], var)
    return tuple(indices)


def _inside(buffer: Buffer, indices: Sequence[Expr], guard: Sequence[int]) -> Expr | None:
    """Whether an element is inside of a buffer; None where nothing is to be tested."""
    total: Expr | None = None
    for dim in guard:
        index, size = indices[dim], buffer.shape[dim]
        low = Compare("bool", CompareOp.GE, index, constant(0, index.dtype))
        high = Compare("bool", CompareOp.LT, index, cast(size, index.dtype))
        for test in (low, high):
            total = test if total is None else Logical("bool", LogicalOp.AND, total, test)
    return total


def _where(buffer: Buffer, indices: Sequence[Expr], guard: Sequence[int], stmt: Stmt) -> Stmt:
    inside = _inside(buffer, indices, guard)
    return stmt if inside is None else If(inside, (stmt,), location=stmt.location)
