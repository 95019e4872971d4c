"""What is wrong with the arguments of a call, said with the parameter, its line in the user's kernel and what to do.

The check that every launch runs (`arguments`, or the compiled one of `core.codegen.launch`) only answers yes or no; on
a no, the arguments are walked again here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from core.errors import LaunchError, Location, ShapeMismatch, TileHALError
from core.runtime.extents import Extent
from core.runtime.signature import ScalarArgument, Signature, TensorArgument
from core.runtime.symbols import symbol_sources
from core.runtime.values import as_scalar, explain_scalar, torch_dtype, why_unreadable

if TYPE_CHECKING:
    import torch

#: What to do about memory that a bulk tensor copy cannot describe, found when a launch describes it.
NO_TENSOR_MAP_HINT = (
    "rows are to be a multiple of 16 bytes apart, which options={'aligned_rows': True} promises of symbolic ones:"
    " compile without it, or copy that tensor with T.copy(..., disable_tma=True)"
)


class Refusals:
    """Explains refused calls of one kernel; arguments as for :class:`core.runtime.arguments.Binder`."""

    def __init__(
        self, signature: Signature, device_type: str, locations: Sequence[Location | None], location: Location | None
    ) -> None:
        self._signature = signature
        self._device_type = device_type
        self._locations = locations
        self._location = location
        self._sources = symbol_sources(signature)
        self._names = [argument.name for argument in signature.arguments]

    def explain(self, args: tuple[Any, ...]) -> TileHALError:
        """The error behind a call that was refused, given all of its arguments or the inputs only, in order."""
        name = self._signature.name
        arguments = self._signature.arguments
        inputs = self._signature.inputs
        if len(args) == len(arguments):
            positions = tuple(range(len(arguments)))
        elif len(args) == len(inputs):
            positions = inputs
        else:
            wanted = f"{len(inputs)} inputs" + (
                f", or {len(arguments)} arguments with the outputs" if len(inputs) < len(arguments) else ""
            )
            return LaunchError(
                f"{name} takes {wanted} ({', '.join(self._names)}), got {len(args)}",
                hint="pass the tensors in the order of the kernel's parameters",
                location=self._location,
            )
        given = dict(zip(positions, args, strict=True))
        for index, value in given.items():
            error = self._header(index, value) or self._device(index, value, given)
            if error is not None:
                return error
        values: dict[str, Any] = {
            argument.name: as_scalar(given[i], argument.dtype)
            for i, argument in enumerate(arguments)
            if isinstance(argument, ScalarArgument) and i in given
        }
        for symbol, source in self._sources.items():
            if source.argument in given:
                values[symbol] = source.read(given[source.argument])
        for index, value in given.items():
            error = self._extents(index, value, values) or self._layout(index, value)
            if error is not None:
                return error
        unknown = [symbol for symbol, source in self._sources.items() if source.argument not in given]
        if unknown:
            return LaunchError(
                f"{name}: {', '.join(unknown)} is known from an output only, so the outputs cannot be allocated",
                hint="pass the outputs as well",
                location=self._location,
            )
        for index, argument in enumerate(arguments):
            if isinstance(argument, TensorArgument) and index not in given:
                extents = [_evaluate(extent, values) for extent in argument.shape]
                if any(extent is not None and extent < 0 for extent in extents):
                    shown = f"({', '.join(map(str, extents))})"
                    return ShapeMismatch(
                        f"{name}: with these inputs its output {argument.name}, {_shown(argument.shape)}, is {shown}",
                        hint="give inputs as large as the kernel is made for",
                        location=self._locations[index],
                    )
        return LaunchError(
            f"{name}: the arguments do not fit its signature", hint=str(self._signature), location=self._location
        )

    def _header(self, index: int, value: Any) -> TileHALError | None:
        import torch

        argument = self._signature.arguments[index]
        where = f"{self._signature.name}: argument {index} ({argument.name})"
        location = self._locations[index]
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
        if value.device.type != self._device_type:
            return LaunchError(
                f"{where} is on {value.device}, the kernel runs on {self._device_type}",
                hint=f"move it with .to({self._device_type!r})",
                location=location,
            )
        if value.dim() != len(argument.shape):
            return ShapeMismatch(
                f"{where} has rank {value.dim()} {tuple(value.shape)}, expected rank {len(argument.shape)} "
                f"{_shown(argument.shape)}",
                hint="reshape it; a kernel does not broadcast",
                location=location,
            )
        return None

    def _layout(self, index: int, value: torch.Tensor) -> TileHALError | None:
        """How a tensor lies in memory, asked last: making it contiguous helps none of a wrong shape."""
        argument = self._signature.arguments[index]
        if isinstance(argument, ScalarArgument):
            return None
        where = f"{self._signature.name}: argument {index} ({argument.name})"
        location = self._locations[index]
        if argument.strides is None and not value.is_contiguous():
            return LaunchError(
                f"{where} must be contiguous, its strides are {value.stride()}",
                hint="pass .contiguous(), or declare the parameter as T.StridedTensor",
                location=location,
            )
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

    def _device(self, index: int, value: Any, given: Mapping[int, Any]) -> TileHALError | None:
        anchor = self._signature.anchor
        if anchor is None or isinstance(self._signature.arguments[index], ScalarArgument):
            return None
        home = given[anchor].device
        if value.device == home:
            return None
        return LaunchError(
            f"{self._signature.name}: argument {index} ({self._names[index]}) is on {value.device}, but"
            f" {self._names[anchor]} is on {home}",
            hint="move all tensors of a call to one device",
            location=self._locations[index],
        )

    def _extents(self, index: int, value: Any, values: Mapping[str, int]) -> TileHALError | None:
        argument = self._signature.arguments[index]
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
                        f"{self._signature.name}: argument {index} ({argument.name}) has {what} {actual}, "
                        f"expected {_shown(extents)}: axis {axis} must be {expected}{detail}",
                        hint="compile the kernel for these shapes, or give it symbolic dimensions (T.dynamic)"
                        if isinstance(extent, int)
                        else "the arguments disagree on a symbolic dimension",
                        location=self._locations[index],
                    )
        return None


def _evaluate(extent: int | str, values: Mapping[str, int]) -> int | None:
    """The value of an extent; None when it depends on an output that was not passed, or divides by zero."""
    try:
        return Extent(extent)(values)
    except (LaunchError, ZeroDivisionError):
        return None


def _shown(extents: Sequence[int | str]) -> str:
    return "(" + ", ".join(str(e) for e in extents) + ("," if len(extents) == 1 else "") + ")"
