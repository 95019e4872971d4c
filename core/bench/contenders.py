"""Who takes part in a benchmark: the names that its document has them by, and what tables call them."""

from __future__ import annotations

#: Ours, in the order they are shown: tiles by rule; those that tuning found; and the rule's through raw tilelang.
RULE, TUNED, RAW = "tilehal", "tuned", "tilelang"
#: What a user would pick instead: a library, torch's own kernel, Triton's kernels as `core.bench.triton_rows` has them.
CUBLAS, CUDNN, FLASH, FLASHMLA, TORCH = "cublas", "cudnn", "flash", "flashmla", "torch"
TRITON, TRITON_OVERLAPPED = "triton", "triton overlapped"
#: Not the same work: a copy of as many bytes.
COPY = "copy"

_TITLES = {
    CUBLAS: "cuBLAS",
    CUDNN: "cuDNN",
    FLASH: "torch flash",
    TRITON: "Triton",
    TRITON_OVERLAPPED: "Triton overlapped",
    FLASHMLA: "FlashMLA",
    RAW: "raw tilelang",
    TUNED: "ours, tuned",
    RULE: "ours",
}


def title(contender: str) -> str:
    """What a contender is called in tables."""
    return _TITLES.get(contender, contender)
