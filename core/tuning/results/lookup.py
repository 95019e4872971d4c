"""What a compilation asks: which tiles were measured for this kernel on this chip, for these arguments or near them.

In order: these very arguments in the user's store, in a table that a package ships, then the nearest measured shape in
the store, and in a table. A result of the store is used where it was measured: another driver, compiler, TileLang or
plugin version is another environment, and its results take part only when the user says so (`TILEHAL_TUNED=any`, or
`use_tuned("any")`). A shipped table is its package's own statement about a chip: it must be for this TileLang, and that
its driver or compiler was another is said in `kernel.config`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

from core.errors import KernelError, TuningError, TuningStoreError, TuningWarning
from core.tuning.environment import Environment, environment_of, said
from core.tuning.results.keys import key_of
from core.tuning.results.neighbours import distance
from core.tuning.results.records import Key, Outcome, Result
from core.tuning.results.store import default_store
from core.tuning.results.tables import shipped_tables

if TYPE_CHECKING:
    from core.compiler.artifacts import CompileOptions
    from core.hardware import Chip
    from core.plugins import Backend
    from core.tiling import Tiles, Value
    from core.tiling.factory import KernelFactory

#: Which results a compilation takes: of this environment, of any, or none.
Policy = Literal["exact", "any", "off"]
_POLICIES: tuple[str, ...] = get_args(Policy)

_chosen: ContextVar[Policy | None] = ContextVar("tilehal_tuned", default=None)


@dataclass(frozen=True, slots=True)
class Tuned:
    """Tiles that were measured.

    Attributes:
        tiles: every tile parameter by name.
        where: `store`, `import <file>` or `table <file>`, then what differs from what was asked.
        outcome: how it was measured.
    """

    tiles: Mapping[str, Value]
    where: str
    outcome: Outcome

    @property
    def chosen_by(self) -> str:
        """What `kernel.config` says of each tile."""
        return f"tuned:{self.where}"


@contextmanager
def use_tuned(policy: Policy) -> Iterator[None]:
    """Which tuned results compilations inside the block take: `exact` (the default), `any` environment's, or `off`."""
    token = _chosen.set(_checked(policy, "use_tuned"))
    try:
        yield
    finally:
        _chosen.reset(token)


def tuned_tiles(
    factory: KernelFactory,
    arguments: Mapping[str, Any],
    chip: Chip,
    backend: Backend,
    *,
    overrides: Tiles | None = None,
    options: CompileOptions | None = None,
    refuse: Callable[[Tiles], str | None] | None = None,
) -> Tuned | None:
    """The fastest measured tiles for a compilation, or None when nothing that may be used was measured.

    Called before candidates are ranked; takes well under a millisecond, and traces nothing. A store that cannot be read
    is a warning, not an error: the kernel compiles without it.

    Args:
        arguments: every argument but the tile parameters.
        overrides: tiles the user gave: only a result that agrees with them is used.
        options: how it is compiled: results with other options do not count.
        refuse: why tiles are not allowed for these arguments, or None; asked about a neighbour's.
    """
    policy = _policy()
    fixed = dict(overrides or {})
    if policy == "off" or len(fixed) == len(factory.parameters):
        return None
    try:
        asked = [key_of(factory, arguments, chip, options, fixed)]
        if fixed:  # tuned with the same numbers given, or tuned freely with the same numbers coming out
            asked.append(key_of(factory, arguments, chip, options, {}))
    except KernelError:  # an argument without a stable form: it cannot have been stored
        return None
    search = _Search(factory, arguments, chip, backend, policy, fixed, refuse)
    for key in asked:
        found = search.best(key)
        if found is not None:
            return found
    return None


