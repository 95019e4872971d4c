"""Matrix products, against torch.matmul: cuBLAS on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from core.bench.contenders import CUBLAS, TORCH
from core.bench.workloads.base import Inputs, Make, Other, Workload, empty_like, on_cpu

if TYPE_CHECKING:
    import torch


class Gemm(Workload):
    """C = A B, both row-major."""

    output = "C"
    other_names = (CUBLAS, TORCH)

    @property
    def factory(self) -> Any:
        from core.ops.gemm import gemm

        return gemm

    @property
    def flops(self) -> float:
        return 2.0 * self.shape["M"] * self.shape["N"] * self.shape["K"]

    @property
    def bytes_moved(self) -> int:
        m, n, k = (self.shape[name] for name in "MNK")
        return (m * k + k * n + m * n) * self.element_bytes

    def inputs(self, make: Make) -> Inputs:
        return {
            "A": make.random(self.shape["M"], self.shape["K"]),
            "B": make.random(self.shape["K"], self.shape["N"]),
        }

    def expected(self, inputs: Inputs) -> torch.Tensor:
        found: torch.Tensor = inputs["A"].double() @ inputs["B"].double()
        return found

    def others(self, inputs: Inputs) -> dict[str, Callable[[], Other]]:
        import torch

        def library() -> Other:
            c = empty_like(inputs["A"], self.shape["M"], self.shape["N"])
            return Other([inputs["A"], inputs["B"], c], lambda a, b, c: torch.matmul(a, b, out=c), output=2)

        return {TORCH if on_cpu(inputs) else CUBLAS: library}
