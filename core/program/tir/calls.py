"""Statements that are a call made for its effect."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from core.program import expressions as view
from core.program.nodes import Assert, AtomicElement, Break, Continue, Expr, Print, Stmt, Sync, ThreadReturn
from core.program.tir.context import Context
from core.program.tir.expressions import convert, convert_all
from core.program.tir.intrinsics import convert_call_name
from core.program.tir.pointers import pointed_run
from core.program.tir.tileops import as_bool, convert_tile_operator

_BARRIERS = frozenset({"tirx.tvm_storage_sync", "tl.sync_warp"})

#: Calls without a meaning here: copies are complete where they stand, registers are nobody's business.
_NOTHING = frozenset(
    {
        "tirx.ptx_commit_group",
        "tirx.ptx_wait_group",
        "tl.set_max_nreg",
        "tl.no_set_max_nreg",
        "tl.annotate_producer_reg_dealloc",
        "tl.annotate_consumer_reg_alloc",
    }
)


def evaluate(context: Context, stmt: Any, out: list[Stmt], assumptions: ExitStack) -> None:
    """Appends the statements of an Evaluate; what `T.assume` says goes to `assumptions`."""
    call = stmt.value
    if type(call).__name__ != "Call":
        if type(call).__name__ not in ("IntImm", "FloatImm", "StringImm", "Var"):
            out.append(context.opaque_stmt("Evaluate", str(call)))
        return
    name = convert_call_name(call)
    location = context.location
    if name in _BARRIERS:
        out.append(Sync(location=location))
    elif name in ("tirx.break_loop", "tl.loop_break"):
        out.append(Break(location=location))
    elif name == "tirx.continue_loop":
        out.append(Continue(location=location))
    elif name == "tirx.thread_return":
        out.append(ThreadReturn(location=location))
    elif name == "tirx.assume":
        context.prover.assume(assumptions, call.args[0])
    elif name in _NOTHING:
        pass
    elif name in ("tl.device_assert", "tl.device_assert_with_msg"):
        message = str(call.args[1].value).split("\n")[0] if len(call.args) > 1 else ""  # its own file and line follow
        out.append(Assert(as_bool(convert(context, call.args[0])), message, True, location=location))
    elif name == "tirx.call_extern":
        out.append(_extern(context, call))
    elif name in _ATOMICS:
        out.extend(_atomic_elements(context, call, *_ATOMICS[name]))
    else:
        tile = convert_tile_operator(context, call)
        out.append(tile if tile is not None else context.opaque_stmt(name, str(call)))


def _extern(context: Context, call: Any) -> Stmt:
    """`T.print` arrives as calls of debug functions; any other external function is opaque."""
    args = [str(arg.value) if type(arg).__name__ == "StringImm" else arg for arg in call.args]
    match args:
        case ["debug_print_msg", str(message), *_]:
            return Print(message, location=context.location)
        case ["debug_print_var", str(message), value]:
            return Print(message, (convert(context, value),), location=context.location)
        case ["debug_print_buffer_value", str(message), str(buffer), index, value]:
            values = convert_all(context, [index, value])
            return Print(f"{message} {buffer}", values, location=context.location)
    return context.opaque_stmt(f"call_extern {args[0]}", str(call))


#: Atomic calls made for their effect: kind and number of elements.
_ATOMICS = {
    "tl.atomic_add_elem_op": ("add", 1),
    "tl.atomic_addx2_elem_op": ("add", 2),
    "tl.atomic_addx4_elem_op": ("add", 4),
    "tl.atomic_max_elem_op": ("max", 1),
    "tl.atomic_min_elem_op": ("min", 1),
    "tl.atomic_or_elem_op": ("or", 1),
    "tl.atomic_store_elem_op": ("store", 1),
}


def _atomic_elements(context: Context, call: Any, kind: str, lanes: int) -> list[Stmt]:
    """One atomic per element: the paired forms promise no more than that."""
    targets = pointed_run(context, call.args[0], lanes)
    values: list[Expr] | None = [convert(context, call.args[1])] if lanes == 1 else None
    if lanes > 1:
        loads = pointed_run(context, call.args[1], lanes)
        values = None if loads is None else [*loads]
    if targets is None or values is None:
        return [context.opaque_stmt(call.op.name, str(call))]
    order = context.prover.constant(call.args[2]) if len(call.args) > 2 else 0
    return [
        AtomicElement(kind, target, view.cast(value, target.dtype), order or 0, location=context.location)
        for target, value in zip(targets, values, strict=True)
    ]
