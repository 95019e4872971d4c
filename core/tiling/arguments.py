"""What the arguments of a factory may be, said before anything is traced or ranked: extents and names of dtypes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from core._dtypes import DTYPES, has_odd_bits, meant_dtype
from core.errors import KernelError, ShapeMismatch

if TYPE_CHECKING:
    from core._tilelang import TracedKernel
    from core.tiling.factory import KernelFactory

#: Annotations of whole numbers, as a module has them and as one with `from __future__ import annotations` does.
_WHOLE = (int, "int", int | None, "int | None")
_NOTHING = "leave the call out where there is nothing to compute; a sum over nothing is 0"


def checked_arguments(factory: KernelFactory, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments, with whole numbers of NumPy as Python's.

    Refused is what the chip's rules could choose no tiles for, and what would end in TVM's own words.

    Args:
        arguments: every argument but the tile parameters, by name.

    Raises:
        KernelError: an extent that is tiled is no int of 1 or more and no symbolic size; a size is symbolic that the
            factory does not declare as such; a whole number is a text or a list; or a dtype is none.
    """
    _check_symbolic(factory, arguments)
    tiled = {p.dimension for p in factory.parameters.values() if p.role in ("tile", "split")}
    checked = dict(arguments)
    for name, value in arguments.items():
        parameter = factory.signature.parameters[name]
        if value is None and parameter.default is None:
            continue
        if name in tiled:
            checked[name] = _extent(factory, name, value)
        elif parameter.annotation in _WHOLE:
            checked[name] = _number(factory, name, value)
        elif name not in factory.dtypes:
            _check_dtype(factory, name, value, is_dtype=parameter.default in DTYPES)
    return checked


def check_elements(factory: KernelFactory, traced: TracedKernel) -> None:
    """Refuses a trace that reads or writes a tensor without elements: rules and copy engines take sizes of 1 or more.

    Raises:
        KernelError: names the tensor.
    """
    buffers = [traced.prim_func.buffer_map[p] for p in traced.prim_func.params if p in traced.prim_func.buffer_map]
    if not any(getattr(extent, "value", None) == 0 for buffer in buffers for extent in buffer.shape):
        return
    from core.program import Program
    from core.program.expressions import constant_int

    for parameter in Program(traced.prim_func, traced.out_idx).view.parameters:
        buffer = parameter.buffer
        if buffer is None or not (parameter.reads or parameter.writes) or 0 not in map(constant_int, buffer.shape):
            continue
        raise KernelError(
            f"{factory.name}: {parameter.name} has no elements: a dimension of it is 0",
            hint=_NOTHING,
            location=buffer.location or factory.location,
        )


def check_sizes(factory: KernelFactory, traced: TracedKernel) -> None:
    """Refuses a trace with a symbolic size that a call could not read off its arguments, which every launch has to.

    Raises:
        ShapeMismatch: names the size.
    """
    buffers = [traced.prim_func.buffer_map[p] for p in traced.prim_func.params if p in traced.prim_func.buffer_map]
    if not any(_is_symbolic(extent) and not hasattr(extent, "value") for buffer in buffers for extent in buffer.shape):
        return
    from core.program import Program
    from core.runtime.symbols import symbol_sources

    try:
        symbol_sources(Program(traced.prim_func, traced.out_idx).signature)
    except ShapeMismatch as error:
        raise ShapeMismatch(error.message, hint=error.hint, location=error.location or factory.location) from error


def check_extents(factory: KernelFactory, extents: Mapping[str, Any] | None) -> None:
    """Refuses what no symbolic size of a factory can be while it is measured: a factory's kernel has no empty tensors.

    Args:
        extents: by the name of a symbolic size.

    Raises:
        KernelError: one is no int of 1 or more.
    """
    for name, extent in (extents or {}).items():
        if not _is_integer(extent) or extent < 1:
            raise KernelError(
                f"{factory.name}: {name} cannot be {extent!r} while it is measured: an int of 1 or more",
                hint=f"say what to measure: symbols={{{name!r}: 4096}}; the tiles that are found serve every {name}",
                location=factory.location,
                details={"argument": name},
            )


