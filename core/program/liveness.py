"""Between which statements a buffer's contents are wanted: what first and last use cannot say of registers.

Positions are those of `core.program.lifetimes`: statements in source order, outer before inner. Writes count as
whole, which is near enough to estimate registers, and no ground to reuse memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from core.program import walk
from core.program.effects import statement_effects
from core.program.nodes import For, If, Launch, LoopKind, Parallel, Scope, Stmt, While


@dataclass(frozen=True, slots=True)
class Liveness:
    """Of one storage of a launch.

    Attributes:
        steps: from the statement that computes it to the last that uses it, counted in the one body that holds both; 1
            is the next statement. None where it is filled from memory, or each iteration of a loop uses what was there
            before it.
        idle: first and last position of the longest stretch in which nothing of it is wanted, up to the statement that
            writes it anew; None where there is none.
    """

    steps: int | None
    idle: tuple[int, int] | None


#: Of a storage that nothing uses.
NEVER = Liveness(None, None)


def liveness(launch: Launch) -> dict[int, Liveness]:
    """By `id` of the storage, of all that the launch uses."""
    found: dict[int, Liveness] = {}
    _visit(launch.body, 0, False, found)
    carried = _carried(launch.body)
    return {key: replace(live, steps=None) if key in carried else live for key, live in found.items()}


@dataclass(slots=True)
class _Touch:
    """A statement of a body that uses a storage.

    Attributes:
        place: in the body.
        last: position of the last statement inside of it.
        written: position of the first that writes the storage; -1 where none does.
        renews: whether it surely writes the storage: not in one branch of a condition alone.
        reads, fills: whether it, or what is inside of it, reads the storage; and writes it with what memory holds.
    """

    place: int
    last: int
    renews: bool
    written: int = -1
    reads: bool = False
    fills: bool = False


def _visit(body: Sequence[Stmt], position: int, repeated: bool, found: dict[int, Liveness]) -> None:
    """What several statements of a body use; what a single one uses is looked up in the bodies inside of it."""
    touches: dict[int, list[_Touch]] = {}
    for place, stmt in enumerate(body):
        inside = tuple(walk.statements(stmt))
        last = position + len(inside) - 1
        _, renewed = _needed_and_renewed((stmt,))
        for offset, one in enumerate(inside):
            reads, writes = statement_effects(one)
            from_memory = any(buffer.scope in (Scope.GLOBAL, Scope.SHARED) for buffer in reads)
            for buffer in (*reads, *writes):
                key = id(buffer.storage)
                own = touches.setdefault(key, [])
                if not own or own[-1].place != place:
                    own.append(_Touch(place, last, key in renewed))
                own[-1].reads |= buffer in reads
                if buffer in writes:
                    own[-1].fills |= from_memory
                    own[-1].written = position + offset if own[-1].written < 0 else own[-1].written
        _visit(walk.children(stmt), position + 1, isinstance(stmt, For | While), found)
        position = last + 1
    for key, own in touches.items():
        if len(own) > 1 or key not in found:
            found[key] = _of(own, repeated)


def _carried(body: Sequence[Stmt]) -> set[int]:
    """By `id`, the storages of which iterations of a loop use what was there before them.

    Loops that are unrolled, and those over the elements of a `T.Parallel`, are no loops here: the parts of a sum that
    they add up are one when they end.
    """
    found: set[int] = set()
    for stmt in body:
        if isinstance(stmt, Parallel):
            continue
        if isinstance(stmt, While) or (isinstance(stmt, For) and stmt.kind in (LoopKind.SERIAL, LoopKind.PIPELINED)):
            found |= _needed_and_renewed(stmt.body)[0]
        found |= _carried(walk.children(stmt))
    return found


def _needed_and_renewed(body: Sequence[Stmt]) -> tuple[set[int], set[int]]:
    """By `id`, the storages of which a body uses what was there before it, and those that it surely writes."""
    needed: set[int] = set()
    renewed: set[int] = set()
    for stmt in body:
        reads, writes = ({id(buffer.storage) for buffer in buffers} for buffers in statement_effects(stmt))
        branches = (stmt.then, stmt.otherwise) if isinstance(stmt, If) else (walk.children(stmt),)
        inner = [_needed_and_renewed(branch) for branch in branches]
        needed |= reads.union(*(own for own, _ in inner)) - renewed
        renewed |= writes | set.intersection(*(own for _, own in inner))
    return needed, renewed


def _of(touches: Sequence[_Touch], repeated: bool) -> Liveness:
    if repeated and touches[0].reads:
        return Liveness(None, None)
    steps = None if touches[0].fills else touches[-1].place - touches[0].place
    gaps = [(one.last + 1, other.written) for one, other in pairwise(touches) if other.renews and not other.reads]
    longest = max(gaps, key=lambda gap: gap[1] - gap[0], default=(0, -1))
    return Liveness(steps, longest if longest[0] <= longest[1] else None)
