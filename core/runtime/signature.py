"""The calling convention of a compiled kernel, as data: it survives in caches and exported artifacts without TVM."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class TensorArgument:
    """A tensor parameter.

    Attributes:
        shape: an int, or an integer expression over symbols and scalar parameters (`"M"`, `"2*M"`, `"(N + 7)//8"`).
        strides: the same, in elements; None when the tensor must be contiguous (row-major packed).
        is_output: allocated by the call and returned unless the caller passes it.
        reads, writes: what the kernel does with it.
        alignment: bytes its data must start at a multiple of, where the compiled kernel needs more than its
            elements do.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    strides: tuple[int | str, ...] | None = None
    is_output: bool = False
    reads: bool = True
    writes: bool = False
    kind: str = "tensor"
    alignment: int = 1


@dataclass(frozen=True, slots=True)
class ScalarArgument:
    """A scalar parameter: passed as a Python number."""

    name: str
    dtype: str
    kind: str = "scalar"


@dataclass(frozen=True, slots=True)
class Signature:
    """Parameters in order, plus the symbolic dimensions that the arguments' shapes and strides determine.

    `outputs` gives the positions of the outputs in the order they are returned.
    """

    name: str
    arguments: tuple[TensorArgument | ScalarArgument, ...]
    symbols: tuple[str, ...] = ()
    outputs: tuple[int, ...] = ()

    def is_output(self, index: int) -> bool:
        """Whether the parameter at a position is an output: allocated by a call that does not pass it."""
        argument = self.arguments[index]
        return isinstance(argument, TensorArgument) and argument.is_output

    @property
    def inputs(self) -> tuple[int, ...]:
        """Positions of the parameters that every call passes."""
        return tuple(index for index in range(len(self.arguments)) if not self.is_output(index))

    @property
    def anchor(self) -> int | None:
        """Position of the tensor whose device is the call's, an input where there is one; None without tensors."""
        tensors = [index for index, argument in enumerate(self.arguments) if isinstance(argument, TensorArgument)]
        return next((index for index in tensors if not self.is_output(index)), tensors[0] if tensors else None)

    def to_json(self) -> dict[str, Any]:
        """As JSON-able data."""
        from dataclasses import asdict

        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Signature:
        """The inverse of :meth:`to_json`."""

        def argument(item: dict[str, Any]) -> TensorArgument | ScalarArgument:
            item = dict(item)
            if item["kind"] == "scalar":
                return ScalarArgument(**item)
            item["shape"] = tuple(item["shape"])
            item["strides"] = None if item["strides"] is None else tuple(item["strides"])
            known = {field.name for field in fields(TensorArgument)}
            return TensorArgument(**{key: value for key, value in item.items() if key in known})

        return cls(
            name=data["name"],
            arguments=tuple(argument(item) for item in data["arguments"]),
            symbols=tuple(data["symbols"]),
            outputs=tuple(data["outputs"]),
        )
