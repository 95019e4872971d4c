"""`Program`: a PrimFunc and everything derived from it, each made when first asked for."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from numbers import Integral
from typing import TYPE_CHECKING, Any

from core._dtypes import has_odd_bits
from core.errors import KernelError, Location, ShapeMismatch, UnsupportedOp
from core.program.expressions import constant_int, to_python
from core.program.nodes import Buffer, Expr, View
from core.runtime.signature import ScalarArgument, Signature, TensorArgument

if TYPE_CHECKING:
    from core.program.footprint import Footprint


class Program:
    """A TileLang kernel as it was traced, with its tile-level view.

    Args:
        prim_func: `tvm.tirx.PrimFunc`, before any lowering.
        out_idx: positions of the parameters that are outputs, negative from the end; None takes the kernel's own
            (`tilelang_out_idx`, which eager kernels carry) or none.
        name: name of the program; the function's own by default.

    Raises:
        KernelError: an output position that is no position of a tensor parameter, or given twice.
    """

    def __init__(self, prim_func: Any, out_idx: Sequence[int] | int | None = None, name: str | None = None) -> None:
        self.prim_func = prim_func
        attrs = prim_func.attrs
        self.name = name or (str(attrs["global_symbol"]) if attrs and "global_symbol" in attrs else "main")
        self.outputs = self._outputs(out_idx)

    def _outputs(self, out_idx: Sequence[int] | int | None) -> tuple[int, ...]:
        """Non-negative positions of the outputs in the order they are returned."""
        attrs = self.prim_func.attrs
        if out_idx is None and attrs and "tilelang_out_idx" in attrs:
            own = attrs["tilelang_out_idx"]
            out_idx = [int(position) for position in own] if hasattr(own, "__iter__") else int(own)
        if out_idx is None:
            return ()
        params = self.prim_func.params
        positions: list[int] = []
        listed: list[Any] = list(out_idx) if isinstance(out_idx, (list, tuple)) else [out_idx]
        for given in listed:
            if given is True or given is False or not isinstance(given, Integral):
                raise KernelError(
                    f"output position {given!r} of {self.name} is no integer",
                    hint="out_idx counts the parameters of the kernel from 0; a factory's `out` names them",
                    location=self.location,
                )
            position = int(given) + len(params) if given < 0 else int(given)
            if not 0 <= position < len(params) or params[position] not in self.prim_func.buffer_map:
                raise KernelError(
                    f"output position {given} is no tensor parameter of {self.name} ({len(params)} parameters)",
                    hint="out_idx counts the parameters of the kernel from 0, or from the end when negative",
                    location=self.location,
                )
            if position in positions:
                raise KernelError(
                    f"output position {given} is given twice",
                    hint="list each output of the kernel once: the call returns one tensor for each position",
                    location=self.location,
                )
            positions.append(position)
        return tuple(positions)

    @cached_property
    def location(self) -> Location | None:
        """The line of the kernel function."""
        from core.program.tir.spans import function_location

        return function_location(self.prim_func)

    @cached_property
    def parameter_locations(self) -> tuple[Location | None, ...]:
        """The line that declares each parameter, in order; the function's line for scalars."""
        from core.program.tir.spans import buffer_location

        function = self.prim_func
        return tuple(
            (buffer_location(function.buffer_map[param]) if param in function.buffer_map else None) or self.location
            for param in function.params
        )

    @cached_property
    def view(self) -> View:
        """The tile-level view (docs/program.md), statically checked.

        Raises:
            ShapeMismatch: regions that do not fit their buffers or each other (user's line).
            UnsupportedOp: statements outside every `T.Kernel`.
        """
        from core.program.check import check
        from core.program.tir.launches import build_view

        view = build_view(self.prim_func, self.name, self.outputs)
        check(view)
        return view

    @cached_property
    def signature(self) -> Signature:
        """The calling convention: parameters in order, symbolic dimensions, outputs.

        Raises:
            UnsupportedOp: a tensor of a dtype that torch has no tensors of, at the parameter's line.
        """
        view = self.view
        arguments: list[TensorArgument | ScalarArgument] = []
        for parameter in view.parameters:
            if parameter.buffer is None:
                assert parameter.scalar is not None
                arguments.append(ScalarArgument(parameter.name, parameter.scalar.dtype))
                continue
            buffer = parameter.buffer
            _check_dtype(buffer)
            arguments.append(
                TensorArgument(
                    name=parameter.name,
                    dtype=buffer.dtype,
                    shape=self._dimensions(buffer, buffer.shape),
                    strides=None if buffer.is_packed else self._dimensions(buffer, buffer.strides),
                    is_output=parameter.is_output,
                    reads=parameter.reads,
                    writes=parameter.writes,
                )
            )
        return Signature(self.name, tuple(arguments), tuple(symbol.name for symbol in view.symbols), self.outputs)

    def _dimensions(self, buffer: Buffer, exprs: tuple[Expr, ...]) -> tuple[int | str, ...]:
        dimensions: list[int | str] = []
        for expr in exprs:
            value = constant_int(expr)
            try:
                dimensions.append(to_python(expr) if value is None else value)
            except ValueError as error:
                raise KernelError(
                    f"a dimension of {buffer.name} is not an integer expression over symbols and scalar parameters",
                    hint="use T.dynamic sizes and integer arithmetic in tensor shapes",
                    location=buffer.location,
                ) from error
        return tuple(dimensions)

    def footprint(self, symbols: Mapping[str, int] | None = None) -> Footprint:
        """What the program needs and does, whatever the chip.

        Args:
            symbols: values of symbolic dimensions by name; figures that depend on others are None.
        """
        from core.program.footprint import footprint

        return footprint(self.view, symbols)

    def fingerprint(self) -> str:
        """Identifies the kernel's meaning and schedule across processes: 64 hexadecimal digits.

        Of the structural hash (sensitive to annotations, layouts and call attributes, not to names or lines), the
        script with its metadata (the same to the last constant, in case two hashes collide) and the outputs.
        """
        import tilelang  # noqa: F401  # before tvm_ffi: the one it ships must load
        import tvm_ffi

        digest = hashlib.sha256()
        for part in (
            str(tvm_ffi.structural_hash(self.prim_func)),
            self.prim_func.script(show_meta=True),
            str(self.outputs),
            self.name,
        ):
            digest.update(part.encode())
            digest.update(b"\0")
        return digest.hexdigest()


def _check_dtype(parameter: Buffer) -> None:
    """Refuses a tensor that no call could pass."""
    from core.runtime.values import torch_dtype

    try:
        torch_dtype(parameter.dtype)
    except ShapeMismatch as error:
        packed = "declare the tensor as uint8 and take the values apart in the kernel: shifts, masks, T.reinterpret"
        raise UnsupportedOp(
            f"{parameter.name} is a tensor of {parameter.dtype}, and torch has no such tensors to pass",
            hint="use one of the types of docs/program.md" if has_odd_bits(parameter.dtype) else packed,
            location=parameter.location,
        ) from error
