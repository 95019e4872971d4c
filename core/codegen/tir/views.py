"""Pipelined loops whose tiles are used through views.

A pipelined loop keeps a version of each tile for every stage, so that the copies of later rounds do not overwrite what
this one still reads. TileLang gives versions to buffers, not to memory: a tile that is filled or read through a view
(`T.reshape`, `T.view`, `T.Tensor(..., tile.data)`) keeps one version, and the copies ahead overwrite it. Confirmed in
the code that TileLang 0.1.15 generates, with bulk and asynchronous copies and with synchronous ones. Such a loop is not
pipelined here. A tile that the loop only reads has one version anyway; with one stage nothing is copied ahead.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from core.codegen.tir.rebuild import unpipelined
from core.program.effects import statement_effects
from core.program.nodes import Buffer, For, Launch, Scope, Storage
from core.program.walk import statements

#: Calls that name a place of a buffer: an address may be written through, a region says how it is used.
_ADDRESSES = ("tirx.address_of", "tl.access_ptr")
_REGIONS = ("tl.tileop.region", "tl.region")
_WRITTEN = 2


def viewed_tiles(launch: Launch) -> Iterator[tuple[For, Buffer]]:
    """The pipelined loops that fill a shared tile and use it through a view, with the view."""
    allocations: dict[Storage, Buffer] = {}
    for buffer in launch.buffers:
        allocations.setdefault(buffer.storage, buffer)
    for loop in statements(launch.body):
        if not isinstance(loop, For) or (loop.num_stages < 2 and "tl_pipeline_stage" not in loop.annotations):
            continue
        touched: list[Buffer] = []
        filled: set[Storage] = set()
        for stmt in statements(loop.body):
            reads, writes = statement_effects(stmt)
            touched += [buffer for buffer in (*reads, *writes) if buffer.scope is Scope.SHARED]
            filled |= {buffer.storage for buffer in writes}
        for buffer in touched:
            if buffer.storage in filled and buffer is not allocations.get(buffer.storage):
                yield loop, buffer
                break


def without_pipeline(prim_func: Any) -> tuple[Any, list[Any]]:
    """Takes the stages from the loops that :func:`viewed_tiles` finds, and gives their variables too. Keeps spans."""
    from tvm import tirx

    allocated: list[Any] = []
    loops: list[Any] = []

    def note(node: Any) -> None:
        if type(node).__name__ == "SBlock":
            allocated.extend(node.alloc_buffers)

    tirx.stmt_functor.post_order_visit(prim_func.body, note)

    def serial(loop: Any) -> Any:
        overlaps = int(loop.annotations.get("num_stages", 0)) >= 2 or "tl_pipeline_stage" in loop.annotations
        if not overlaps or not _fills_a_viewed_tile(loop, allocated):
            return None
        loops.append(loop.loop_var)
        return unpipelined(loop)

    body = tirx.stmt_functor.ir_transform(prim_func.body, None, serial, ["tirx.For"])
    return prim_func.with_body(body, prim_func.span), loops


def _fills_a_viewed_tile(loop: Any, allocated: Collection[Any]) -> bool:
    """Whether a loop writes shared memory that it also uses through a buffer other than the one allocated."""
    from tvm import tirx

    viewed: list[Any] = []
    written: list[Any] = []

    def note(node: Any) -> None:
        kind = type(node).__name__
        if kind in ("BufferStore", "BufferLoad"):
            buffer = node.buffer
            if str(buffer.scope()).startswith("shared") and not any(buffer.same_as(one) for one in allocated):
                viewed.append(buffer.data)
            if kind == "BufferStore":
                written.append(buffer.data)
        elif kind == "Call":
            name = str(getattr(node.op, "name", ""))
            if name in _ADDRESSES or (name in _REGIONS and int(node.args[1]) & _WRITTEN):
                written.append(node.args[0].buffer.data)

    tirx.stmt_functor.post_order_visit(loop.body, note)
    return any(one.same_as(other) for one in viewed for other in written)
