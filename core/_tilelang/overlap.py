"""Launches that overlap on a stream: a kernel is set up while the one in front of it still drains.

A launch normally starts when everything in front of it on its stream has ended, which leaves the chip idle for about a
microsecond each time. From compute capability 9.0 on it may be queued so that its blocks start earlier (programmatic
dependent launch). What the stream promised by itself is then up to the kernel, in two operations:

* The wait (`tl.pdl_sync`) returns when the launch in front has ended and all that it wrote can be read. It is put into
  the lowered device code as late as possible: before the first statement that could touch global memory, and outside
  every condition, so that no thread touches memory without it. What comes before it, setting up barriers and fetching
  descriptors, overlaps with the launch in front.
* The trigger (`tl.pdl_trigger`) is how a block lets the next launch start. That happens when every block of this one
  has triggered or ended.

The order of a stream holds because every block waits: a launch cannot end before the one in front of it has, nor that
one before its own predecessor. A launch that is started early and has a block that does not wait breaks this chain. It
may end first, and the launch behind it waits for nothing else.

Triggers are only put where a launch has more blocks than the chip holds at a time, and only into those blocks that can
be among the last to start:

* If all blocks of a launch start together, they also end together, and each unit has as many of them as of the next
  launch. Blocks of the next one that started one by one, wherever there is room, would share a unit while another has
  none.
* A trigger costs time in every block that executes it: docs/launching.md has a launch of 16384 short blocks that takes
  16% longer when all of them do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any

#: Calls that read and write no global memory. Every other call is assumed to.
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
#: Attributes of device functions: it waits for the launch in front; it has a barrier over the grid; bytes of dynamic
#: shared memory.
WAITS, COOPERATIVE, SHARED = "has_cuda_pdl_sync", "use_cooperative_groups", "dyn_shared_memory_buf"

_GRID, _CLUSTER = "blockIdx", "tir.cluster_dim"
_WAIT, _TRIGGER = "tl.pdl_sync", "tl.pdl_trigger"

#: How many blocks of so many threads and bytes of dynamic shared memory the chip holds at most; None if unknown.
Room = Callable[[int, int], int | None]


def with_waits(device_module: Any, room: Room | None) -> Any:
    """The module for a launch of ours, which starts a function early when it is marked with `WAITS`.

    A function that waits by itself (`T.pdl_sync`) keeps its wait, and gets another if not every block comes to it. Of
    the others each gets a wait and is marked, except:

    * all of them where `room` is None: launches are not to overlap;
    * a function with a barrier over the grid, whose blocks must all be there at once;
    * a function without access to global memory;
    * a function with reads that the compiler may move before the wait, because what they read never changes: `T.__ldg`,
      and source text of its own, which may hold any.

    Assumes: a device function's body is allocations, bindings, `thread_extent` attributes and sequences down to the
    statements that all threads run; the operations `tl.pdl_trigger` and `tl.pdl_sync`, which code generation for CUDA
    writes as the runtime's device functions; source text is an attribute `pragma_import_c`.
    """

    def body(function: Any) -> Any | None:
        if function.attrs.get(WAITS, 0):
            return _waiting_everywhere(function.body)
        if room is None or function.attrs.get(COOPERATIVE, 0) or _any(function.body, _may_read_early):
            return None
        return _waiting(function, room)

    return _changed(device_module, body)


def with_waits_for_tvm(device_module: Any) -> Any:
    """The module for a launch by TVM's runtime, which starts two kinds of functions early: they wait in every block.

    These are functions that wait by themselves, and all that are launched in clusters, whatever they hold.
    """
    from tvm import tirx

    def body(function: Any) -> Any | None:
        if function.attrs.get(WAITS, 0):
            return _waiting_everywhere(function.body)
        if not any(str(tag).startswith(_CLUSTER) for tag in function.attrs["tirx.kernel_launch_params"]):
            return None
        waiting = _waiting(function, lambda threads, shared_bytes: None)
        return tirx.SeqStmt([_evaluate(_WAIT), function.body]) if waiting is None else waiting

    return _changed(device_module, body)


def _changed(device_module: Any, body: Callable[[Any], Any | None]) -> Any:
    """The module with other bodies, each with a wait; None leaves a function as it is."""
    from tilelang import tvm

    module = tvm.IRModule(device_module.functions, attrs=device_module.attrs)
    for variable, function in device_module.functions.items():
        found = body(function)
        if found is not None:
            module.update_func(variable, function.with_body(found).with_attr(WAITS, 1))
    return module


def _waiting(function: Any, room: Room) -> Any | None:
    """The body of a function without a wait, with one; None where it does not touch global memory."""
    attrs = function.attrs
    return _Waiting(room, attrs.get(SHARED, 0), dict(attrs.get("thread_extent", {}))).rewritten(function.body)


def _waiting_everywhere(body: Any) -> Any | None:
    """The body of a function that waits by itself, with another wait; None where every block comes to its own.

    Its blocks may read early, as its author decided, but none may end early. So the wait is the last statement, or the
    first where a block may return on the way.
    """
    from tvm import tirx

    if _always_waits(body):
        return None
    wait = _evaluate(_WAIT)
    return tirx.SeqStmt([wait, body] if _any(body, _is_return) else [body, wait])


def _always_waits(stmt: Any) -> bool:
    """Whether all threads come to a wait."""
    from tvm import tirx

    if isinstance(stmt, tirx.AttrStmt):
        return _always_waits(stmt.body)
    if isinstance(stmt, tirx.SeqStmt):
        for inner in stmt.seq:
            if _always_waits(inner):
                return True
            if _any(inner, _is_return):
                return False
    return isinstance(stmt, tirx.Evaluate) and _called(stmt.value) == _WAIT


@dataclass
class _Waiting:
    """Puts the wait into one function's body.

    Attributes:
        room: decides whether blocks trigger, and which.
        shared: bytes of dynamic shared memory, or an expression.
        extents: of the grid and of a block, by tag.
        blocks: index and extent of the grid's axes by tag, as they are met on the way down.
    """

    room: Room
    shared: Any
    extents: dict[str, Any]
    blocks: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    def rewritten(self, stmt: Any) -> Any | None:
        """The statement with a wait as late as possible; None where it needs none."""
        from tvm import tirx

        if isinstance(stmt, tirx.AttrStmt) and stmt.attr_key in ("thread_extent", "tl.assume"):
            if stmt.attr_key == "thread_extent" and stmt.node.thread_tag.startswith(_GRID):
                self.blocks[str(stmt.node.thread_tag)] = stmt.node.var, stmt.value
            body = self.rewritten(stmt.body)
            return None if body is None else tirx.AttrStmt(stmt.node, stmt.attr_key, stmt.value, body)
        if isinstance(stmt, tirx.SeqStmt):
            sequence = list(stmt.seq)
            for index, inner in enumerate(sequence):
                waiting = self.rewritten(inner)
                if waiting is not None:
                    return tirx.SeqStmt([*sequence[:index], waiting, *sequence[index + 1 :]])
            return None
        return tirx.SeqStmt([*self._trigger(), _evaluate(_WAIT), stmt]) if _any(stmt, _touches) else None

    def _trigger(self) -> list[Any]:
        """The trigger, under the condition that a block may be among the last to start; nothing where none triggers."""
        from tvm import arith, tirx

        most = self._most_at_once()
        if most is None:
            return []
        index, total = self._index_and_total()
        condition = arith.Analyzer().simplify(tirx.all(total > most, index >= total - most))
        if isinstance(condition, tirx.IntImm):
            return [_evaluate(_TRIGGER)] if int(condition) else []
        return [tirx.IfThenElse(condition, _evaluate(_TRIGGER), None)]

    def _most_at_once(self) -> int | None:
        """Blocks that the chip holds at most; None where that is unknown, or not every axis of the grid was met."""
        from tvm import tirx

        threads = prod(int(extent) for tag, extent in self.extents.items() if not tag.startswith(_GRID))
        axes = sum(tag.startswith(_GRID) for tag in self.extents)
        known = isinstance(self.shared, int | tirx.IntImm) and len(self.blocks) == axes
        return self.room(threads, int(self.shared)) if known else None

    def _index_and_total(self) -> tuple[Any, Any]:
        """A block's place in the order in which blocks are started, and how many there are."""
        from tvm import tirx

        blocks = [self.blocks[tag] for tag in sorted(self.blocks)]
        if all(isinstance(extent, tirx.IntImm) for _, extent in blocks) and prod(int(e) for _, e in blocks) >= 1 << 31:
            blocks = [(variable.astype("int64"), extent.astype("int64")) for variable, extent in blocks]
        # Extents known only at launch are multiplied in int32. Should that overflow, other blocks trigger, which costs
        # time and nothing else.
        index: Any = 0
        for variable, extent in reversed(blocks):
            index = index * extent + variable
        return index, prod((extent for _, extent in blocks[1:]), start=blocks[0][1])


