"""A whole PrimFunc to a View: parameters, host statements, launches."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from core.errors import KernelError, UnsupportedOp
from core.program.effects import buffer_effects
from core.program.layouts import laid_out
from core.program.nodes import Assert, Expr, If, Launch, Parameter, Stmt, Var, VarKind, View
from core.program.tir import blocks, spans, statements
from core.program.tir.context import Context, LaunchState
from core.program.tir.expressions import convert
from core.program.tir.tileops import as_bool

_THREAD_BINDING = 4


def build_view(prim_func: Any, name: str, outputs: tuple[int, ...]) -> View:
    """The tile-level view of a PrimFunc as `@T.prim_func` or `get_tir` yields it, before any lowering.

    Args:
        prim_func: `tvm.tirx.PrimFunc`.
        name: name of the program.
        outputs: positions of the parameters that are outputs.

    Raises:
        ShapeMismatch: two regions that do not fit (user's line).
        UnsupportedOp: statements outside every `T.Kernel`.
    """
    context = Context()
    context.location = spans.function_location(prim_func)
    context.in_parameters = True
    parameters = _parameters(context, prim_func, outputs)
    context.in_parameters = False
    with ExitStack() as assumptions:
        body = _host_statements(context, prim_func.body, assumptions)
    reads, writes = buffer_effects(body)
    made = View(
        name=name,
        parameters=tuple(
            replace(
                parameter,
                reads=id(parameter.buffer.storage) in reads or bool(context.opaque),
                writes=id(parameter.buffer.storage) in writes or bool(context.opaque),
            )
            if parameter.buffer is not None
            else parameter
            for parameter in parameters
        ),
        symbols=tuple(context.symbols),
        body=body,
        location=context.location,
        opaque=tuple(context.opaque),
        workspaces=tuple(context.workspaces),
    )
    _check_layouts(context, made.launches)
    return made


def _check_layouts(context: Context, launches: tuple[Launch, ...]) -> None:
    """A tensor with a layout has it in every launch that uses it: they all mean the same memory."""
    everywhere = {storage: layout for layouts in context.layouts.values() for storage, layout in layouts.items()}
    for number, launch in enumerate(launches):
        reads, writes = buffer_effects(launch.body)
        for storage, layout in everywhere.items():
            if id(storage) in reads | writes and storage not in context.layouts[number]:
                raise UnsupportedOp(
                    f"{layout.logical.name} has a layout of its own (T.annotate_layout) in one T.Kernel, not in this",
                    hint="annotate it in every T.Kernel that uses it",
                    location=launch.location,
                )


def _parameters(context: Context, prim_func: Any, outputs: tuple[int, ...]) -> list[Parameter]:
    scalars: dict[int, Var] = {}
    for index, param in enumerate(prim_func.params):
        if param not in prim_func.buffer_map:  # scalars first: a dimension may be one of them
            scalars[index] = context.declare(param, VarKind.SCALAR, "scalar")
    parameters = []
    for index, param in enumerate(prim_func.params):
        if index in scalars:
            scalar = scalars[index]
            if scalar.dtype == "handle":
                context.opaque_stmt("pointer parameter", scalar.name)
            parameters.append(Parameter(scalar.name, scalar=scalar))
            continue
        tensor = prim_func.buffer_map[param]
        if tensor.data in context.storages:
            known = {other: prim_func.buffer_map[other].data for other in prim_func.buffer_map}
            first = next(other for other in prim_func.params if other in known and known[other].same_as(tensor.data))
            names = " and ".join(str(one.name).removesuffix("_handle") for one in (first, param))
            raise KernelError(
                f"parameters {names} are the same tensor to TileLang: they share one T.Tensor(...)",
                hint="write T.Tensor(...) for each parameter, or have a function return a new one each time",
                location=context.location,
            )
        buffer = context.add_buffer(tensor, parameter=index)
        parameters.append(Parameter(buffer.name, buffer=buffer, is_output=index in outputs))
    return parameters


# -- host level ------------------------------------------------------------------------------------------------------


def _host_statements(context: Context, stmt: Any, assumptions: ExitStack) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    _append_host(context, stmt, out, assumptions)
    return tuple(out)


def _append_host(context: Context, stmt: Any, out: list[Stmt], assumptions: ExitStack) -> None:
    kind = type(stmt).__name__
    if kind == "SeqStmt":
        seq = list(stmt.seq)
        for item, location in zip(seq, spans.sequence_locations(seq, context.location), strict=True):
            with context.at(location):
                _append_host(context, item, out, assumptions)
        return
    with context.at(spans.sequence_locations([stmt], context.location)[0]):
        if kind == "SBlockRealize":
            _host_block(context, stmt.block, out, assumptions)
        elif kind == "For" and int(stmt.kind) == _THREAD_BINDING:
            out.append(_launch(context, stmt))
        elif kind == "IfThenElse":
            out.append(_host_if(context, stmt))
        elif kind == "AllocBuffer":
            context.add_workspace(stmt.buffer)
        elif kind == "Bind":
            out.append(statements.make_let(context, stmt.var, stmt.value))
        elif kind == "AssertStmt":
            message = " ".join(str(getattr(part, "value", part)) for part in stmt.message_parts)
            condition = as_bool(convert(context, stmt.condition))
            out.append(Assert(condition, message, on_device=False, location=context.location))
            context.prover.assume(assumptions, stmt.condition)
        elif kind == "Evaluate" and type(stmt.value).__name__ == "IntImm":
            pass
        elif kind == "Evaluate" and getattr(getattr(stmt.value, "op", None), "name", "") == "tirx.assume":
            context.prover.assume(assumptions, stmt.value.args[0])
        elif kind == "AttrStmt":
            if str(stmt.attr_key) not in blocks.SCHEDULING_ATTRIBUTES:
                out.append(context.opaque_stmt(f"AttrStmt {stmt.attr_key}", str(stmt.value)))
            _append_host(context, stmt.body, out, assumptions)
        else:
            raise UnsupportedOp(
                f"{kind} outside `with T.Kernel(...)`",
                hint="only scalar bindings, T.alloc_global, if/else and assert may surround a T.Kernel block",
                location=context.location,
            )


def _host_block(context: Context, block: Any, out: list[Stmt], assumptions: ExitStack) -> None:
    for buffer in block.alloc_buffers:
        context.add_workspace(buffer)
    _append_host(context, block.body, out, assumptions)


def _host_if(context: Context, stmt: Any) -> Stmt:
    condition = as_bool(convert(context, stmt.condition))
    with context.assuming(stmt.condition), ExitStack() as inner:
        then = _host_statements(context, stmt.then_case, inner)
    otherwise: tuple[Stmt, ...] = ()
    if stmt.else_case is not None:
        with context.assuming(stmt.condition, negated=True), ExitStack() as inner:
            otherwise = _host_statements(context, stmt.else_case, inner)
    return If(condition, then, otherwise, location=context.location)


def _launch(context: Context, stmt: Any) -> Launch:
    location = context.location
    context.launch = launch = LaunchState()
    grid: list[tuple[Var, Expr]] = []
    while type(stmt).__name__ == "For" and int(stmt.kind) == _THREAD_BINDING:
        tag = str(stmt.thread_binding.thread_tag)
        if not tag.startswith("blockIdx"):
            break
        extent = convert(context, stmt.extent)
        context.prover.bind_range(stmt.loop_var, stmt.min, stmt.extent)
        grid.append((context.declare(stmt.loop_var, VarKind.BLOCK, "b"), extent))
        stmt = stmt.body
    body = laid_out(statements.convert_body(context, stmt), launch.layouts)
    context.layouts[len(context.layouts)] = launch.layouts
    threads = launch.threads
    if threads is None and launch.thread_loops:
        x, y, z = (launch.thread_loops.get(axis, 1) for axis in range(3))
        threads = (x, y, z)
    node = Launch(
        grid=tuple(grid),
        threads=threads,
        buffers=blocks.buffers_in_order(launch.buffers),
        body=body,
        uses_threads=launch.reads_thread_index,
        annotations=blocks.named_annotations(context),
        location=location,
    )
    context.launch = None
    return node
