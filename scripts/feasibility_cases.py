"""What the feasibility run judges: kernels, shapes and chips, and configurations drawn for each."""

from __future__ import annotations

import hashlib
import importlib
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from core.tiling.factory import KernelFactory

_Cases = list[tuple[str, dict[str, Any]]]

_GEMM: _Cases = [
    ("cuda:h200", {"M": 4096, "N": 4096, "K": 4096}),
    ("cuda:h200", {"M": 512, "N": 512, "K": 16384, "dtype": "bfloat16"}),
    ("cuda:h200", {"M": 16, "N": 4096, "K": 4096}),
    ("cuda:h200", {"M": 4096, "N": 4096, "K": 4096, "dtype": "float8_e4m3fn", "trans_b": True}),
    ("cuda:h200", {"M": 4096, "N": 4096, "K": 4096, "dtype": "int8"}),
    ("cuda:a100", {"M": 4096, "N": 4096, "K": 4096}),
    ("cuda:a100", {"M": 1000, "N": 1000, "K": 1000, "dtype": "int8", "trans_b": True}),
    ("cuda:l40s", {"M": 2048, "N": 2048, "K": 2048, "trans_b": True}),
    ("cuda:rtx4090", {"M": 4096, "N": 4096, "K": 4096, "dtype": "float8_e4m3fn", "trans_b": True}),
]
_ATTENTION: _Cases = [
    ("cuda:h200", {"batch": 4, "heads": 32, "kv_heads": 32, "M": 2048, "N": 2048, "dim": 128}),
    ("cuda:h200", {"batch": 1, "heads": 32, "kv_heads": 8, "M": 8192, "N": 8192, "dim": 64, "causal": True}),
    ("cuda:a100", {"batch": 4, "heads": 32, "kv_heads": 32, "M": 2048, "N": 2048, "dim": 128, "causal": True}),
    ("cuda:l40s", {"batch": 16, "heads": 16, "kv_heads": 16, "M": 512, "N": 512, "dim": 64}),
]
_ROWS: _Cases = [
    ("cuda:h200", {"M": 4096, "N": 4096}),
    ("cuda:h200", {"M": 1024, "N": 32768}),
    ("cuda:a100", {"M": 65536, "N": 500}),
    ("cuda:rtx4090", {"M": 4096, "N": 8192, "dtype": "float32"}),
]
#: Values that no rule would all propose, by operator and key.
_GRIDS: Mapping[str, Mapping[str, Sequence[int]]] = {
    "gemm": {
        "M": (16, 32, 48, 64, 96, 128, 192, 256),
        "N": (16, 24, 32, 64, 72, 96, 128, 160, 256),
        "K": (16, 32, 64, 128, 256),
        "stages": (0, 1, 2, 3, 4, 6),
        "threads": (32, 64, 128, 192, 256, 384, 512, 1024),
    },
    "attention": {
        "M": (16, 32, 48, 64, 96, 128, 192, 256),
        "N": (16, 32, 64, 80, 96, 128, 256),
        "stages": (0, 1, 2, 3, 4),
        "threads": (32, 64, 128, 192, 256, 384, 512),
    },
    "reduction": {
        "M": (1, 2, 4, 8, 16, 32),
        "N": (512, 1024, 4096, 8192, 32768),
        "threads": (32, 64, 128, 256, 512, 1024),
    },
}
#: Values of each key that one draw from a grid takes.
_DRAWN = 4


@dataclass(frozen=True)
class Configuration:
    """One tile configuration of one kernel for one chip, and what the ranking said of it before anything was lowered.

    Attributes:
        predicted_bytes: shared memory per block that was predicted; None of what was refused without a prediction,
            for which `judge` makes one.
    """

    target: str
    operator: str
    arguments: Mapping[str, Any]
    tiles: Mapping[str, Any]
    accepted: bool
    reason: str
    predicted_bytes: int | None

    @property
    def identity(self) -> str:
        parts = (self.target, self.operator, dict(self.arguments), dict(self.tiles))
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def factory_of(operator: str) -> KernelFactory:
    """The operator's factory."""
    factory: KernelFactory = getattr(importlib.import_module(f"core.ops.{operator}"), operator)
    return factory


def completed(factory: KernelFactory, tiles: Mapping[str, Any]) -> dict[str, Any]:
    """The tiles with what a kernel has got since: parameters that do nothing at their neutral value."""
    neutral = {"split": 1, "swizzle": 0, "workers": 0, "warp_policy": 0, "unroll": 1, "buffers": 1}
    added = {
        name: parameter.choices[0] if parameter.choices else neutral[parameter.role]
        for name, parameter in factory.parameters.items()
        if name not in tiles
    }
    return {**added, **tiles}


def cases(targets: Sequence[str], operators: Sequence[str]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(operator, target, arguments) of every case, for the targets and operators asked for; none is all."""
    for operator, entries in (("gemm", _GEMM), ("attention", _ATTENTION), ("softmax", _ROWS), ("layernorm", _ROWS)):
        for target, arguments in entries:
            if (not targets or target in targets) and (not operators or operator in operators):
                yield operator, target, arguments


def drawn(operator: str, target: str, arguments: Mapping[str, Any], count: int) -> Iterator[Configuration]:
    """Configurations of one case: about `count` accepted and as many refused where there are, from both sets."""
    from core.tiling import TileRule, rank
    from core.tiling.problem import TileProblem

    factory = factory_of(operator)
    problem = TileProblem.of(factory, (), arguments, target)
    chip, shape = problem.chip, problem.shape
    dice = random.Random(f"{operator} {target} {sorted(arguments.items())}")
    grid = {key: dice.sample(values, min(_DRAWN, len(values))) for key, values in _GRIDS[shape.operator].items()}
    judges = [replace(rule, values={}, prefer=(), leave_out=None) for rule in problem.rules]
    for rules in (problem.rules, [TileRule("grid", "far wider than any rule", values=grid), *judges]):
        ranking = rank(factory, problem.arguments, chip, rules, {}, shape=shape)
        refused = [v for v in ranking.refused if len(v.tiles) == len(factory.parameters) and "left out" not in v.reason]
        for verdicts in (list(ranking.candidates), refused):
            for verdict in dice.sample(verdicts, min(len(verdicts), -(-count // 2))):
                predicted = verdict.prediction
                shared = None if predicted is None else predicted.memory_bytes.get("shared", 0)
                yield Configuration(
                    target, operator, arguments, dict(verdict.tiles), verdict.status == "ranked", verdict.reason, shared
                )
