"""What every workload has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from core.bench.case import Case
from core.runtime.values import torch_dtype

if TYPE_CHECKING:
    import torch

    from core.tiling.factory import KernelFactory

Inputs = Mapping[str, Any]


class NotMeasured(Exception):
    """An alternative cannot be measured here; the message says why."""


@dataclass(frozen=True, slots=True)
class Other:
    """Something else that does the same work.

    Attributes:
        arguments: tensors of its own that it is called with, outputs included.
        call: does the work on such arguments; returns the output unless `output` says where it is.
        output: position of the output among the arguments; None when the call returns it.
        checked: whether the output is the operator's. A copy's is not.
        note: what is particular about it, for people.
    """

    arguments: Sequence[Any]
    call: Callable[..., Any]
    output: int | None = None
    checked: bool = True
    note: str = ""


class Workload(ABC):
    """An operator at a shape.

    Attributes:
        output: name of the kernel's parameter that is held against :meth:`expected`.
        other_names: every name that :meth:`others` may give.
    """

    output: str
    other_names: tuple[str, ...]

    def __init__(self, case: Case) -> None:
        self.case = case
        self.shape = case.shape

    @property
    @abstractmethod
    def factory(self) -> KernelFactory:
        """The operator. Imports tilelang."""

    @property
    def arguments(self) -> dict[str, Any]:
        """What the factory is called with."""
        return {**self.shape, **self.case.options, "dtype": self.case.dtype}

    @property
    @abstractmethod
    def flops(self) -> float:
        """Operations of one call that count: without padding, and without what a mask hides."""

    @property
    @abstractmethod
    def bytes_moved(self) -> int:
        """The least traffic to global memory: every input once in, the output once out."""

    @property
    def element_bytes(self) -> int:
        """Of an operand's element."""
        return {"float32": 4, "float16": 2, "bfloat16": 2}[self.case.dtype]

    @abstractmethod
    def inputs(self, make: Make) -> Inputs:
        """Random inputs by the kernel's parameter names."""

    @abstractmethod
    def expected(self, inputs: Inputs) -> torch.Tensor:
        """The right output, in float32 or float64."""

    @abstractmethod
    def others(self, inputs: Inputs) -> dict[str, Callable[[], Other]]:
        """What a user would pick instead, by name, the one to beat first. Each may raise :class:`NotMeasured`."""


@dataclass(frozen=True, slots=True)
class Make:
    """Makes tensors of one element type on one device from one seed."""

    device: torch.device
    generator: torch.Generator
    dtype: str

    def random(self, *shape: int) -> torch.Tensor:
        """Normally distributed elements."""
        from core.tuning.inputs import random_tensor

        return random_tensor(shape, self.dtype, self.device, self.generator)


def empty_like(tensor: torch.Tensor, *shape: int) -> torch.Tensor:
    """A poisoned tensor of the same type and device, of the same shape unless another is given."""
    from core.tuning.inputs import poison

    return poison(tensor.new_empty(shape or tuple(tensor.shape)))


def on_cpu(inputs: Inputs) -> bool:
    """Whether the inputs are on the CPU."""
    return any(getattr(value, "device", None) is not None and value.device.type == "cpu" for value in inputs.values())


def dtype_of(name: str) -> torch.dtype:
    """Torch's type of TileLang's name."""
    found: torch.dtype = torch_dtype(name)
    return found
