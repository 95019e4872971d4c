"""Where the symbolic dimensions of a call are read: from the shapes and strides of its arguments."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from core.errors import ShapeMismatch
from core.runtime.signature import Signature, TensorArgument


@dataclass(frozen=True, slots=True)
class SymbolSource:
    """Where a symbolic dimension's value is read: `axis` of a tensor's `shape` or `strides`, divided by `factor`.

    Attributes:
        argument: position of the tensor among the parameters.
    """

    argument: int
    attribute: str
    axis: int
    factor: int

    def read(self, tensor: Any) -> Any:
        """The dimension's value, from the tensor of a call."""
        extents = tensor.shape if self.attribute == "shape" else tensor.stride()
        return extents[self.axis] // self.factor


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
