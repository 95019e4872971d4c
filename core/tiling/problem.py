"""One kernel with its arguments on one chip: what compiling it, ranking it and tuning it have to know, found once."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from core.errors import TileHALError
from core.tiling.candidates import forbidding, standing
from core.tiling.classify import classified, shape_of
from core.tiling.ranking import Ranking, rank
from core.tiling.ranking_cache import ranking_key, recalled, remember
from core.tiling.rules import KernelShape, TileRule, Tiles
from core.tiling.tracing import Tracer

if TYPE_CHECKING:
    from core.compiler.artifacts import CompileOptions
    from core.hardware import Chip
    from core.plugins import Backend
    from core.target import Target
    from core.tiling.factory import KernelFactory
    from core.tuning.results.lookup import Tuned


class TileProblem:
    """Whose tiles are to be chosen. Everything is found when it is first asked for.

    Args:
        arguments: every argument but the tile parameters, by name.
        backend: of the chip's vendor.
        overrides: the user's tile parameters, checked by :meth:`KernelFactory.given_tiles`.
        options: the backend's options that it is compiled with, by name.

    Attributes:
        tracer: the traces made so far.
    """

    def __init__(
        self,
        factory: KernelFactory,
        arguments: Mapping[str, Any],
        chip: Chip,
        backend: Backend,
        overrides: Tiles,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.factory = factory
        self.arguments = arguments
        self.chip = chip
        self.backend = backend
        self.overrides = overrides
        self.options = dict(options or {})
        self.tracer = Tracer(factory, arguments)

    @classmethod
    def of(
        cls,
        factory: KernelFactory,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        target: str | Target | Chip = "auto",
        options: Mapping[str, Any] | None = None,
    ) -> TileProblem:
        """The problem that compiling `factory` for `target` with these arguments is.

        Raises:
            TargetNotFound, BackendLoadError: the target cannot be resolved.
            KernelError: an argument is missing, unknown or not allowed.
        """
        from core.plugins import manager
        from core.target import resolve

        chip = resolve(target).chip
        arguments = factory.arguments(args, kwargs)
        return cls(factory, arguments, chip, manager().backend(chip.vendor), factory.given_tiles(kwargs), options)

    @cached_property
    def shape(self) -> KernelShape:
        """What rules are told of the kernel, read off a trace.

        Raises:
            TileHALError: the kernel traces with no tiles.
        """
        return classified(shape_of(self.factory, self.arguments, self.options), self.overrides, self.tracer)

    @cached_property
    def rules(self) -> list[TileRule]:
        """The rules of the chip's backend and its extensions, highest priority first.

        Raises:
            BackendHookError: a package's hook raised.
        """
        if not self.backend.implements("tilehal_tile_rules", self.chip):
            return []
        return list(self.backend.call("tilehal_tile_rules", self.chip, kernel=self.shape))

    def forbids(self, tiles: Tiles) -> str | None:
        """Why a rule forbids a configuration (by parameter name), or None.

        Raises:
            BackendHookError: a rule raised.
        """
        found = forbidding(self.shape, standing(self.rules)[0], tiles)
        return None if found is None else f"{found[0]}: {found[1]}"

    def measured(self, options: CompileOptions | None = None) -> Tuned | None:
        """The tiles that tuning or a shipped table found fastest for this problem, or None. Nothing is traced for it.

        Args:
            options: how it is compiled; results under others do not count. None is the defaults.
        """
        from core.tuning.results.lookup import tuned_tiles

        return tuned_tiles(
            self.factory,
            self.arguments,
            self.chip,
            self.backend,
            overrides=self.overrides,
            options=options,
            refuse=self.forbids,
        )

    def ranking(self, *, checked: bool = False) -> Ranking:
        """The ranking, remembered or made now.

        A remembered one is made again when its first choice is now another program. That is known for the price of one
        trace, which is paid where the ranking comes from disk.

        Args:
            checked: pay it always, because the first choice is traced anyway.

        Raises:
            TileHALError: the kernel traces with no tiles, or a rule raised.
        """
        if len(self.overrides) == len(self.factory.parameters):
            return self._ranked()  # one candidate: to find it remembered would take as long
        key = ranking_key(self.factory, self.arguments, self.chip, self.backend, self.overrides, self.options)
        found = recalled(key, self.factory, self._ranked)
        if found.effort.recalled and (checked or found.effort.recalled == "disk") and not self._still(found):
            found = self._ranked()
            remember(key, found)
        return found

    def _ranked(self) -> Ranking:
        return rank(
            self.factory,
            self.arguments,
            self.chip,
            self.rules,
            self.overrides,
            shape=self.shape,
            tracer=self.tracer,
        )

    def _still(self, ranking: Ranking) -> bool:
        """Whether the first choice is still the program that was ranked."""
        if not ranking.candidates:
            return True
        try:
            return self.tracer(ranking.candidates[0].tiles).fingerprint() == ranking.fingerprint
        except TileHALError:
            return ranking.fingerprint == ""
