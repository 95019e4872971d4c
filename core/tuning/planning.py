"""One shape before it is tuned: its candidates in the order of the untuned ranking, its key, and what it stands for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from core.compiler.artifacts import CompileOptions
from core.errors import TileHALError, TuningError
from core.tiling import Tiles
from core.tiling.tracing import Tracer, is_symbol
from core.tuning.results.keys import key_of
from core.tuning.results.records import Key
from core.tuning.workers.jobs import Subject, Symbol

if TYPE_CHECKING:
    from core.hardware import Chip
    from core.program import Program
    from core.tiling.factory import KernelFactory
    from core.tiling.verdict import Verdict
    from core.tuning.environment import Environment
    from core.tuning.workers.shipping import Parcel

#: Blocks along a dimension that a smaller problem keeps: enough for a pipelined loop over tiles to repeat.
_BLOCKS_KEPT = 4
#: What a dimension that only makes more blocks is reduced to.
_COUNT_KEPT = 2


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be measured for one shape.

    Attributes:
        arguments: every argument but the tile parameters, as the user gave them.
        candidates: the best of the ranking, best first.
        ranked: how many candidates the whole ranking has.
        key: what results are stored under.
        structural: see :class:`core.tuning.results.records.Result`.
        subject: the kernel with these arguments, on its way to a child.
    """

    arguments: Mapping[str, Any]
    candidates: Sequence[Verdict]
    ranked: int
    key: Key
    structural: tuple[str, ...]
    subject: Subject

    def smaller(self, factory: KernelFactory, tiles: Tiles) -> Subject | None:
        """The subject with arguments a CPU runs quickly, for a candidate; None when they are small already."""
        small = smaller_arguments(factory, self.subject.arguments, tiles, self.structural)
        if small == dict(self.subject.arguments):
            return None
        return replace(self.subject, arguments=small)


def plan_shape(
    factory: KernelFactory,
    parcel: Parcel,
    arguments: Mapping[str, Any],
    fixed: Tiles,
    chip: Chip,
    options: CompileOptions,
    environment: Environment,
    most: int,
) -> Plan:
    """Ranks the candidates of a shape and works out its key.

    Args:
        fixed: tile parameters that the user gave, in every candidate as they are.
        most: candidates to measure.

    Raises:
        TuningError: nothing can be tuned: no candidate fits the chip, or every tile parameter was given.
        TileHALError: as ranking does; KernelError for an argument that results cannot be stored under.
    """
    if len(fixed) == len(factory.parameters):
        raise TuningError(
            f"{factory.name}: every tile parameter is given, there is nothing to tune",
            hint="leave out those that are to be found",
        )
    ranking = factory.rank(target=chip, options=options.backend, **arguments, **fixed)
    if not ranking.candidates:
        reasons = dict.fromkeys(verdict.reason for verdict in ranking.refused)
        raise TuningError(
            f"{factory.name}: no candidate fits {chip.target}: {'; '.join(list(reasons)[:3])}",
            hint="`tilehal tile` shows every candidate with what is in its way",
        )
    best = ranking.candidates[0]
    key = key_of(factory, arguments, chip, options, fixed, dtypes=ranking.shape.dtypes, environment=environment)
    travelling = {
        name: Symbol(value.name, str(value.dtype)) if is_symbol(value) else value for name, value in arguments.items()
    }
    return Plan(
        arguments=arguments,
        candidates=ranking.candidates[:most],
        ranked=len(ranking.candidates),
        key=key,
        structural=structural_arguments(factory, arguments, best.tiles),
        subject=Subject(parcel, travelling, chip, options),
    )


def structural_arguments(factory: KernelFactory, arguments: Mapping[str, Any], tiles: Tiles) -> tuple[str, ...]:
    """The whole numbers among the arguments that no parameter tiles and that change what a block holds.

    Found by tracing with each doubled: on-chip memory and threads stay what they are where an argument (a batch, a
    number of heads) only makes more blocks.
    """
    tiled = {parameter.dimension for parameter in factory.parameters.values() if parameter.role in ("tile", "split")}
    counts = [
        name
        for name, value in arguments.items()
        if isinstance(value, int) and not isinstance(value, bool) and value > 0 and name not in tiled
    ]
    if not counts:
        return ()
    usual = _block(Tracer(factory, arguments)(tiles))
    found = []
    for name in counts:
        try:
            other = _block(Tracer(factory, {**arguments, name: 2 * arguments[name]})(tiles))
        except TileHALError:  # it cannot even be traced: very much another block
            other = None
        if other != usual:
            found.append(name)
    return tuple(found)


def smaller_arguments(
    factory: KernelFactory, arguments: Mapping[str, Any], tiles: Tiles, structural: Sequence[str]
) -> dict[str, Any]:
    """Arguments with a few blocks along every dimension, and the same tail."""
    largest: dict[str, int] = {}
    for name, parameter in factory.parameters.items():
        value = tiles[name]
        if parameter.role == "tile" and parameter.dimension is not None and isinstance(value, int):
            largest[parameter.dimension] = max(value, largest.get(parameter.dimension, 0))
    small = dict(arguments)
    for name, value in arguments.items():
        if not isinstance(value, int) or isinstance(value, bool):
            continue
        if name in largest:
            small[name] = min(value, _BLOCKS_KEPT * largest[name] + value % largest[name])
        elif name not in structural and value > 0:
            small[name] = min(value, _COUNT_KEPT)
    return small


def _block(program: Program) -> object:
    """What a block holds, as something that can be compared."""
    return [(dict(launch.bytes), launch.threads) for launch in program.footprint().launches]
