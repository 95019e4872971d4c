"""A launch's profile without the loops in which nothing happens (waits, masks of threads, turns without a tile)."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol, TypeVar

from core.tiling.profile.formula import names_in, renamed
from core.tiling.profile.records import LaunchProfile


class _Entry(Protocol):
    @property
    def loop(self) -> int: ...


T = TypeVar("T", bound=_Entry)


def compact(launch: LaunchProfile) -> LaunchProfile:
    """The same profile with those loops gone and the others numbered anew."""
    kept = {0}
    groups: tuple[tuple[_Entry, ...], ...] = (
        launch.accesses,
        launch.shared,
        launch.products,
        launch.vector,
        launch.reductions,
    )
    for entry in (entry for group in groups for entry in group):
        index = entry.loop
        while index > 0:
            kept.add(index)
            index = launch.loops[index].parent
    # A loop may run as often as the variable of another one says.
    for index in sorted(kept, reverse=True):
        kept.update(_loops(names_in(launch.loops[index].trips) | names_in(launch.loops[index].start)))
    if len(kept) == len(launch.loops):
        return launch
    new = {old: position for position, old in enumerate(sorted(kept))}
    names = {f"loop{old}": f"loop{position}" for old, position in new.items()}

    def moved(entries: tuple[T, ...]) -> tuple[T, ...]:
        return tuple(replace(entry, loop=new[entry.loop]) for entry in entries)  # type: ignore[type-var]

    return replace(
        launch,
        loops=tuple(
            replace(
                loop,
                parent=new.get(loop.parent, -1),
                start=renamed(loop.start, names),
                trips=renamed(loop.trips, names),
            )
            for loop in (launch.loops[index] for index in sorted(kept))
        ),
        accesses=tuple(
            replace(a, loop=new[a.loop], varies=tuple(sorted(names.get(name, name) for name in a.varies)))
            for a in launch.accesses
        ),
        shared=moved(launch.shared),
        products=moved(launch.products),
        vector=moved(launch.vector),
        reductions=moved(launch.reductions),
    )


def _loops(names: frozenset[str]) -> set[int]:
    return {int(name.removeprefix("loop")) for name in names if name.startswith("loop")}