def _check_symbolic(factory: KernelFactory, arguments: Mapping[str, Any]) -> None:
    """Raises KernelError for a symbolic size where the factory declares that it needs the number."""
    if factory.symbolic is None:
        return
    groups = {name: names for names in factory.symbolic for name in names}
    allowed = ", ".join(" and ".join(names) + " (as one size)" * (len(names) > 1) for names in factory.symbolic)
    for name, value in arguments.items():
        if not _is_symbolic(value) or name in factory.dtypes:
            continue
        others = [other for other in groups.get(name, ()) if not _is_same(arguments[other], value)]
        if name in groups and not others:
            continue
        if others:
            problem = f"{name} is symbolic, and {' and '.join(others)} not the same size"
            together = ", ".join(f"{one}=size" for one in groups[name])
            hint = f'give one size for them (size = T.dynamic("{name}"), {together}), or numbers'
        else:
            problem = f"{name} is symbolic, and its kernels are made for one {name}"
            hint = f"give a number for {name} (in the shell --param {name}=NUMBER), and compile for each that comes"
        raise KernelError(
            f"{factory.name}: {problem}: {f'symbolic may be {allowed}' if allowed else 'no argument may be symbolic'}",
            hint=hint,
            location=factory.location,
            details={"argument": name, "allowed": [list(names) for names in factory.symbolic]},
        )


def _number(factory: KernelFactory, name: str, value: Any) -> Any:
    """A whole number or symbolic size. Raises KernelError for a text, a list or None."""
    if value is None or isinstance(value, (str, list, tuple, dict)):
        raise KernelError(
            f"{factory.name}: {name}={value!r}, and {name} is an int",
            hint=_several(name, value) or f"give a number: {name}=4",
            location=factory.location,
            details={"argument": name},
        )
    return int(value) if _is_integer(value) else value


def _check_dtype(factory: KernelFactory, name: str, value: Any, *, is_dtype: bool) -> None:
    """Raises KernelError for a text that is spelt like a dtype and is none, and for no text where a dtype is wanted."""
    wrong = has_odd_bits(value) if isinstance(value, str) else False
    if is_dtype:
        # Compared by identity: NumPy's float64 equals None.
        wrong = wrong or value is None or isinstance(value, (int, float, list, tuple, dict)) or str(value) == ""
    if wrong:
        raise KernelError(
            f"{factory.name}: {name}={value!r} is no dtype",
            hint=meant_dtype(str(value)),
            location=factory.location,
            details={"argument": name},
        )


def _extent(factory: KernelFactory, name: str, value: Any) -> Any:
    """An int of 1 or more, or a symbolic size. Raises KernelError for what nothing can be tiled along."""
    if _is_symbolic(value):
        return value
    details = {"argument": name}
    tile = next(tile for tile, p in factory.parameters.items() if p.dimension == name and p.role in ("tile", "split"))
    if not _is_integer(value):
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
            hint=_NOTHING if value == 0 else f"give the number of elements along {name}",
            location=factory.location,
            details=details,
        )
    return int(value)


def _is_integer(value: object) -> bool:
    """Whether this is a whole number, Python's or NumPy's; a tensor of one element is none."""
    package = type(value).__module__.partition(".")[0]
    return not isinstance(value, bool) and package in ("builtins", "numpy") and hasattr(type(value), "__index__")


def _several(name: str, value: Any) -> str:
    """The hint for several values where one is asked for; empty for anything else."""
    if not isinstance(value, (list, tuple)):
        return ""
    return f"give one {name} at a time: a kernel is compiled for one shape, and only tuning takes several"


def _is_symbolic(value: object) -> bool:
    """Whether this is an expression of TVM's, which a symbolic size is; told without importing anything."""
    return type(value).__module__.partition(".")[0] == "tvm"


def _is_same(one: Any, other: Any) -> bool:
    """Whether two arguments are one and the same symbolic size: of equal names there may be several."""
    return one is other or (_is_symbolic(one) and bool(other.same_as(one)))
