"""Launches: grid loops, thread indices, and the block that carries allocations and annotations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from core.errors import UnsupportedOp
from core.program.layouts import GlobalLayout
from core.program.nodes import Buffer, Scope, Var, VarKind
from core.program.tir.context import Context, row_major_strides
from core.program.tir.expressions import convert
from core.program.tir.safe_values import check_safe_values

#: Attribute statements that schedule and do not change what is computed, and the launch annotation they become.
SCHEDULING_ATTRIBUTES = {
    "threadblock_swizzle_pattern": "swizzle",
    "tl.min_blocks_per_sm": "min_blocks_per_unit",
    "pragma_unroll_explicit": "unroll_explicit",
    "pragma_unroll_factor": "unroll_factor",
}

_AXES = {"x": 0, "y": 1, "z": 2}


def bind_thread(context: Context, variable: Any, axis: int) -> None:
    """`tx = launch_thread_idx(axis)`."""
    context.declare(variable, VarKind.THREAD, "t" + "xyz"[axis])
    context.current_launch.thread_variables[axis] = variable


def bind_thread_loop(context: Context, loop: Any) -> None:
    """A loop over `threadIdx`, as releases before 0.1.15 wrote them."""
    axis = _AXES[str(loop.thread_binding.thread_tag)[-1]]
    context.declare(loop.loop_var, VarKind.THREAD, "t" + "xyz"[axis])
    context.prover.bind_range(loop.loop_var, loop.min, loop.extent)
    extent = context.prover.constant(loop.extent)
    if extent is not None:
        context.current_launch.thread_loops[axis] = extent


def enter_block(context: Context, block: Any) -> None:
    """Reads a block's annotations and introduces its buffers."""
    launch = context.current_launch
    annotations = block.annotations
    for key, value in annotations.items():
        _annotation(context, str(key), value)
    for axis, variable in launch.thread_variables.items():
        if launch.threads is not None:
            context.prover.bind_range(variable, 0, launch.threads[axis])
        else:
            context.prover.nonnegative(variable)
    launch.thread_variables.clear()
    for buffer in block.alloc_buffers:
        context.buffer(buffer)


def _annotation(context: Context, key: str, value: Any) -> None:
    if key == "tl.launch_threads":
        threads = [context.prover.constant(item) if not isinstance(item, int) else item for item in value]
        x, y, z = (item if item is not None else 1 for item in (*threads, 1, 1)[:3])
        context.current_launch.threads = (x, y, z)
    elif key == "safe_value_map":
        check_safe_values(context.location, len(value))
        for data, safe in value.items():
            context.safe_values[data] = safe
    elif key in ("reducer_info_v2", "reducer_info"):
        for data, info in value.items():
            context.reducers[data] = str(info["op"])
    elif key == "pragma_import_c":
        context.current_launch.annotations["import_c"] = str(getattr(value, "value", value))
    elif key == "cluster_dims":
        context.current_launch.annotations["cluster_dims"] = tuple(int(item) for item in value)
    elif key in ("layout_map", "l2_hit_ratio_map", "barrier_init"):
        context.current_launch.annotations[key] = dict(value.items())
        if key == "layout_map":
            for data, layout in value.items():
                _layout(context, data, layout)
    else:
        context.current_launch.annotations[key] = value


def _layout(context: Context, data: Any, layout: Any) -> None:
    """Notes the layout of a tensor of global memory; on the chip a layout is a schedule, and the family's business."""
    logical = next((buffer for tir, buffer in context.buffers.items() if tir.data.same_as(data)), None)
    if logical is None or logical.scope is not Scope.GLOBAL:
        return
    shape = tuple(convert(context, extent) for extent in layout.get_output_shape())
    if not logical.is_packed or len(layout.get_input_shape()) != logical.rank:
        raise UnsupportedOp(
            f"T.annotate_layout of {logical.name}, whose elements lie with gaps, or which has other dimensions than the"
            " layout",
            hint="give a layout of the tensor's own shape to a tensor that is packed",
            location=context.location,
        )
    # The same placeholders in every layout.
    variables = tuple(context.declare(variable, VarKind.LET, "i") for variable in layout.get_forward_vars())
    physical = replace(
        logical,
        name=context.names.unique(f"{logical.name}_laid_out"),
        shape=shape,
        strides=row_major_strides(shape),
    )
    index = tuple(convert(context, expr) for expr in layout.get_forward_index())
    context.current_launch.layouts[logical.storage] = GlobalLayout(logical, physical, variables, index)


def named_annotations(context: Context) -> dict[str, Any]:
    """The launch's annotations with buffers' names for TVM's data variables, and TVM objects as text."""
    names = {data: storage.name for data, storage in context.storages.items()}

    def plain(value: Any) -> Any:
        if isinstance(value, bool | int | float | str | tuple):
            return value
        if isinstance(value, dict):
            return {names.get(key, str(key)): plain(item) for key, item in value.items()}
        return str(value)

    return {key: plain(value) for key, value in context.current_launch.annotations.items()}


# -- questions about expressions -------------------------------------------------------------------------------------


def _variables(expr: Any) -> list[Any]:
    from tilelang import tvm

    found: list[Any] = []

    def visit(node: Any) -> None:
        if isinstance(node, tvm.tirx.Var):
            found.append(node)

    tvm.tirx.stmt_functor.post_order_visit(expr, visit)
    return found


def waits_for_loop(context: Context, value: Any) -> bool:
    """Whether a binding uses a loop variable whose loop comes later (`T.Persistent` binds its indices before)."""
    pending = [item[0] for item in context.pending]
    for variable in _variables(value):
        if any(variable.same_as(other) for other in pending):
            return True
        if variable not in context.variables and variable not in context.inlined:
            return True
    return False


def mentions(expr: Any, context: Context, variables: Sequence[Var]) -> bool:
    """Whether an expression uses one of these variables of the view."""
    return any(context.variables.get(variable) in variables for variable in _variables(expr))


def is_print_by_one_thread(context: Context, stmt: Any) -> bool:
    """`if tx == 0: <nothing but debug prints>`: how `T.print` of a tile arrives. The test is not the user's."""
    from tilelang import tvm

    tirx = tvm.tirx
    condition = stmt.condition
    variables = _variables(condition)
    if not variables or not all(
        context.variables.get(variable) is not None and context.variables[variable].kind is VarKind.THREAD
        for variable in variables
    ):
        return False
    body = stmt.then_case
    while isinstance(body, tirx.For):
        body = body.body
    statements = list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]
    return all(
        isinstance(item, tirx.Evaluate)
        and isinstance(item.value, tirx.Call)
        and item.value.op.name == "tirx.call_extern"
        and str(item.value.args[0].value).startswith("debug_print")
        for item in statements
    )


def buffers_in_order(buffers: Sequence[Buffer]) -> tuple[Buffer, ...]:
    """Buffers with the allocation of each storage before the views made of it."""
    first: dict[int, int] = {}
    for index, buffer in enumerate(buffers):
        first.setdefault(id(buffer.storage), index)
    order = sorted(range(len(buffers)), key=lambda i: (first[id(buffers[i].storage)], i))
    return tuple(buffers[i] for i in order)
