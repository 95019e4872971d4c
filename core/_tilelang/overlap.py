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

_GRID, _CLUSTER = "blockIdx", "tir.cluster_dim"
_WAIT, _START_NEXT = "tl.pdl_sync", "tl.pdl_trigger"

#: From a block's threads and bytes of dynamic shared memory, how many of them the chip holds at most; None if unknown.
Room = Callable[[int, int], int | None]


def with_waits(device_module: Any, room: Room) -> Any:
    """The module with a wait in every device function that can be launched early, marked with `WAITS`.

    Left as they are: a function with a barrier over the grid, whose blocks must all be there at once; one without
    access to global memory; one that reads past the wait, as what never changes (`T.__ldg`), or may, in source text of
    its own. A function that waits by itself keeps its wait, and gets another if not every block comes to it.

    Assumes: a device function's body is allocations, bindings, `thread_extent` attributes and sequences down to the
    statements that all threads run; the operations `tl.pdl_trigger` and `tl.pdl_sync`, which code generation for CUDA
    writes as the runtime's device functions; source text is an attribute `pragma_import_c`.
    """

    def body(function: Any) -> Any | None:
        if function.attrs.get(COOPERATIVE, 0) or _any(function.body, _is_out_of_sight):
            return None
        return _waiting(function, room)

    return _changed(device_module, body)


def with_waits_in_clusters(device_module: Any) -> Any:
    """The module with a wait in every device function that is launched in clusters, whatever else it holds.

    For launches by TVM's runtime, which lets those in clusters start early, whether they wait or not.
    """
    from tvm import tirx

    def body(function: Any) -> Any | None:
        if not any(str(tag).startswith(_CLUSTER) for tag in function.attrs["tirx.kernel_launch_params"]):
            return None
        waiting = _waiting(function, lambda threads, shared_bytes: None)
        if waiting is None and not function.attrs.get(WAITS, 0):
            return tirx.SeqStmt([_evaluate(_WAIT), function.body])
        return waiting

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
    """A function's body with a wait that every block comes to; None where it needs no other than it has."""
    from tvm import tirx

    body, attrs = function.body, function.attrs
    if not attrs.get(WAITS, 0):
        return _Waiting(room, attrs.get(SHARED, 0), dict(attrs.get("thread_extent", {}))).rewritten(body)
    if _always_waits(body):
        return None
    # Its blocks may read early, but must not end early: the launch behind it may wait for it alone.
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
        return tirx.SeqStmt([*self._lets_start(), _evaluate(_WAIT), stmt]) if _any(stmt, _touches) else None

    def _lets_start(self) -> list[Any]:
        """Lets the next launch start, by the blocks that may be among the last to be there."""
        from tvm import arith, tirx

        threads = prod(int(extent) for tag, extent in self.extents.items() if not tag.startswith(_GRID))
        axes = sum(tag.startswith(_GRID) for tag in self.extents)
        known = isinstance(self.shared, int | tirx.IntImm) and len(self.blocks) == axes
        most = self.room(threads, int(self.shared)) if known else None
        if most is None:
            return []
        blocks = [self.blocks[tag] for tag in sorted(self.blocks)]
        if all(isinstance(extent, tirx.IntImm) for _, extent in blocks) and prod(int(e) for _, e in blocks) >= 1 << 31:
            blocks = [(variable.astype("int64"), extent.astype("int64")) for variable, extent in blocks]
        # Of extents known at launch only, int32 will do: should their product not be one, others let the next start.
        index: Any = 0
        for variable, extent in reversed(blocks):
            index = index * extent + variable
        total: Any = prod((extent for _, extent in blocks[1:]), start=blocks[0][1])
        condition = arith.Analyzer().simplify(tirx.all(total > most, index >= total - most))
        if isinstance(condition, tirx.IntImm):
            return [_evaluate(_START_NEXT)] if int(condition) else []
        return [tirx.IfThenElse(condition, _evaluate(_START_NEXT), None)]


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


def _is_out_of_sight(node: Any) -> bool:
    """Whether it may read memory as what never changes, which need not stay behind the wait.

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
