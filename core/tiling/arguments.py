"""What the arguments of a factory may be, said before anything is traced or ranked: extents and names of dtypes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from core._dtypes import has_odd_bits, meant_dtype
from core.errors import KernelError

if TYPE_CHECKING:
    from core.tiling.factory import KernelFactory


def check_arguments(factory: KernelFactory, arguments: Mapping[str, Any]) -> None:
    """Refuses what the chip's rules could choose no tiles for, and what would end in TVM's own words.

    Args:
        arguments: every argument but the tile parameters, by name.

    Raises:
        KernelError: an extent that is tiled is no int of 1 or more and no symbolic size; a whole number is a text or a
            list; or a text is spelt like a dtype and is none.
    """
    tiled = {p.dimension for p in factory.parameters.values() if p.role in ("tile", "split")}
    for name, value in arguments.items():
        parameter = factory.signature.parameters[name]
        if value is None and parameter.default is None:
            continue
        if name in tiled:
            _check_extent(factory, name, value)
        elif parameter.annotation in (int, "int") and (value is None or isinstance(value, (str, list, tuple, dict))):
            raise KernelError(
                f"{factory.name}: {name}={value!r}, and {name} is an int",
                hint=_several(name, value) or f"give a number: {name}=4",
                location=factory.location,
                details={"argument": name},
            )
        elif isinstance(value, str) and has_odd_bits(value):
            raise KernelError(
                f"{factory.name}: {name}={value!r} is no dtype",
                hint=meant_dtype(value),
                location=factory.location,
                details={"argument": name},
            )


def _check_extent(factory: KernelFactory, name: str, value: Any) -> None:
    """Raises KernelError for an extent along which there is nothing to tile."""
    if _is_symbolic(value):
        return
    details = {"argument": name}
    tile = next(tile for tile, p in factory.parameters.items() if p.dimension == name and p.role in ("tile", "split"))
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        raise KernelError(
            f"{factory.name}: {name}={value!r}, and {name} is the extent that {tile} divides: an int of 1 or more, or"
            " symbolic",
            hint=_several(name, value)
            or f'give a number ({name}=512); T.dynamic("{name}"), or --dynamic {name} in the shell, for a size that is'
            " known at calls only",
            location=factory.location,
            details=details,
        )
    if value < 1:
        raise KernelError(
            f"{factory.name}: {name}={value}, and {name} is the extent that {tile} divides: 1 or more",
            hint="leave the call out where there is nothing to compute; a sum over nothing is 0"
            if value == 0
            else f"give the number of elements along {name}",
            location=factory.location,
            details=details,
        )


def _several(name: str, value: Any) -> str:
    """The hint for several values where one is asked for; empty for anything else."""
    if not isinstance(value, (list, tuple)):
        return ""
    return f"give one {name} at a time: a kernel is compiled for one shape, and only tuning takes several"


def _is_symbolic(value: object) -> bool:
    """Whether this is an expression of TVM's, which a symbolic size is; told without importing anything."""
    return type(value).__module__.partition(".")[0] == "tvm"
