"""What a kernel computes, in one word, read off a trace: rules are given by operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from core.errors import TileHALError
from core.tiling.candidates import candidates
from core.tiling.rules import KernelShape, Tiles

if TYPE_CHECKING:
    from core.program import Program
    from core.program.nodes import View
    from core.tiling.factory import KernelFactory

#: Generic configurations tried before a kernel that traces with none of them is taken to be at fault.
_ATTEMPTS = 8


def shape_of(
    factory: KernelFactory, arguments: Mapping[str, Any], options: Mapping[str, Any] | None = None
) -> KernelShape:
    """What is known of a kernel without tracing it; its operator, its dtypes and whether it gathers are not."""
    dimensions = {
        name: value for name, value in arguments.items() if isinstance(value, int) and not isinstance(value, bool)
    }
    return KernelShape(factory.name, "elementwise", dimensions, (), factory.parameters, options or {})


def classified(shape: KernelShape, overrides: Tiles, trace: Callable[[Tiles], Program]) -> KernelShape:
    """The shape with what only a trace says: of the first generic tiles that trace.

    What the caller fixed may not go with any generic tile: a variant that holds rows whole, say. The operator is then
    read off a trace that leaves it out. Only the chip's rules know which tiles go with it.

    Raises:
        TileHALError: none does; what the first one failed with.
    """
    failure: TileHALError | None = None
    for tiles in _generic(shape, overrides):
        try:
            view = trace(tiles).view
        except TileHALError as error:
            failure = failure or error
            continue
        return classified_by(shape, view)
    if failure is not None:
        raise failure
    return shape


def _generic(shape: KernelShape, overrides: Tiles) -> Iterator[Tiles]:
    """Generic tiles with what the caller fixed; then, unless that is every parameter, generic tiles without it."""
    partly = 0 < len(overrides) < len(shape.parameters)
    for fixed in (overrides, {}) if partly else (overrides,):
        yield from (candidate.tiles for candidate in candidates(shape, (), fixed)[0][:_ATTEMPTS])


def classified_by(shape: KernelShape, view: View) -> KernelShape:
    """The shape with the operator and the dtypes of a traced program, and whether it gathers."""
    dtypes = tuple(p.buffer.dtype for p in view.parameters if p.buffer is not None)
    return replace(shape, operator=operator_of(view), dtypes=dtypes, gathers=_gathers(view))


def _gathers(view: View) -> bool:
    """See `KernelShape.gathers`. Which tiles a window is copied whole with, the trace of one of them does not say."""
    from core.program.nodes import Im2Col, Parallel
    from core.program.walk import statements
    from core.tiling.profile.reading.elements import filled, scattered

    return any(
        isinstance(node, Im2Col) or (isinstance(node, Parallel) and bool(filled(node)) and scattered(node))
        for node in statements(view)
    )


def operator_of(view: View) -> str:
    """`gemm`, `attention` (several products and a reduction), `reduction` or `elementwise`."""
    from core.program.nodes import Gemm, Reduce
    from core.program.walk import statements

    nodes = list(statements(view))
    products = sum(isinstance(node, Gemm) for node in nodes)
    reduces = any(isinstance(node, Reduce) for node in nodes)
    if products:
        return "attention" if products > 1 and reduces else "gemm"
    return "reduction" if reduces else "elementwise"
