"""Kernels that give threads different things to do: which threads, and what those that only copy mean to the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from core.program.nodes import Compare, CompareOp, Expr, Var, VarKind
from core.tiling.profile.records import GlobalAccess, Loop, MatrixProduct


def thread_split(condition: Expr, threads: range, bound: int | None) -> tuple[range, range] | None:
    """Which of `threads` take each side of `thread >= bound` or `thread < bound`; None for other conditions."""
    if not isinstance(condition, Compare) or bound is None:
        return None
    if not isinstance(condition.a, Var) or condition.a.kind is not VarKind.THREAD:
        return None
    middle = min(max(bound, threads.start), threads.stop)
    below, above = range(threads.start, middle), range(middle, threads.stop)
    if condition.op is CompareOp.GE:
        return above, below
    return (below, above) if condition.op is CompareOp.LT else None


def join_copiers(
    loops: list[Loop],
    accesses: list[GlobalAccess],
    products: Sequence[MatrixProduct],
    copiers: set[str],
    counted: set[int],
    bytes_of: Mapping[str, int],
) -> None:
    """Moves the copies of threads that do nothing else to the loops that use the tiles, in place.

    A loop whose products read tiles that such threads fill is then what `T.Pipelined` makes of one: it has as many
    stages as the tiles have versions, and its copies go on to its next run without a pause.

    Args:
        copiers: roles of those threads.
        counted: the loops that are loops, not conditions.
        bytes_of: size of each on-chip storage by name.
    """

    def nest(loop: int) -> list[int]:
        found: list[int] = []
        while loop > 0:
            if loop in counted:
                found.insert(0, loop)
            loop = loops[loop].parent
        return found

    for index, access in enumerate(accesses):
        using = [p.loop for p in products if access.buffer in (p.a_buffer, p.b_buffer)]
        if loops[access.loop].role not in copiers or access.buffer not in bytes_of or not using:
            continue
        own, theirs = nest(access.loop), max(map(nest, using), key=len)
        target = theirs[min(len(own), len(theirs)) - 1] if own and theirs else 0
        names = {f"loop{a}": f"loop{b}" for a, b in zip(own, theirs, strict=False)}
        versions = max(1, round(bytes_of[access.buffer] / access.bytes)) if access.bytes else 1
        accesses[index] = replace(
            access,
            loop=target,
            varies=tuple(sorted(names.get(name, name) for name in access.varies)),
        )
        old = loops[target]
        loops[target] = replace(old, stages=min(old.stages or versions, versions), ahead=True)
