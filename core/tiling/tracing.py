"""Traces of one factory with its arguments, each made once and counted: a trace is what ranking spends its time on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from core.tiling.rules import Tiles

if TYPE_CHECKING:
    from core._tilelang import TracedKernel
    from core.program import Program
    from core.tiling.factory import KernelFactory


class Tracer:
    """Calls `factory` with `arguments` and the tiles it is given; remembers what came out.

    Attributes:
        count: traces made, failed ones included.
    """

    def __init__(self, factory: KernelFactory, arguments: Mapping[str, Any]) -> None:
        self.factory = factory
        self.arguments = arguments
        self.count = 0
        self._made: dict[tuple[tuple[str, Any], ...], tuple[TracedKernel, Program]] = {}

    def __call__(self, tiles: Tiles) -> Program:
        """The program of a configuration, by parameter name.

        Raises:
            TileHALError: the kernel cannot be traced with it.
        """
        return self.traced(tiles)[1]

    def traced(self, tiles: Tiles) -> tuple[TracedKernel, Program]:
        """The same, with what the trace said of outputs and options."""
        from core.program import Program

        identity = tuple(sorted(tiles.items()))
        if identity not in self._made:
            self.count += 1
            kernel = self.factory.trace(self.arguments, tiles)
            self._made[identity] = (kernel, Program(kernel.prim_func, kernel.out_idx))
        return self._made[identity]


#: What a symbolic dimension is taken as when candidates are compared: long enough to fill a chip.
ASSUMED_EXTENT = 4096


def assumed(arguments: Mapping[str, Any]) -> tuple[dict[str, int], list[str]]:
    """A number for every symbolic dimension among the arguments, by the symbol's name, and what is assumed, as text."""
    symbols = {name: value for name, value in arguments.items() if is_symbol(value)}
    return {str(symbol.name): ASSUMED_EXTENT for symbol in symbols.values()}, [
        f"{name} is symbolic: ranked as if it were {ASSUMED_EXTENT}" for name in symbols
    ]


def is_symbol(value: object) -> bool:
    """Whether an argument is a symbolic dimension (`T.dynamic`), told without importing anything."""
    kind = type(value)
    return kind.__module__.partition(".")[0] == "tvm" and kind.__name__ == "Var"
