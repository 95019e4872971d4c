"""The program a report is about: tile parameters that nobody gave are chosen here, since nothing is compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from core._tilelang import trace
from core.errors import TileHALError
from core.program.capacity import violations
from core.tiling.candidates import candidates
from core.tiling.classify import shape_of
from core.tiling.factory import KernelFactory
from core.tiling.parameters import Value

if TYPE_CHECKING:
    from core.hardware import Chip
    from core.program import Program

#: Candidates looked at for tiles that fit every chip.
_MOST_CANDIDATES = 32


def traced_program(
    kernel: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], chips: Sequence[Chip]
) -> tuple[Program, dict[str, Value]]:
    """The program behind whatever a user calls a kernel, and the tile parameters chosen for it (empty when none were).

    Of a `@core.kernel` factory's candidates, in the order of the generic rules, the first that every chip can hold,
    else the first that traces.

    Raises:
        KernelError: it is no kernel, or no candidate traces.
    """
    from core.program import Program

    if not isinstance(kernel, KernelFactory):
        traced = trace(kernel, args, kwargs)
        return Program(traced.prim_func, traced.out_idx), {}
    arguments = kernel.arguments(args, kwargs)
    given = kernel.given_tiles(kwargs)
    first: tuple[Program, dict[str, Value]] | None = None
    failure: TileHALError | None = None
    for candidate in candidates(shape_of(kernel, arguments), (), given)[0][:_MOST_CANDIDATES]:
        try:
            traced = kernel.trace(arguments, candidate.tiles)
            program = Program(traced.prim_func, traced.out_idx)
            footprint = program.footprint()
        except TileHALError as error:
            failure = failure or error
            continue
        tiles = {name: value for name, value in candidate.tiles.items() if name not in given}
        first = first or (program, tiles)
        if not any(True for chip in chips for _ in violations(footprint, chip)):
            return program, tiles
    if first is None:
        raise failure or TileHALError(f"{kernel.name}: no tile parameters to try")
    return first
