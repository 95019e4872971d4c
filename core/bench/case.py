"""One row of a benchmark: an operator at a shape, and the suites of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core.errors import BenchError


@dataclass(frozen=True, slots=True)
class Case:
    """An operator at a shape.

    Attributes:
        operator: a key of `core.bench.workloads.WORKLOADS`.
        shape: arguments of the operator's factory that make the shape.
        dtype: of the operands, TileLang's name.
        options: other arguments of the factory.
    """

    operator: str
    shape: Mapping[str, int]
    dtype: str = "float16"
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The shape in a few letters, operator and type left out."""
        sizes = "x".join(map(str, self.shape.values()))
        if self.operator == "attention":
            s = self.shape
            heads = str(s["heads"]) if s["heads"] == s["kv_heads"] else f"{s['heads']}/{s['kv_heads']}"
            length = str(s["M"]) if s["M"] == s["N"] else f"{s['M']}/{s['N']}"
            sizes = f"{s['batch']}x{heads}x{length}x{s['dim']}"
        elif self.operator == "mla":
            sizes = f"{self.shape['M']} heads, {self.shape['batch']} x {self.shape['N']} keys"
        words = [name if value is True else f"{name}={value}" for name, value in self.options.items()]
        return " ".join([sizes, *words])

    @property
    def name(self) -> str:
        """Operator, shape and type: unique within a suite."""
        return f"{self.operator} {self.label} {self.dtype}"

    def to_json(self) -> dict[str, Any]:
        """As JSON-able data."""
        return {
            "operator": self.operator,
            "shape": dict(self.shape),
            "dtype": self.dtype,
            "options": dict(self.options),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Case:
        """The inverse of :meth:`to_json`; other keys are left aside."""
        return cls(data["operator"], data["shape"], data["dtype"], data["options"])


#: Operators in the order they are measured and shown. `launch` is the host's time per launch.
OPERATORS = ("gemm", "softmax", "layernorm", "rmsnorm", "attention", "mla", "launch")

_ROWS = ("softmax", "layernorm", "rmsnorm")


def _gemm(shapes: Iterable[tuple[int, int, int]], dtypes: Sequence[str]) -> list[Case]:
    return [Case("gemm", dict(zip(("M", "N", "K"), shape, strict=True)), dtype) for dtype in dtypes for shape in shapes]


def _rows(shapes: Iterable[tuple[int, int]]) -> list[Case]:
    sizes = [dict(zip(("M", "N"), shape, strict=True)) for shape in shapes]
    return [Case(operator, size) for operator in _ROWS for size in sizes]


def _attention(batch: int, heads: int, kv_heads: int, length: int, dim: int, *, causal: bool = False) -> Case:
    shape = {"batch": batch, "heads": heads, "kv_heads": kv_heads, "M": length, "N": length, "dim": dim}
    return Case("attention", shape, options={"causal": True} if causal else {})


def _mla(heads: int, batch: int, keys: int) -> Case:
    return Case("mla", {"batch": batch, "M": heads, "N": keys})


def _standard() -> list[Case]:
    shapes = [
        (4096, 4096, 4096),
        (8192, 8192, 8192),
        (4096, 14336, 4096),
        (128, 4096, 4096),
        (16, 4096, 4096),
        (1024, 1024, 1024),
        (2048, 2048, 2048),
        (16384, 4096, 4096),
        (64, 8192, 8192),
    ]
    return [
        *_gemm(shapes, ("float16", "bfloat16")),
        *_rows([(4096, 4096), (16384, 1024), (4096, 8192), (65536, 512)]),
        _attention(4, 32, 32, 2048, 128),
        _attention(4, 32, 32, 4096, 128, causal=True),
        _attention(4, 32, 8, 2048, 128, causal=True),
        _attention(1, 32, 32, 8192, 128, causal=True),
        _attention(4, 32, 32, 2048, 64),
        _mla(16, 64, 8192),
        _mla(64, 128, 4096),
        _mla(128, 128, 4096),
    ]


def _quick() -> list[Case]:
    return [
        *_gemm([(4096, 4096, 4096), (16, 4096, 4096)], ("float16",)),
        *_rows([(4096, 4096)]),
        _attention(4, 32, 32, 2048, 128),
        _attention(4, 32, 8, 2048, 128, causal=True),
        _mla(64, 128, 4096),
    ]


def _small() -> list[Case]:
    """Shapes that a CPU gets through in seconds."""
    return [
        *_gemm([(128, 128, 128), (96, 80, 64)], ("float16",)),
        *_rows([(64, 256), (100, 130)]),
        _attention(1, 2, 2, 64, 32),
        _attention(1, 4, 2, 64, 32, causal=True),
        _mla(16, 1, 64),
    ]


SUITES = {"standard": _standard, "quick": _quick, "small": _small}


def suite(name: str, operators: Sequence[str] = ()) -> list[Case]:
    """The cases of a suite, of these operators or of all.

    Raises:
        BenchError: there is no such suite or operator.
    """
    if name not in SUITES:
        raise BenchError(f"there is no suite {name!r}", hint=f"choose one of {', '.join(SUITES)}")
    for operator in operators:
        if operator not in OPERATORS:
            raise BenchError(
                f"there is no operator {operator!r} to benchmark", hint=f"choose among {', '.join(OPERATORS)}"
            )
    return [case for case in SUITES[name]() if not operators or case.operator in operators]
