"""What the demo computes: each kernel's shape, fresh random input, and what torch says the answer is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from demo import kernels

Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Case:
    """One kernel at one shape.

    Attributes:
        factory: the `core.kernel` factory.
        arguments: its shape arguments.
        simulated: smaller ones, for a run on a chip's simulator, which is a checker and not fast.
        inputs: makes the call's fp16 inputs for given shape arguments from a generator, on the CPU.
        reference: the result in float32, computed by torch from the same inputs.
    """

    name: str
    factory: Any
    arguments: tuple[int, ...]
    simulated: tuple[int, ...]
    inputs: Callable[..., Tensors]
    reference: Callable[..., torch.Tensor]

    @property
    def shape(self) -> str:
        return shape_text(self.arguments)


def shape_text(arguments: tuple[int, ...]) -> str:
    """`1024x1024`."""
    return "x".join(map(str, arguments))


def _normal(generator: torch.Generator, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=generator).half()


def cases() -> list[Case]:
    """GEMM, row softmax and layernorm, fp16 in and out, float32 inside."""
    return [
        Case(
            "gemm",
            kernels.matmul,
            (1024, 1024, 1024),
            (256, 256, 256),
            lambda g, m, n, k: (_normal(g, m, k), _normal(g, k, n)),
            lambda a, b: a.float() @ b.float(),
        ),
        Case(
            "softmax",
            kernels.softmax,
            (4096, 4096),
            (64, 1024),
            lambda g, rows, columns: (_normal(g, rows, columns),),
            lambda x: torch.softmax(x.float(), dim=1),
        ),
        Case(
            "layernorm",
            kernels.layernorm,
            (4096, 4096),
            (64, 1024),
            lambda g, rows, columns: (_normal(g, rows, columns), _normal(g, columns), _normal(g, columns)),
            lambda x, g, b: torch.nn.functional.layer_norm(x.float(), x.shape[1:], g.float(), b.float()),
        ),
    ]
