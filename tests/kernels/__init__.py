"""A corpus of portable TileLang kernels, each with a torch reference: what every backend must compile and get right.

The kernels are ordinary TileLang: nothing names a vendor, a warp size or a thread index. One module per topic; each has
`cases()`. `all_kernels()` is the whole corpus.
"""

from __future__ import annotations

from importlib import import_module

from tests.kernels.case import EXACT, Case, Tolerance, compare

#: Modules of this package, simplest first.
TOPICS = (
    "elementwise",
    "movement",
    "control",
    "language",
    "reduction",
    "scan",
    "softmax",
    "gemm",
    "sparse",
    "quantisation",
    "attention",
)


def all_kernels(topic: str | None = None) -> list[Case]:
    """Every case of the corpus, or those of one topic. Names are unique."""
    found = [case for name in TOPICS if topic in (None, name) for case in import_module(f"{__name__}.{name}").cases()]
    names = [case.name for case in found]
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates:
        raise ValueError(f"duplicate case names: {', '.join(duplicates)}")
    return found


def construct(case: Case) -> str:
    """What a case has compiled that the others of its kernel have not: usually nothing, so that one case will do.

    A product's layout and types choose the matrix instruction, so each of those counts.
    """
    return case.name if case.name.startswith("gemm.gemm[") else f"{case.topic} {id(case.kernel)}"


__all__ = ["EXACT", "TOPICS", "Case", "Tolerance", "all_kernels", "compare", "construct"]
