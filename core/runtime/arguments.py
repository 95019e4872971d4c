"""Binding a call's arguments to a signature: checked, outputs allocated, symbolic dimensions solved.

The checks are compiled once per signature into one straight-line Python function, because a launch runs them every
time. That fast path only answers yes or no; on a no, :func:`explain` walks the arguments again and says exactly what is
wrong. `tests/runtime/test_arguments.py` holds the two against each other.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from core.errors import LaunchError, Location, ShapeMismatch, TileHALError
from core.runtime.extents import Extent
from core.runtime.signature import ScalarArgument, Signature, TensorArgument
from core.runtime.values import as_scalar, explain_scalar, has_memory, why_unreadable

if TYPE_CHECKING:
    import torch

#: A bound call: every argument in order, the symbolic dimensions, and what the call returns.
Bound = tuple[tuple[Any, ...], dict[str, int], Any]

_NAME = re.compile(r"[A-Za-z_]\w*")


def torch_dtype(dtype: str) -> torch.dtype:
    """The torch dtype that stores TileLang's `dtype`. Raises ShapeMismatch when torch has none."""
    import torch

    found = getattr(torch, {"float8_e4m3": "float8_e4m3fn", "float": "float32"}.get(dtype, dtype), None)
    if not isinstance(found, torch.dtype):
        raise ShapeMismatch(f"torch has no dtype for {dtype}", hint="use a dtype that torch tensors can carry")
    return found


class SymbolSource:
    """Where a symbolic dimension's value is read: `axis` of a tensor's shape or stride, divided by `factor`."""

    __slots__ = ("argument", "attribute", "axis", "factor")

    def __init__(self, argument: int, attribute: str, axis: int, factor: int) -> None:
        self.argument = argument
        self.attribute = attribute
        self.axis = axis
        self.factor = factor


def symbol_sources(signature: Signature) -> dict[str, SymbolSource]:
    """For each symbolic dimension, the argument that determines it: inputs before outputs, shapes before strides.

    Raises:
        ShapeMismatch: a symbol appears in no plain or scaled form (`M`, `2*M`) in any shape or stride.
    """
    scaled = re.compile(r"^(?:(\d+)\s*\*\s*)?([A-Za-z_]\w*)(?:\s*\*\s*(\d+))?$")
    found: dict[str, SymbolSource] = {}
    tensors = [(i, a) for i, a in enumerate(signature.arguments) if isinstance(a, TensorArgument)]
    for want_output in (False, True):
        for attribute in ("shape", "strides"):
            for index, argument in tensors:
                if argument.is_output != want_output:
                    continue
                for axis, extent in enumerate(getattr(argument, attribute) or ()):
                    match = scaled.match(extent) if isinstance(extent, str) else None
                    if match and match[2] in signature.symbols:
                        factor = int(match[1] or match[3] or 1)
                        known = found.get(match[2])
                        if known is None:
                            found[match[2]] = SymbolSource(index, attribute, axis, factor)
    missing = [symbol for symbol in signature.symbols if symbol not in found]
    if missing:
        raise ShapeMismatch(
            f"{signature.name}: no argument's shape determines {', '.join(missing)}",
            hint="make each symbolic dimension the whole extent of some tensor's axis, or pass it as a scalar",
        )
    return found


