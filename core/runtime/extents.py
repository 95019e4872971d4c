"""Expressions of a signature and a launch, compiled once and evaluated at every call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import CodeType
from typing import Any

from core.errors import LaunchError, ResourceExceeded
from core.runtime.signature import ScalarArgument, Signature

_BUILTINS = {"__builtins__": {"min": min, "max": max, "int": int}}


class Expression:
    """A number, or an expression over symbolic dimensions and scalar parameters, by name.

    Raises, when called:
        LaunchError: it uses a name that is neither.
    """

    __slots__ = ("_code", "_value")

    def __init__(self, text: int | str) -> None:
        self._value = int(text) if isinstance(text, int) or text.lstrip("-").isdigit() else None
        self._code: CodeType | None = None if self._value is not None else compile(str(text), "<extent>", "eval")

    @property
    def is_constant(self) -> bool:
        return self._value is not None

    def __call__(self, values: Mapping[str, Any]) -> Any:
        """The value, given its variables by name."""
        if self._value is not None:
            return self._value
        assert self._code is not None
        try:
            return eval(self._code, _BUILTINS, dict(values))
        except NameError as error:
            raise LaunchError(
                f"the launch needs {error.name}, which no argument determines",
                hint="pass it as a scalar, or make it a tensor's extent",
            ) from error


class Extent(Expression):
    """An integer expression (`(M + 127) // 128`)."""

    __slots__ = ()

    def __call__(self, values: Mapping[str, Any]) -> int:
        """The value, given its variables by name."""
        return int(super().__call__(values))


class GridExtents:
    """The block counts of every launch of a kernel, x first."""

    __slots__ = ("_launches", "_scalars")

    def __init__(self, signature: Signature, launches: Sequence[Sequence[int | str]]) -> None:
        self._launches = tuple(tuple(Extent(text) for text in launch) for launch in launches)
        self._scalars = tuple(
            (index, argument.name)
            for index, argument in enumerate(signature.arguments)
            if isinstance(argument, ScalarArgument)
        )

    @property
    def is_constant(self) -> bool:
        """Whether no extent depends on the call."""
        return all(extent.is_constant for launch in self._launches for extent in launch)

    def __call__(self, arguments: Sequence[Any], symbols: Mapping[str, int] | None) -> tuple[tuple[int, ...], ...]:
        """The block counts of one call: every argument in order, and the symbolic dimensions."""
        values = {**(symbols or {}), **{name: arguments[index] for index, name in self._scalars}}
        return tuple(tuple(extent(values) for extent in launch) for launch in self._launches)


def check_grid(name: str, grid: Sequence[int], limits: Sequence[int]) -> None:
    """Refuses a launch of more blocks than the chip launches along an axis; one without blocks is none.

    Args:
        name: of the kernel, for the message.
        grid, limits: blocks along x, y and z.

    Raises:
        ResourceExceeded: says which axis.
    """
    if min(grid) <= 0:
        return
    for axis, (blocks, limit) in enumerate(zip(grid, limits, strict=False)):
        if blocks > limit:
            raise ResourceExceeded(
                f"{name}: {blocks} blocks along grid axis {'xyz'[axis]}, the chip launches {limit}",
                hint="put the long axis first in T.Kernel, or give each block more work",
                details={"axis": axis, "blocks": blocks, "limit": limit},
            )