class _Search:
    def __init__(
        self,
        factory: KernelFactory,
        arguments: Mapping[str, Any],
        chip: Chip,
        backend: Backend,
        policy: Policy,
        fixed: Tiles,
        refuse: Callable[[Tiles], str | None] | None,
    ) -> None:
        self._factory = factory
        self._arguments = arguments
        self._chip = chip
        self._backend = backend
        self._policy = policy
        self._fixed = fixed
        self._refuse = refuse
        self._environment: Environment | None = None

    def best(self, key: Key) -> Tuned | None:
        """The first that may be used, in the order this module promises."""
        return next(
            (found for source in (self._same, self._shipped, self._near, self._near_shipped) for found in source(key)),
            None,
        )

    def _same(self, key: Key) -> Iterator[Tuned]:
        for result in self._mine_first(_read(lambda: default_store().same_arguments(key))):
            yield from self._usable(result, self._stored(result), near=False)

    def _shipped(self, key: Key) -> Iterator[Tuned]:
        for result, name in self._of_tables(key):
            if result.key.arguments == key.arguments:
                yield from self._usable(result, [f"table {name}", *self._elsewhere(result)], near=False)

    def _near(self, key: Key) -> Iterator[Tuned]:
        headings = _read(lambda: default_store().headings(key))
        for heading in self._nearest(key, self._mine_first(headings)):
            for result in _read(partial(default_store().same_arguments, heading.key)):
                if result.key.environment == heading.key.environment:
                    yield from self._usable(result, self._stored(result), near=True)

    def _near_shipped(self, key: Key) -> Iterator[Tuned]:
        names = {id(result): name for result, name in self._of_tables(key)}
        for result in self._nearest(key, [result for result, _ in self._of_tables(key)]):
            yield from self._usable(result, [f"table {names[id(result)]}", *self._elsewhere(result)], near=True)

    def _of_tables(self, key: Key) -> list[tuple[Result, str]]:
        """Rows of shipped tables for the kernel with these options, measured with this TileLang."""
        return [
            (result, table.path.name)
            for table in shipped_tables(self._chip, self._backend)
            for result in table.of_kernel(key.kernel, key.fingerprint)
            if result.key.options == key.options and result.key.environment.tilelang == self._here().tilelang
        ]

    def _nearest(self, key: Key, results: Iterable[Result]) -> list[Result]:
        asked = key.values
        found = [
            (away, index, result)
            for index, result in enumerate(results)
            if result.key.arguments != key.arguments
            and (away := distance(result.key.values, asked, result.structural)) is not None
        ]
        return [result for _, _, result in sorted(found, key=lambda item: item[:2])]

    def _mine_first(self, results: tuple[Result, ...]) -> list[Result]:
        """Those of this environment, then, where the user wants them, those of others, the latest measured first."""
        if not results:
            return []
        here = [result for result in results if result.key.environment == self._here()]
        if self._policy != "any":
            return here
        others = [result for result in results if result.key.environment != self._here()]
        return here + sorted(others, key=lambda r: -max((o.measured_at for o in r.outcomes), default=0.0))

    def _usable(self, result: Result, said_first: list[str], *, near: bool) -> Iterator[Tuned]:
        """The fastest outcome, where it may be used; of a neighbour, the fastest that fits these arguments."""
        for outcome in result.measured if near else result.measured[:1]:
            if any(outcome.tiles.get(name) != value for name, value in self._fixed.items()):
                continue
            if outcome.tiles.keys() != self._factory.parameters.keys():
                continue
            if near and self._misfit(outcome.tiles) is not None:
                continue
            words = [f"import {outcome.source}" if said_first[0] == "store" and outcome.source else said_first[0]]
            if near:
                words.append(f"of {self._differing(result)}")
            yield Tuned(dict(outcome.tiles), ", ".join((*words, *said_first[1:])), outcome)

    def _misfit(self, tiles: Tiles) -> str | None:
        """Why a neighbour's tiles do not suit these arguments."""
        for name, parameter in self._factory.parameters.items():
            value = tiles[name]
            reason = parameter.refuse(value)
            if reason is not None:
                return reason
            extent = self._arguments.get(parameter.dimension or "") if parameter.role == "tile" else None
            if isinstance(extent, int) and isinstance(value, int) and value >= 2 * max(extent, parameter.minimum or 1):
                return f"{name}={value} is twice what {parameter.dimension}={extent} needs"
        return None if self._refuse is None else self._refuse(tiles)

    def _stored(self, result: Result) -> list[str]:
        return ["store", *self._elsewhere(result)]

    def _elsewhere(self, result: Result) -> list[str]:
        differences = self._here().differences(result.key.environment)
        return [said(differences)] if differences else []

    def _differing(self, result: Result) -> str:
        known = result.key.values
        return " ".join(f"{name}={value}" for name, value in known.items() if self._arguments.get(name) != value)

    def _here(self) -> Environment:
        if self._environment is None:
            self._environment = environment_of(self._chip, self._backend)
        return self._environment


def _read(what: Callable[[], tuple[Result, ...]]) -> tuple[Result, ...]:
    try:
        return what()
    except TuningStoreError as error:
        warnings.warn(f"compiling without tuned results: {error}", TuningWarning, stacklevel=2)
        return ()


def _policy() -> Policy:
    return _chosen.get() or _checked(os.environ.get("TILEHAL_TUNED", "") or "exact", "TILEHAL_TUNED")


def _checked(policy: str, name: str) -> Policy:
    for known in _POLICIES:
        if policy == known:
            return known  # type: ignore[return-value]  # one of the literals
    raise TuningError(f"{name}={policy!r}: there is no such choice", hint=f"one of {', '.join(_POLICIES)}")
