"""From a program and some chips to a report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from core.errors import Location, TileHALError
from core.portability.model import ChipReport, LineVerdict, MemoryVerdict, Remark, Report, Status
from core.portability.rules import PLANS_MEMORY, remarks
from core.program import walk
from core.program.capacity import memory_demands
from core.program.footprint import footprint
from core.program.nodes import Launch, OpaqueStmt, Stmt, View

if TYPE_CHECKING:
    from core.hardware import Chip
    from core.program.program import Program
    from core.tiling import Tiles


def report(program: Program, chips: Iterable[Chip], *, tiles: Tiles | None = None) -> Report:
    """What each chip makes of each line of a kernel. Nothing is lowered, no device is touched.

    What no target can make sense of (a region past its buffer, shapes that do not fit) is a refusal of every chip, not
    an exception.

    Args:
        tiles: tile parameters chosen for the caller, shown in the report.
    """
    view, refusal = _view(program)
    return Report(
        program.name,
        program.location,
        tuple(_chip_report(program, view, refusal, chip) for chip in chips),
        dict(tiles or {}),
    )


def _view(program: Program) -> tuple[View | None, TileHALError | None]:
    """The view, also of a program that the static checks refuse, where there is one; and the refusal."""
    from core.program.tir.launches import build_view

    try:
        return program.view, None
    except TileHALError as error:
        refusal = error
    try:
        return build_view(program.prim_func, program.name, program.outputs), refusal
    except TileHALError:
        return None, refusal


def _chip_report(program: Program, view: View | None, refusal: TileHALError | None, chip: Chip) -> ChipReport:
    found: list[Remark] = []
    if refusal is not None:
        found.append(Remark(refusal.code, Status.REFUSED, refusal.message, refusal.hint, refusal.location))
    memories: tuple[MemoryVerdict, ...] = ()
    if view is not None:
        found += remarks(view, chip, refusal.location if refusal is not None else None)
        memories = tuple(_memories(view, chip))
    lines = _lines(view, found, (view.location if view else None) or program.location)
    return ChipReport(chip.target, chip.title, _cannot_compile(chip), lines, memories)


def _memories(view: View, chip: Chip) -> Iterator[MemoryVerdict]:
    planned = bool(chip.codegen.get(PLANS_MEMORY))
    for number, launch in enumerate(footprint(view).launches):
        for demand in memory_demands(launch, chip):
            yield MemoryVerdict(
                launch=number,
                memory=demand.memory.name,
                needed_bytes=demand.needed_bytes,
                limit_bytes=demand.memory.block_limit_bytes if planned else demand.limit_bytes,
                spills=demand.spills,
                hint=demand.advice,
                room_bytes=demand.room_bytes,
            )


def _lines(view: View | None, found: Iterable[Remark], default: Location | None) -> tuple[LineVerdict, ...]:
    """Every line that holds a statement or a remark, in source order."""
    constructs: dict[Location, list[str]] = {}
    if view is not None:
        for stmt in walk.statements(view):
            if stmt.location is not None:
                names = constructs.setdefault(stmt.location, [])
                if _name(stmt) not in names:
                    names.append(_name(stmt))
    about: dict[Location, list[Remark]] = {}
    for remark in found:
        location = remark.location or default
        if location is not None and remark not in about.setdefault(location, []):
            about[location].append(remark)
    return tuple(
        LineVerdict(location, tuple(constructs.get(location, ())), tuple(about.get(location, ())))
        for location in sorted({*constructs, *about}, key=lambda place: (place.file, place.line))
    )


def _name(stmt: Stmt) -> str:
    if isinstance(stmt, OpaqueStmt):
        return stmt.operation
    return "kernel" if isinstance(stmt, Launch) else type(stmt).__name__.lower()


def _cannot_compile(chip: Chip) -> str:
    """Why this installation cannot compile for a chip; empty when it can."""
    from core.plugins import manager

    try:
        backend = manager().backend(chip.vendor)
        if backend.implements("tilehal_lower", chip):
            return ""
    except TileHALError as error:
        return error.message.splitlines()[0]
    return f"{backend.distribution} {backend.version} describes its chips and does not compile for them"
