"""Binding a call's arguments to a signature: checked, outputs allocated, symbolic dimensions solved.

The checks are compiled once per signature into one straight-line Python function, because a launch runs them every
time. It only answers yes or no; on a no, `refusals` walks the arguments again and says exactly what is wrong.
`tests/runtime/test_arguments.py` holds the two against each other.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from core.errors import LaunchError, Location
from core.runtime.refusals import Refusals
from core.runtime.signature import ScalarArgument, Signature, TensorArgument
from core.runtime.symbols import SymbolSource, symbol_sources
from core.runtime.values import as_scalar, has_memory, is_recorded, torch_dtype, why_unreadable

if TYPE_CHECKING:
    import torch

#: A bound call: every argument in order, the symbolic dimensions, and what the call returns.
Bound = tuple[tuple[Any, ...], dict[str, int], Any]

_NAME = re.compile(r"[A-Za-z_]\w*")


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
        self._refusals = Refusals(signature, device_type, self.locations, location)
        self._fast = self._compile()

    def __call__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Bound:
        """Raises: ShapeMismatch (rank, extent, dtype), LaunchError (count, type, device, contiguity; a trace)."""
        if is_recorded():
            raise LaunchError(
                f"{self.signature.name} is called while torch records operators, of which it is none: the graph would"
                " be without it",
                hint="call what k.as_torch_op(...) registers, which the graph keeps",
                location=self.location,
            )
        if kwargs:
            args = self._positional(args, kwargs)
        bound = self._fast(args)
        if bound is None:
            raise self._refusals.explain(args)
        return bound

    # ------------------------------------------------------------------------------------------------ fast path

    def _compile(self) -> Callable[[tuple[Any, ...]], Bound | None]:
        """Writes the straight-line check for this signature and compiles it."""
        arguments = self.signature.arguments
        inputs = self.signature.inputs
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
            if not self.signature.is_output(source.argument):
                lines.append("        " + self._solve(symbol, source, symbols))
        names = {**symbols, **scalars}
        for i in inputs:
            lines += _indented(self._check_extents(i, names), 8)
        if len(inputs) < len(arguments):
            lines.append("        if allocate:")
            anchor = next((i for i in inputs if isinstance(arguments[i], TensorArgument)), None)
            if any(self.signature.is_output(source.argument) for source in self._sources.values()):
                lines.append("            return None")
            for i in range(len(arguments)):
                if self.signature.is_output(i):
                    lines += _indented(self._allocate(i, anchor, names, environment), 12)
            lines.append("        else:")
            for i in range(len(arguments)):
                if self.signature.is_output(i):
                    lines += _indented(self._check_scalar_or_header(i, environment), 12)
            for symbol, source in self._sources.items():
                if self.signature.is_output(source.argument):
                    lines.append("            " + self._solve(symbol, source, symbols))
            for i in range(len(arguments)):
                if self.signature.is_output(i):
                    lines += _indented(self._check_extents(i, names), 12)
        lines.append("    except (AttributeError, TypeError, ZeroDivisionError):\n        return None")
        values = ", ".join(f"{symbol!r}: {variable}" for symbol, variable in symbols.items())
        outputs = ", ".join(f"a{i}" for i in self.signature.outputs)
        result = f"[{outputs}]" if len(self.signature.outputs) > 1 else outputs or "None"
        lines.append(f"    return ({everything}{comma}), {{{values}}}, {result}")
        namespace: dict[str, Any] = environment
        exec("\n".join(lines), namespace)
        bind: Callable[[tuple[Any, ...]], Bound | None] = namespace["bind"]
        return bind

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
            if index == self.signature.anchor
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

    def _allocate(
        self, index: int, anchor: int | None, names: Mapping[str, str], environment: dict[str, Any]
    ) -> list[str]:
        import torch

        argument = self.signature.arguments[index]
        assert isinstance(argument, TensorArgument)
        environment[f"dtype_{index}"] = torch_dtype(argument.dtype)
        environment["empty"], environment["empty_strided"] = torch.empty, torch.empty_strided
        device = f"a{anchor}.device" if anchor is not None else "device_type"
        shape = "(" + "".join(f"{_expression(e, names)}, " for e in argument.shape) + ")"
        environment["usable"] = self._usable
        # A difference can be below zero, where inputs are smaller than the kernel is made for.
        lines = [f"if {_expression(e, names)} < 0: return None" for e in argument.shape if not isinstance(e, int)]
        if argument.strides is None:
            return [*lines, f"a{index} = usable(empty({shape}, dtype=dtype_{index}, device={device}))"]
        strides = "(" + "".join(f"{_expression(e, names)}, " for e in argument.strides) + ")"
        return [*lines, f"a{index} = usable(empty_strided({shape}, {strides}, dtype=dtype_{index}, device={device}))"]

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
            order = [name for i, name in enumerate(self._names) if not self.signature.is_output(i)]
        missing = [name for name in order if name not in values]
        if not missing and len(values) > len(order):
            # An output among several would otherwise be left as it is, silently.
            missing = [name for i, name in enumerate(self._names) if self.signature.is_output(i) and name not in values]
        if missing:
            raise LaunchError(
                f"{self.signature.name} misses {', '.join(missing)}",
                hint=f"its parameters are {', '.join(self._names)}",
                location=self.location,
            )
        return tuple(values[name] for name in order)


def _indented(lines: Sequence[str], spaces: int) -> list[str]:
    return [" " * spaces + line for text in lines for line in text.splitlines()]


def _expression(extent: int | str, names: Mapping[str, str]) -> str:
    """A signature's extent as Python source over local variables."""
    if isinstance(extent, int):
        return str(extent)
    return "(" + _NAME.sub(lambda m: names.get(m[0], m[0]) if not keyword.iskeyword(m[0]) else m[0], extent) + ")"
