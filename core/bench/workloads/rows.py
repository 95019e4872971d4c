"""Softmax and normalisations of rows, against Triton kernels of equal care, torch, and a copy of the same bytes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from core.bench.contenders import COPY, TORCH, TRITON, TRITON_OVERLAPPED
from core.bench.workloads.base import Inputs, Make, NotMeasured, Other, Workload, empty_like, on_cpu

if TYPE_CHECKING:
    import torch


class Rows(Workload):
    """A row operator: X in, Y out, vectors of a row's length between.

    Attributes:
        vectors: names of the kernel's parameters that are one row long.
        flops_per_element: operations that count, an exponential as one.
    """

    output = "Y"
    other_names = (TRITON, TRITON_OVERLAPPED, TORCH, COPY)
    vectors: tuple[str, ...] = ()
    flops_per_element: int

    @property
    def flops(self) -> float:
        return float(self.flops_per_element * self.shape["M"] * self.shape["N"])

    @property
    def bytes_moved(self) -> int:
        return (2 * self.shape["M"] + len(self.vectors)) * self.shape["N"] * self.element_bytes

    def inputs(self, make: Make) -> Inputs:
        rows, columns = self.shape["M"], self.shape["N"]
        return {"X": make.random(rows, columns), **{name: make.random(columns) for name in self.vectors}}

    def others(self, inputs: Inputs) -> dict[str, Callable[[], Other]]:
        x = inputs["X"]
        vectors = [inputs[name] for name in self.vectors]

        def triton(overlapped: bool) -> Other:
            if on_cpu(inputs):
                raise NotMeasured("Triton has no CPU backend")
            from core.bench import triton_rows

            call, note = triton_rows.tuned(self.case.operator, x, vectors, overlapped=overlapped)
            return Other([x, *vectors, empty_like(x)], call, output=len(vectors) + 1, note=note)

        def library() -> Other:
            return Other([x, *vectors], self.torch_call)

        def copy() -> Other:
            return Other([x, empty_like(x)], lambda source, target: target.copy_(source), output=1, checked=False)

        return {
            TRITON: partial(triton, overlapped=False),
            TRITON_OVERLAPPED: partial(triton, overlapped=True),
            TORCH: library,
            COPY: copy,
        }

    @abstractmethod
    def torch_call(self, x: torch.Tensor, *vectors: torch.Tensor) -> torch.Tensor:
        """The operator as torch has it."""

    def expected(self, inputs: Inputs) -> torch.Tensor:
        return self.torch_call(inputs["X"].double(), *(inputs[name].double() for name in self.vectors))


class Softmax(Rows):
    """Softmax; maximum, difference, power, sum and quotient count."""

    flops_per_element = 5

    @property
    def factory(self) -> Any:
        from core.ops.softmax import softmax

        return softmax

    def torch_call(self, x: torch.Tensor, *vectors: torch.Tensor) -> torch.Tensor:
        import torch

        return torch.softmax(x, -1)


class LayerNorm(Rows):
    """Layer normalisation with weight and bias; two sums, a square, a difference, two products and one sum count."""

    vectors = ("weight", "bias")
    flops_per_element = 7

    @property
    def factory(self) -> Any:
        from core.ops.layernorm import layernorm

        return layernorm

    def torch_call(self, x: torch.Tensor, *vectors: torch.Tensor) -> torch.Tensor:
        import torch

        return torch.nn.functional.layer_norm(x, (x.shape[-1],), vectors[0], vectors[1], eps=1e-5)


class RmsNorm(Rows):
    """Root-mean-square normalisation with weight; a square, a sum and two products count."""

    vectors = ("weight",)
    flops_per_element = 4

    @property
    def factory(self) -> Any:
        from core.ops.rmsnorm import rmsnorm

        return rmsnorm

    def torch_call(self, x: torch.Tensor, *vectors: torch.Tensor) -> torch.Tensor:
        import torch

        return torch.nn.functional.rms_norm(x, (x.shape[-1],), vectors[0], eps=1e-6)
