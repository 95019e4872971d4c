"""Launches that overlap on a stream: each waits by itself for the one in front of it, as late as it may.

A launch normally starts when everything in front of it on its stream has ended, a microsecond of an idle chip each
time. From compute capability 9.0 on, one may be queued so that its blocks start when those in front have ended or have
let it (programmatic dependent launch); what is in front of its wait, setting up barriers and fetching descriptors, then
happens while the one in front drains. The wait is put into the lowered device code, before the first statement that
could touch global memory, and outside every condition, so that no access of any thread is in front of it. Since every
launch waits, for the end of the one in front and for all that it wrote, what a stream promises holds as before.

Blocks let the next launch start early only where there are more of them than the chip holds at a time, and then only
those that can be among the last. A launch whose blocks all start together ends at once, and its blocks lie on the chip
as the next one's shall: blocks that start one by one, where there is room, end up two on one unit beside an idle one.
And letting the next start costs a unit 160 ns a block, measured on an H200, which only shows when every block does it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any

#: Calls that read and write no global memory. Anything else is taken to.
_HARMLESS = frozenset(
    {
        "tirx.bitwise_and",
        "tirx.bitwise_or",
        "tirx.bitwise_xor",
        "tirx.handle_add_byte_offset",
        "tirx.if_then_else",
        "tirx.ptx_init_barrier_thread_count",
        "tirx.shift_left",
        "tirx.shift_right",
        "tl.block_rank_in_cluster",
        "tl.prefetch_tma_descriptor",
        "tl.ptx_fence_barrier_init",
        "tl.tl_shuffle_elect",
    }
)
_SYNC = "tirx.tvm_storage_sync"
_SYNC_SCOPES = ("shared", "shared.dyn", "warp", "cluster")
#: Attributes of device functions: they wait for the launch in front; they have a barrier over the grid; bytes.
WAITS, COOPERATIVE, SHARED = "has_cuda_pdl_sync", "use_cooperative_groups", "dyn_shared_memory_buf"

_GRID = "blockIdx"

#: From a block's threads and bytes of dynamic shared memory, how many of them the chip holds at most; None if unknown.
Room = Callable[[int, int], int | None]


def with_waits(device_module: Any, room: Room) -> Any:
    """The module with a wait in every device function that can be launched early, marked with `WAITS`.

    A function that has one keeps it; one with a barrier over the grid, whose blocks must all be there at once, is left
    as it is, and so is one without access to global memory.

    Assumes: a device function's body is allocations, bindings, `thread_extent` attributes and sequences down to the
    statements that all threads run; the operations `tl.pdl_trigger` and `tl.pdl_sync`, which code generation for CUDA
    writes as the runtime's device functions.
    """
    from tilelang import tvm

    module = tvm.IRModule(device_module.functions, attrs=device_module.attrs)
    for variable, function in device_module.functions.items():
        attrs = function.attrs
        if attrs.get(WAITS, 0) or attrs.get(COOPERATIVE, 0):
            continue
        body = _Waiting(room, attrs.get(SHARED, 0), dict(attrs.get("thread_extent", {}))).rewritten(function.body)
        if body is not None:
            module.update_func(variable, function.with_body(body).with_attr(WAITS, 1))
    return module


@dataclass
class _Waiting:
    """Puts the wait into one function's body.

    Attributes:
        shared: bytes of dynamic shared memory, or an expression.
        extents: of the grid and of a block, by tag.
        blocks: index and extent of the grid's axes, as they are met on the way down.
    """

    room: Room
    shared: Any
    extents: dict[str, Any]
    blocks: list[tuple[Any, Any]] = field(default_factory=list)

    def rewritten(self, stmt: Any) -> Any | None:
        """The statement with a wait as late as possible; None where it needs none."""
        from tvm import tirx

        if isinstance(stmt, tirx.AttrStmt) and stmt.attr_key in ("thread_extent", "tl.assume"):
            if stmt.attr_key == "thread_extent" and stmt.node.thread_tag.startswith(_GRID):
                self.blocks.append((stmt.node.var, stmt.value))
            body = self.rewritten(stmt.body)
            return None if body is None else tirx.AttrStmt(stmt.node, stmt.attr_key, stmt.value, body)
        if isinstance(stmt, tirx.SeqStmt):
            sequence = list(stmt.seq)
            for index, inner in enumerate(sequence):
                waiting = self.rewritten(inner)
                if waiting is not None:
                    return tirx.SeqStmt([*sequence[:index], waiting, *sequence[index + 1 :]])
            return None
        return None if _is_harmless(stmt) else tirx.SeqStmt([*self._lets_start(), _evaluate("tl.pdl_sync"), stmt])

    def _lets_start(self) -> list[Any]:
        """Lets the next launch start, by the blocks that may be among the last to be there."""
        from tvm import arith, tirx

        threads = prod(int(extent) for tag, extent in self.extents.items() if not tag.startswith(_GRID))
        axes = sum(tag.startswith(_GRID) for tag in self.extents)
        known = isinstance(self.shared, int | tirx.IntImm) and len(self.blocks) == axes
        most = self.room(threads, int(self.shared)) if known else None
        if most is None:
            return []
        index: Any = 0
        for variable, extent in reversed(self.blocks):
            index = index * extent + variable
        total: Any = prod((extent for _, extent in self.blocks), start=tirx.IntImm("int32", 1))
        last = tirx.all(total > most, index >= total - most)
        condition = arith.Analyzer().simplify(last)
        if isinstance(condition, tirx.IntImm):
            return [_evaluate("tl.pdl_trigger")] if int(condition) else []
        return [tirx.IfThenElse(condition, _evaluate("tl.pdl_trigger"), None)]


def _evaluate(name: str) -> Any:
    from tvm import tirx

    return tirx.Evaluate(tirx.call_intrin("void", tirx.op.Op.get(name)))


def _is_harmless(stmt: Any) -> bool:
    """Whether nothing in the statement can touch global memory."""
    from tvm import ir, tirx

    touches: list[Any] = []

    def visit(node: Any) -> None:
        if isinstance(node, tirx.BufferLoad | tirx.BufferStore):
            if node.buffer.scope() == "global":
                touches.append(node)
        elif isinstance(node, tirx.Call) and not _is_harmless_call(node, ir):
            touches.append(node)

    tirx.stmt_functor.post_order_visit(stmt, visit)
    return not touches


def _is_harmless_call(call: Any, ir: Any) -> bool:
    name = str(call.op.name) if isinstance(call.op, ir.Op) else ""
    if name == _SYNC:
        return str(getattr(call.args[0], "value", "")) in _SYNC_SCOPES
    return name in _HARMLESS
