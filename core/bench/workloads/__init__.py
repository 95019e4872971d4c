"""What is measured of each operator: factory, fresh inputs, the right result, and what a user would pick instead."""

from __future__ import annotations

from core.bench.case import Case
from core.bench.workloads.attention import Attention
from core.bench.workloads.base import NotMeasured, Other, Workload
from core.bench.workloads.gemm import Gemm
from core.bench.workloads.mla import LatentDecode
from core.bench.workloads.rows import LayerNorm, RmsNorm, Softmax

__all__ = ["WORKLOADS", "NotMeasured", "Other", "Workload", "workload"]

WORKLOADS: dict[str, type[Workload]] = {
    "gemm": Gemm,
    "softmax": Softmax,
    "layernorm": LayerNorm,
    "rmsnorm": RmsNorm,
    "attention": Attention,
    "mla": LatentDecode,
}


def workload(case: Case) -> Workload:
    """The workload of a case."""
    return WORKLOADS[case.operator](case)
