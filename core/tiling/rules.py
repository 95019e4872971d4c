"""Tile-size rules, and the candidates they produce for one kernel on one chip.

A rule states preferences (tile values, most wanted first) and may forbid values with a reason. Rules come from the
chip's backend and its extensions, highest priority first; after them stand the generic preferences of this module, so
that a chip whose backend has no rule still compiles. A number the user gave is part of every candidate, unchanged.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from core.tiling.parameters import TileParameter, Value

if TYPE_CHECKING:
    from core.tiling.prediction import Prediction

Tiles = Mapping[str, Value]


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

    A *key* is a dimension's name, `split_<dimension>`, a choice's name, or a role (`stages`, `threads`, `swizzle`,
    `warp_policy`, `unroll`, `buffers`). Keys the kernel does not have are ignored.

    Attributes:
        name: shown in `kernel.config` as what chose a value.
        reason: why, in one sentence, for whoever reads the rule.
        values: by key, the values worth considering on this chip. Candidates are the product over all keys; several
            rules' values for one key are joined.
        prefer: configurations (whole or partial) that are tried before anything the cost model ranks, most wanted
            first: a measured table. Parameters a configuration leaves out are ranked by the cost model.
        forbid: returns why a configuration (by key) is not allowed on this chip, or None.
        weigh: a factor on the cost model's predicted time (1.0 agrees with it), for what the model cannot see.
        replaces: names of rules of lower priority that this one stands for.
    """

    name: str
    reason: str
    values: Mapping[str, Sequence[Value]] = field(default_factory=dict)
    prefer: tuple[Tiles, ...] = ()
    forbid: Callable[[KernelShape, Tiles], str | None] | None = None
    weigh: Callable[[KernelShape, Tiles, Prediction], float] | None = None
    replaces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Candidate:
    """Values for every tile parameter, and who chose each (`user`, `rule:<name>`, `default`)."""

    tiles: Tiles
    chosen_by: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Rejection:
    """A candidate that was not used, and why."""

    tiles: Tiles
    reason: str


#: Generic preferences by key kind, most wanted first.
_GENERIC: Mapping[str, tuple[Value, ...]] = {
    "tile": (64, 32, 16, 8, 4, 2, 1, 128),
    "split": (1,),
    "stages": (2, 1, 0),
    "threads": (128, 64, 256),
    "unroll": (1,),
    "swizzle": (0,),
    "warp_policy": (0,),
    "buffers": (1,),
}


@dataclass(slots=True)
class CandidateSource:
    """Candidates in order of preference, and the ones refused on the way with their reasons."""

    shape: KernelShape
    rules: Sequence[TileRule]
    overrides: Tiles = field(default_factory=dict)
    rejected: list[Rejection] = field(default_factory=list)

    def __iter__(self) -> Iterator[Candidate]:
        seen: set[tuple[tuple[str, Value], ...]] = set()
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
        keys = [
            (parameter.key, parameter.choices or _GENERIC[parameter.role])
            for parameter in self.shape.parameters.values()
        ]
        for values in itertools.islice(itertools.product(*(values for _, values in keys)), 512):
            yield "default", dict(zip((key for key, _ in keys), values, strict=True))

    def _complete(self, name: str, wanted: Tiles) -> Candidate:
        tiles: dict[str, Value] = {}
        chosen_by: dict[str, str] = {}
        for parameter_name, parameter in self.shape.parameters.items():
            if parameter_name in self.overrides:
                tiles[parameter_name], chosen_by[parameter_name] = self.overrides[parameter_name], "user"
            elif parameter.key in wanted:
                tiles[parameter_name] = self._clip(parameter, wanted[parameter.key])
                chosen_by[parameter_name] = name
            else:
                tiles[parameter_name] = self._clip(parameter, (parameter.choices or _GENERIC[parameter.role])[0])
                chosen_by[parameter_name] = "default"
        return Candidate(tiles, chosen_by)

    def _clip(self, parameter: TileParameter, value: Value) -> Value:
        """The value nearest to the wanted one that the parameter allows and the dimension needs."""
        if parameter.choices is not None:
            return value if value in parameter.choices else parameter.choices[0]
        assert isinstance(value, int)
        extent = self.shape.dimensions.get(parameter.dimension or "") if parameter.role == "tile" else None
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