class Binder:
    """Checks and completes the arguments of one kernel.

    Args:
        signature: the kernel's calling convention.
        device_type: torch device type the tensors must live on (`cuda`, `cpu`, `npu`).
        locations: line of each parameter in the user's kernel, for messages.
        location: line of the kernel itself, for messages about a call as a whole.

    Calling it with the inputs allocates the outputs; with all arguments, uses the outputs given.
    """

    def __init__(
        self,
        signature: Signature,
        device_type: str,
        locations: Sequence[Location | None] | None = None,
        location: Location | None = None,
    ) -> None:
        self.signature = signature
        self.device_type = device_type
        self.location = location
        self.locations = tuple(locations or (None,) * len(signature.arguments))
        self._sources = symbol_sources(signature)
        self._names = [argument.name for argument in signature.arguments]
        self._fast = self._compile()

    def __call__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Bound:
        """Raises: ShapeMismatch (rank, extent, dtype), LaunchError (count, type, device, contiguity)."""
        if kwargs:
            args = self._positional(args, kwargs)
        bound = self._fast(args)
        if bound is None:
            raise self.explain(args)
        return bound

    # ------------------------------------------------------------------------------------------------ fast path

    def _compile(self) -> Callable[[tuple[Any, ...]], Bound | None]:
        """Writes the straight-line check for this signature and compiles it."""
        arguments = self.signature.arguments
        inputs = [i for i in range(len(arguments)) if not self._is_output(i)]
        symbols = {symbol: f"v_{symbol}" for symbol in self.signature.symbols}
        environment: dict[str, Any] = {"device_type": self.device_type}
        lines = ["def bind(args):", "    n = len(args)"]
        everything = ", ".join(f"a{i}" for i in range(len(arguments)))
        comma = "," if len(arguments) == 1 else ""
        if len(inputs) < len(arguments):
            given = ", ".join(f"a{i}" for i in inputs)
            lines.append(f"    if n == {len(inputs)}:")
            lines.append(f"        {given}{',' if len(inputs) == 1 else ''} = args" if inputs else "        pass")
            lines.append("        allocate = True")
            lines.append(f"    elif n == {len(arguments)}:")
            lines.append(f"        {everything}{comma} = args")
            lines.append("        allocate = False")
            lines.append("    else:\n        return None")
        else:
            lines.append(f"    if n != {len(arguments)}: return None")
            if arguments:
                lines.append(f"    {everything}{comma} = args")
            lines.append("    allocate = False")
        scalars = {
            argument.name: f"a{i}" for i, argument in enumerate(arguments) if isinstance(argument, ScalarArgument)
        }
        lines.append("    try:")
        for i in inputs:
            lines += _indented(self._check_scalar_or_header(i, environment), 8)
        for symbol, source in self._sources.items():
            if not self._is_output(source.argument):
                lines.append("        " + self._solve(symbol, source, symbols))
        names = {**symbols, **scalars}
        for i in inputs:
            lines += _indented(self._check_extents(i, names), 8)
        if len(inputs) < len(arguments):
            lines.append("        if allocate:")
            anchor = next((i for i in inputs if isinstance(arguments[i], TensorArgument)), None)
            if any(self._is_output(source.argument) for source in self._sources.values()):
                lines.append("            return None")
            for i in range(len(arguments)):
                if self._is_output(i):
                    lines.append("            " + self._allocate(i, anchor, names, environment))
            lines.append("        else:")
            for i in range(len(arguments)):
                if self._is_output(i):
                    lines += _indented(self._check_scalar_or_header(i, environment), 12)
            for symbol, source in self._sources.items():
                if self._is_output(source.argument):
                    lines.append("            " + self._solve(symbol, source, symbols))
            for i in range(len(arguments)):
                if self._is_output(i):
                    lines += _indented(self._check_extents(i, names), 12)
        lines.append("    except (AttributeError, TypeError):\n        return None")
        values = ", ".join(f"{symbol!r}: {variable}" for symbol, variable in symbols.items())
        outputs = ", ".join(f"a{i}" for i in self.signature.outputs)
        result = f"[{outputs}]" if len(self.signature.outputs) > 1 else outputs or "None"
        lines.append(f"    return ({everything}{comma}), {{{values}}}, {result}")
        namespace: dict[str, Any] = environment
        exec("\n".join(lines), namespace)
        bind: Callable[[tuple[Any, ...]], Bound | None] = namespace["bind"]
        return bind

    def _anchor(self) -> int | None:
        """The tensor that is looked at first: the others must be on its device."""
        tensors = [i for i, argument in enumerate(self.signature.arguments) if isinstance(argument, TensorArgument)]
        return next((i for i in tensors if not self._is_output(i)), tensors[0] if tensors else None)

    def _is_output(self, index: int) -> bool:
        argument = self.signature.arguments[index]
        return isinstance(argument, TensorArgument) and argument.is_output

    def _check_scalar_or_header(self, index: int, environment: dict[str, Any]) -> list[str]:
        """Lines that check what can be checked before the symbols are known."""
        argument = self.signature.arguments[index]
        name = f"a{index}"
        if isinstance(argument, ScalarArgument):
            environment[f"scalar_{index}"] = partial(as_scalar, dtype=argument.dtype)
            return [f"{name} = scalar_{index}({name})", f"if {name} is None: return None"]
        environment[f"dtype_{index}"] = torch_dtype(argument.dtype)
        environment["has_memory"] = has_memory
        lines = [
            f"if not has_memory({name}): return None",
            f"if {name}.dtype is not dtype_{index}: return None",
            f"device = {name}.device\nif device.type != device_type: return None"
            if index == self._anchor()
            else f"if {name}.device != device: return None",
            f"s{index} = {name}.shape",
            f"if len(s{index}) != {len(argument.shape)}: return None",
        ]
        if argument.alignment > 1:
            lines.append(f"if {name}.data_ptr() & {argument.alignment - 1}: return None")
        if argument.strides is None:
            lines.append(f"if not {name}.is_contiguous(): return None")
        else:
            lines.append(f"t{index} = {name}.stride()")
        return lines

    def _solve(self, symbol: str, source: SymbolSource, symbols: Mapping[str, str]) -> str:
        array = f"{'s' if source.attribute == 'shape' else 't'}{source.argument}"
        value = f"{array}[{source.axis}]"
        return f"{symbols[symbol]} = {value}" + (f" // {source.factor}" if source.factor != 1 else "")

    def _check_extents(self, index: int, names: Mapping[str, str]) -> list[str]:
        argument = self.signature.arguments[index]
        if isinstance(argument, ScalarArgument):
            return []
        lines = []
        for array, extents in (("s", argument.shape), ("t", argument.strides or ())):
            tests = [f"{array}{index}[{axis}] != {_expression(e, names)}" for axis, e in enumerate(extents)]
            if tests:
                lines.append(f"if {' or '.join(tests)}: return None")
        return lines

    def _allocate(self, index: int, anchor: int | None, names: Mapping[str, str], environment: dict[str, Any]) -> str:
        import torch

        argument = self.signature.arguments[index]
        assert isinstance(argument, TensorArgument)
        environment[f"dtype_{index}"] = torch_dtype(argument.dtype)
        environment["empty"], environment["empty_strided"] = torch.empty, torch.empty_strided
        device = f"a{anchor}.device" if anchor is not None else "device_type"
        shape = "(" + "".join(f"{_expression(e, names)}, " for e in argument.shape) + ")"
        environment["usable"] = self._usable
        if argument.strides is None:
            return f"a{index} = usable(empty({shape}, dtype=dtype_{index}, device={device}))"
        strides = "(" + "".join(f"{_expression(e, names)}, " for e in argument.strides) + ")"
        return f"a{index} = usable(empty_strided({shape}, {strides}, dtype=dtype_{index}, device={device}))"

    def _usable(self, made: torch.Tensor) -> torch.Tensor:
        """An output that was allocated just now: a mode that is active can make something else of it than memory."""
        unreadable = why_unreadable(made)
        if unreadable is None:
            return made
        raise LaunchError(
            f"{self.signature.name}: an output that torch allocates here {unreadable[0]}",
            hint="call the kernel outside of the mode or transform that is active, or pass the outputs",
            location=self.location,
        )

    # ------------------------------------------------------------------------------------------------ slow path

    def _positional(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        unknown = [name for name in kwargs if name not in self._names]
        if unknown:
            raise LaunchError(
                f"{self.signature.name} has no parameter {unknown[0]!r}",
                hint=f"its parameters are {', '.join(self._names)}",
                location=self.location,
            )
        values = dict(zip(self._names, args, strict=False))
        twice = [name for name in kwargs if name in values]
        if twice:
            raise LaunchError(
                f"{self.signature.name} got {twice[0]!r} twice",
                hint="pass it by position or by name, not both",
                location=self.location,
            )
        values.update(kwargs)
        order = self._names
        if not all(name in values for name in order):
            order = [name for i, name in enumerate(self._names) if not self._is_output(i)]
        missing = [name for name in order if name not in values]
        if not missing and len(values) > len(order):
            # An output among several would otherwise be left as it is, silently.
            missing = [name for i, name in enumerate(self._names) if self._is_output(i) and name not in values]
        if missing:
            raise LaunchError(
                f"{self.signature.name} misses {', '.join(missing)}",
                hint=f"its parameters are {', '.join(self._names)}",
                location=self.location,
            )
        return tuple(values[name] for name in order)

    def explain(self, args: tuple[Any, ...]) -> TileHALError:
        """The error behind a call the fast path refused."""
        name = self.signature.name
        arguments = self.signature.arguments
        inputs = [i for i in range(len(arguments)) if not self._is_output(i)]
        if len(args) == len(arguments):
            positions = list(range(len(arguments)))
        elif len(args) == len(inputs):
            positions = inputs
        else:
            wanted = f"{len(inputs)} inputs" + (
                f", or {len(arguments)} arguments with the outputs" if len(inputs) < len(arguments) else ""
            )
            return LaunchError(
                f"{name} takes {wanted} ({', '.join(self._names)}), got {len(args)}",
                hint="pass the tensors in the order of the kernel's parameters",
                location=self.location,
            )
        given = dict(zip(positions, args, strict=True))
        for index, value in given.items():
            error = self._explain_header(index, value) or self._explain_device(index, value, given)
            if error is not None:
                return error
        values: dict[str, Any] = {
            argument.name: as_scalar(given[i], argument.dtype)
            for i, argument in enumerate(arguments)
            if isinstance(argument, ScalarArgument) and i in given
        }
        for symbol, source in self._sources.items():
            if source.argument in given:
                tensor = given[source.argument]
                read = tensor.shape if source.attribute == "shape" else tensor.stride()
                values[symbol] = read[source.axis] // source.factor
        for index, value in given.items():
            error = self._explain_extents(index, value, values)
            if error is not None:
                return error
        unknown = [symbol for symbol, source in self._sources.items() if source.argument not in given]
        if unknown:
            return LaunchError(
                f"{name}: {', '.join(unknown)} is known from an output only, so the outputs cannot be allocated",
                hint="pass the outputs as well",
                location=self.location,
            )
        return LaunchError(
            f"{name}: the arguments do not fit its signature", hint=str(self.signature), location=self.location
        )

    def _explain_header(self, index: int, value: Any) -> TileHALError | None:
        import torch

        argument = self.signature.arguments[index]
        where = f"{self.signature.name}: argument {index} ({argument.name})"
        location = self.locations[index]
        if isinstance(argument, ScalarArgument):
            if as_scalar(value, argument.dtype) is None:
                reason, hint = explain_scalar(value, argument.dtype)
                return LaunchError(f"{where} is a scalar {argument.dtype}, {reason}", hint=hint, location=location)
            return None
        if not isinstance(value, torch.Tensor):
            return LaunchError(
                f"{where} is a tensor, got {type(value).__name__}",
                hint="convert it with torch.as_tensor",
                location=location,
            )
        unreadable = why_unreadable(value)
        if unreadable is not None:
            return LaunchError(f"{where} {unreadable[0]}", hint=unreadable[1], location=location)
        if value.dtype is not torch_dtype(argument.dtype):
            return ShapeMismatch(
                f"{where} is {argument.dtype}, got {str(value.dtype).removeprefix('torch.')}",
                hint=f"convert it with .to({torch_dtype(argument.dtype)}), or compile the kernel for its dtype",
                location=location,
            )
        if value.device.type != self.device_type:
            return LaunchError(
                f"{where} is on {value.device}, the kernel runs on {self.device_type}",
                hint=f"move it with .to({self.device_type!r})",
                location=location,
            )
        if value.dim() != len(argument.shape):
            return ShapeMismatch(
                f"{where} has rank {value.dim()} {tuple(value.shape)}, expected rank {len(argument.shape)} "
                f"{_shown(argument.shape)}",
                hint="reshape it; a kernel does not broadcast",
                location=location,
            )
        if argument.strides is None and not value.is_contiguous():
            return LaunchError(
                f"{where} must be contiguous, its strides are {value.stride()}",
                hint="pass .contiguous(), or declare the parameter as T.StridedTensor",
                location=location,
            )
        return self._explain_alignment(argument, where, value, location)

    @staticmethod
    def _explain_alignment(
        argument: TensorArgument, where: str, value: torch.Tensor, location: Location | None
    ) -> TileHALError | None:
        address, needed = value.data_ptr(), argument.alignment
        if needed == 1 or address % needed == 0:
            return None
        return LaunchError(
            f"{where} starts at {address:#x}, which is a multiple of {address & -address} bytes: its data must start"
            f" at a multiple of {needed} bytes, because the kernel moves that many at once",
            hint="pass .clone(), which starts where torch allocates, or a slice that starts at such a multiple",
            location=location,
            details={"address": address, "alignment": needed, "found": address & -address},
        )

    def _explain_device(self, index: int, value: Any, given: Mapping[int, Any]) -> TileHALError | None:
        anchor = self._anchor()
        if anchor is None or isinstance(self.signature.arguments[index], ScalarArgument):
            return None
        home = given[anchor].device
        if value.device == home:
            return None
        return LaunchError(
            f"{self.signature.name}: argument {index} ({self._names[index]}) is on {value.device}, but"
            f" {self._names[anchor]} is on {home}",
            hint="move all tensors of a call to one device",
            location=self.locations[index],
        )

    def _explain_extents(self, index: int, value: Any, values: Mapping[str, int]) -> TileHALError | None:
        argument = self.signature.arguments[index]
        if isinstance(argument, ScalarArgument):
            return None
        for what, extents, actual in (
            ("shape", argument.shape, tuple(value.shape)),
            ("strides", argument.strides or (), tuple(value.stride())),
        ):
            for axis, extent in enumerate(extents):
                expected = _evaluate(extent, values)
                if expected is not None and actual[axis] != expected:
                    detail = f" ({extent} = {expected})" if isinstance(extent, str) else ""
                    return ShapeMismatch(
                        f"{self.signature.name}: argument {index} ({argument.name}) has {what} {actual}, "
                        f"expected {_shown(extents)}: axis {axis} must be {expected}{detail}",
                        hint="compile the kernel for these shapes, or give it symbolic dimensions (T.dynamic)"
                        if isinstance(extent, int)
                        else "the arguments disagree on a symbolic dimension",
                        location=self.locations[index],
                    )
        return None


def _indented(lines: Sequence[str], spaces: int) -> list[str]:
    return [" " * spaces + line for text in lines for line in text.splitlines()]


def _expression(extent: int | str, names: Mapping[str, str]) -> str:
    """A signature's extent as Python source over local variables."""
    if isinstance(extent, int):
        return str(extent)
    return "(" + _NAME.sub(lambda m: names.get(m[0], m[0]) if not keyword.iskeyword(m[0]) else m[0], extent) + ")"


def _evaluate(extent: int | str, values: Mapping[str, int]) -> int | None:
    """The value of an extent; None when it depends on an output that was not passed."""
    try:
        return Extent(extent)(values)
    except LaunchError:
        return None


def _shown(extents: Sequence[int | str]) -> str:
    return "(" + ", ".join(str(e) for e in extents) + ("," if len(extents) == 1 else "") + ")"