def _evaluate(name: str) -> Any:
    from tvm import tirx

    return tirx.Evaluate(tirx.call_intrin("void", tirx.op.Op.get(name)))


def _any(stmt: Any, found: Callable[[Any], bool]) -> bool:
    """Whether a statement or expression in it is what is looked for."""
    from tvm import tirx

    hits: list[Any] = []
    tirx.stmt_functor.post_order_visit(stmt, lambda node: hits.append(node) if found(node) else None)
    return bool(hits)


def _touches(node: Any) -> bool:
    """Whether it may read or write global memory, or leave the kernel."""
    from tvm import tirx

    if isinstance(node, tirx.BufferLoad | tirx.BufferStore):
        return not str(node.buffer.scope()).startswith(("shared", "local"))
    if not isinstance(node, tirx.Call):
        return False
    name = _called(node)
    if name == _SYNC:
        return str(getattr(node.args[0], "value", "")) not in _SYNC_SCOPES
    return name not in _HARMLESS


def _may_read_early(node: Any) -> bool:
    """Whether it may read memory that the compiler takes to never change, and so may read before the wait.

    TileLang refuses `T.__ldg` in kernels that wait; source text may hold anything.
    """
    from tvm import tirx

    if isinstance(node, tirx.AttrStmt):
        return str(node.attr_key) == "pragma_import_c"
    if not isinstance(node, tirx.Call):
        return False
    name = _called(node)
    return name == "tl.__ldg" or (
        name in ("tirx.call_extern", "tirx.call_pure_extern") and "__ld" in str(getattr(node.args[0], "value", ""))
    )


def _is_return(node: Any) -> bool:
    return _called(node) in ("tirx.ret", "tirx.thread_return")


def _called(node: Any) -> str:
    """The operation that a call calls; empty for anything else."""
    from tvm import ir, tirx

    return str(node.op.name) if isinstance(node, tirx.Call) and isinstance(node.op, ir.Op) else ""
