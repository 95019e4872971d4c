"""`lower`: a program to a `LoweredKernel` of tile-level MLIR modules."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from core.codegen.mlir.dialect import Argument, TileDialect
from core.codegen.mlir.module import TileModule, lower_launch
from core.compiler.artifacts import LoweredKernel
from core.errors import UnsupportedOp
from core.program.expressions import to_python
from core.program.nodes import Assert, Compare, Const, Expr, If, Launch, Logical, Not, Stmt
from core.runtime.signature import TensorArgument

if TYPE_CHECKING:
    from core.hardware import Chip
    from core.program import Program

#: Stands between the modules of a program with several launches, as MLIR's tools split their input.
SEPARATOR = "// -----\n"


def lower(
    program: Program, chip: Chip, dialect: TileDialect, *, looped: bool | None = None, name_limit: int = 49
) -> tuple[LoweredKernel, tuple[TileModule, ...]]:
    """Lowers a program, one module per launch.

    The metadata of the kernel has, for build, launch and simulation:

    * `asserts`: what the host asserts: `condition` (Python, or None), `message`, `file`, `line`;
    * `launches`: per launch `entry`, `arguments` (each `role`, `name`, `type`, in the function's order; a `buffer` has
      its extents in `elements`), `grid` (Python expressions over symbols and scalars), `looped`, `matmuls`, `atomics`;
    * `files`: the user's files by the short names in the module's locations;
    * `strip`: regular expressions for what only the vendor's compiler understands.

    Args:
        program: the kernel.
        chip: the chip it is for.
        dialect: the vendor's conventions.
        looped: see :func:`core.codegen.mlir.module.lower_launch`.
        name_limit: longest function name.

    Returns:
        The kernel and its modules.

    Raises:
        UnsupportedOp: what has no form on tiles, with the user's line.
    """
    view = program.view
    launches, asserts = _host(view.body, ())
    modules = []
    for number, launch in enumerate(launches):
        suffix = f"_{number}" if len(launches) > 1 else ""
        entry = f"{re.sub(r'[^0-9A-Za-z_]', '_', view.name)[: name_limit - len(suffix)]}{suffix}"
        modules.append(lower_launch(view, launch, entry, dialect, looped=looped))
    files: dict[str, str] = {}
    for module in modules:
        files |= module.files
    grids = [tuple(_text(extent) for extent in module.grid) for module in modules]
    lowered = LoweredKernel(
        target=chip.target,
        route="tile-mlir",
        language="mlir",
        source=SEPARATOR.join(module.text for module in modules),
        entry_points=tuple(module.entry for module in modules),
        signature=program.signature,
        grid=tuple(grids),
        block=tuple((1, 1, 1) for _ in modules),
        # What a tile occupies on the chip, and how many threads run it, is for the vendor to say.
        resources=replace(program.footprint().resources(chip), memory_bytes={}, threads=None),
        rewrites=tuple(dict.fromkeys(line for module in modules for line in module.facts.rewrites)),
        metadata={
            "launches": [_launch_record(module, grid) for module, grid in zip(modules, grids, strict=True)],
            "asserts": asserts,
            "files": files,
            "strip": list(dialect.vendor_attributes),
            "tensors": [a.name for a in program.signature.arguments if isinstance(a, TensorArgument)],
        },
    )
    return lowered, tuple(modules)


def _launch_record(module: TileModule, grid: Sequence[str]) -> dict[str, Any]:
    return {
        "entry": module.entry,
        "arguments": [_argument_record(argument) for argument in module.arguments],
        "grid": list(grid),
        "looped": module.looped,
        "matmuls": module.facts.matmuls,
        "atomics": module.facts.atomics,
    }


def _argument_record(argument: Argument) -> dict[str, Any]:
    record: dict[str, Any] = {"role": argument.role, "name": argument.name, "type": str(argument.type)}
    if argument.elements:
        record["elements"] = [_text(extent) for extent in argument.elements]
    return record


def _text(expr: Expr) -> str:
    try:
        return to_python(expr)
    except ValueError as error:
        raise UnsupportedOp(f"the grid is not an integer expression over sizes: {error}") from error


def _host(body: tuple[Stmt, ...], conditions: tuple[Expr, ...]) -> tuple[list[Launch], list[dict[str, Any]]]:
    """The launches in order, and what the host asserts before them.

    A launch under conditions of the host is launched always: its blocks test the conditions themselves.
    """
    launches: list[Launch] = []
    asserts: list[dict[str, Any]] = []
    for stmt in body:
        if isinstance(stmt, If):
            for holds, inner in ((stmt.condition, stmt.then), (Not("bool", stmt.condition), stmt.otherwise)):
                found, more = _host(inner, (*conditions, holds))
                launches += found
                asserts += more
        elif isinstance(stmt, Launch):
            inside = stmt.body
            for condition in reversed(conditions):
                inside = (If(condition=condition, then=inside, location=stmt.location),)
            launches.append(replace(stmt, body=inside) if conditions else stmt)
        elif isinstance(stmt, Assert) and not conditions:
            asserts.append(_assert_record(stmt))
    return launches, asserts


def _assert_record(stmt: Assert) -> dict[str, Any]:
    """An assertion as a Python condition over sizes and scalars; None where it is not of that kind."""
    location = stmt.location
    return {
        "condition": condition_text(stmt.condition),
        "message": stmt.message,
        "file": str(location.file) if location else None,
        "line": location.line if location else None,
    }


_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def condition_text(expr: Expr) -> str | None:
    """A condition over sizes and scalars as Python text; None when it is something else."""
    if isinstance(expr, Const):
        return str(bool(expr.value))
    if isinstance(expr, Not):
        inner = condition_text(expr.a)
        return None if inner is None else f"not ({inner})"
    if isinstance(expr, Logical):
        sides = condition_text(expr.a), condition_text(expr.b)
        return None if None in sides else f"({sides[0]}) {expr.op.value} ({sides[1]})"
    if isinstance(expr, Compare):
        try:
            return f"{to_python(expr.a)} {_COMPARISONS[expr.op.value]} {to_python(expr.b)}"
        except ValueError:
            return None
    return None
