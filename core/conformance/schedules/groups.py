"""Which warps can get to a statement, by the conditions on the thread index around it."""

from __future__ import annotations

from typing import Any

import numpy as np

from core.conformance.schedules import tree
from core.conformance.schedules.lanes import WARP, Lanes
from core.conformance.schedules.tree import Body, Branch, Expression, Launch, Loop, Parallel, While


class _Threads:
    """Stands in for a warp where only the thread index and what follows from it is known."""

    def __init__(self, slots: dict[int, Any]) -> None:
        self.slots = slots


def assign_groups(launch: Launch) -> None:
    """Sets `group` of every statement."""
    known: dict[int, Any] = {}
    if launch.thread_slot is not None:
        known[launch.thread_slot] = Lanes(np.arange(launch.threads))
    _body(launch.body, known, np.ones(launch.threads, bool))


def _body(body: Body, known: dict[int, Any], threads: np.ndarray[Any, Any]) -> None:
    group = tuple(int(warp) for warp in np.flatnonzero(threads.reshape(-1, WARP).any(axis=1)))
    for node in body:
        node.group = group
        match node:
            case tree.Bind():
                known.pop(node.slot, None)
                value = _value(node.value, known)
                if value is not None:
                    known[node.slot] = value
            case Branch():
                # Each side is only ever reached by threads that may satisfy what is known of the condition.
                yes, no = _sides(node.condition, known, len(threads))
                _body(node.then, dict(known), threads & yes)
                _body(node.otherwise, dict(known), threads & no)
            case Loop() | While() | Parallel():
                _body(node.body, known, threads)


def _value(expression: Expression, known: dict[int, Any]) -> Any:
    if expression.opaque or not expression.slots <= known.keys():
        return None
    return expression.evaluate(_Threads(known))  # type: ignore[arg-type]  # only `slots` is asked for


def _sides(
    condition: Expression, known: dict[int, Any], threads: int
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Threads that may take either side."""
    value = _value(condition, known)
    if value is not None:
        holds = np.broadcast_to(np.asarray(value.values if isinstance(value, Lanes) else value, bool), (threads,))
        return holds, ~holds
    yes = np.ones(threads, bool)
    for part in condition.conjuncts:
        yes &= _sides(part, known, threads)[0]
    return yes, np.ones(threads, bool)
