"""Tile-size rules, and the candidates they produce for one kernel on one chip.

A rule states preferences (tile values, most wanted first) and may forbid values with a reason. Rules come from the
chip's backend and its extensions, highest priority first; after them stand the generic preferences of this module, so
that a chip whose backend has no rule still compiles. A number the user gave is part of every candidate, unchanged.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from core.tiling.parameters import TileParameter

Tiles = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class KernelShape:
    """What a rule knows of the kernel before it is traced with real tiles.

    Attributes:
        name: the factory's name.
        operator: `gemm`, `attention` (two gemms and a reduction), `reduction` or `elementwise`, read off a trace.
        dimensions: extent of every integer argument of the factory (`M`, `N`, `K`), elements.
        dtypes: dtypes of the tensor parameters, in order.
        parameters: the tile parameters by name.
    """

    name: str
    operator: str
    dimensions: Mapping[str, int]
    dtypes: tuple[str, ...]
    parameters: Mapping[str, TileParameter]


@dataclass(frozen=True, slots=True)
class TileRule:
    """A rule of a backend or an extension.

    Attributes:
        name: shown in `kernel.config` as what chose a value.
        reason: why, in one sentence, for whoever reads the rule.
        prefer: configurations by *key* (a dimension's name, `stages`, `threads`), most wanted first. Keys the kernel
            does not have are ignored; parameters a configuration leaves out take the generic default.
        forbid: returns why a configuration (by key) is not allowed on this chip, or None.
    """

    name: str
    reason: str
    prefer: tuple[Tiles, ...] = ()
    forbid: Callable[[KernelShape, Tiles], str | None] | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """Values for every tile parameter, and who chose each (`user`, `rule:<name>`, `default`)."""

    tiles: Mapping[str, int]
    chosen_by: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Rejection:
    """A candidate that was not used, and why."""

    tiles: Mapping[str, int]
    reason: str


#: Generic preferences by key kind, most wanted first.
_GENERIC: Mapping[str, tuple[int, ...]] = {
    "tile": (64, 32, 16, 8, 4, 2, 1, 128),
    "stages": (2, 1, 0),
    "threads": (128, 64, 256),
}


@dataclass(slots=True)
class CandidateSource:
    """Candidates in order of preference, and the ones refused on the way with their reasons."""

    shape: KernelShape
    rules: Sequence[TileRule]
    overrides: Tiles = field(default_factory=dict)
    rejected: list[Rejection] = field(default_factory=list)

    def __iter__(self) -> Iterator[Candidate]:
        seen: set[tuple[tuple[str, int], ...]] = set()
        for name, wanted in self._wanted():
            candidate = self._complete(name, wanted)
            identity = tuple(sorted(candidate.tiles.items()))
            if identity in seen:
                continue
            seen.add(identity)
            reason = self._refuse(candidate.tiles)
            if reason is None:
                yield candidate
            else:
                self.rejected.append(Rejection(candidate.tiles, reason))

    def _wanted(self) -> Iterable[tuple[str, Tiles]]:
        for rule in self.rules:
            for tiles in rule.prefer:
                yield f"rule:{rule.name}", tiles
        keys = [(parameter.key, _GENERIC[parameter.role]) for parameter in self.shape.parameters.values()]
        for values in itertools.islice(itertools.product(*(values for _, values in keys)), 512):
            yield "default", dict(zip((key for key, _ in keys), values, strict=True))

    def _complete(self, name: str, wanted: Tiles) -> Candidate:
        tiles: dict[str, int] = {}
        chosen_by: dict[str, str] = {}
        for parameter_name, parameter in self.shape.parameters.items():
            if parameter_name in self.overrides:
                tiles[parameter_name], chosen_by[parameter_name] = self.overrides[parameter_name], "user"
            elif parameter.key in wanted:
                tiles[parameter_name] = self._clip(parameter, wanted[parameter.key])
                chosen_by[parameter_name] = name
            else:
                tiles[parameter_name] = self._clip(parameter, _GENERIC[parameter.role][0])
                chosen_by[parameter_name] = "default"
        return Candidate(tiles, chosen_by)

    def _clip(self, parameter: TileParameter, value: int) -> int:
        """The value nearest to the wanted one that the parameter allows and the dimension needs."""
        extent = self.shape.dimensions.get(parameter.dimension or "")
        if extent is not None:
            value = min(value, _next_power_of_two(extent))
        if parameter.maximum is not None:
            value = min(value, parameter.maximum)
        value -= value % parameter.multiple
        return max(value, parameter.minimum or 0)

    def _refuse(self, tiles: Tiles) -> str | None:
        parameters = self.shape.parameters
        for name, parameter in parameters.items():
            reason = parameter.refuse(tiles[name])
            if reason is not None:
                return f"{name}: {reason}"
        by_key = {parameters[name].key: value for name, value in tiles.items()}
        for rule in self.rules:
            reason = rule.forbid(self.shape, by_key) if rule.forbid is not None else None
            if reason is not None:
                return f"{rule.name}: {reason}"
        return None


def _next_power_of_two(value: int) -> int:
    return 1 << max(0, (value - 1).bit_length())
