"""Turns what TileLang and TVM say about a kernel into typed errors that keep the reason and name the user's line."""

from __future__ import annotations

import re
from dataclasses import dataclass

from core._tilelang import user_location
from core.errors import KernelError, Location, ResourceExceeded, ShapeMismatch, TileHALError, UnsupportedOp


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str]
    error: type[TileHALError]
    hint: str


def _rule(pattern: str, error: type[TileHALError], hint: str) -> _Rule:
    return _Rule(re.compile(pattern, re.IGNORECASE | re.DOTALL), error, hint)


#: Known texts, most specific first. The message of the raised error is always TileLang's own reason.
_RULES = (
    _rule(
        r"no available layout found|layout infer\w* conflict|Get different layout",
        UnsupportedOp,
        "two operations want different thread layouts for one fragment: copy it through a shared buffer between them",
    ),
    _rule(
        r"No valid warp partition|warp partition|m_warp|n_warp",
        ResourceExceeded,
        "use fewer threads or a larger tile: each warp needs at least one matrix-instruction tile of its own",
    ),
    _rule(
        r"K shape check failed|gemm.*shape|shape.*(mismatch|not match|inconsistent)|must have the same shape"
        r"|shapes? .*(equal|agree)|buffer sizes? .*(match|differ)",
        ShapeMismatch,
        "check the shapes of the operands on this line",
    ),
    _rule(
        r"reduce.*(dim|axis|shape)|dim .*out of (range|bounds)|Invalid reduce (output )?shape",
        ShapeMismatch,
        "the reduction dimension must exist in the source, and the destination must be the source without it",
    ),
    _rule(
        r"(index|slice|region|extent).*(out of (range|bounds)|exceed|beyond|larger than)|out of bounds",
        ShapeMismatch,
        "the region must lie inside its buffer",
    ),
    _rule(
        r"must be inside a VF block|outside a VF block|Cannot assign task because",
        UnsupportedOp,
        "this is TileLang's own Ascend dialect's rule; portable kernels go through target='ascend'",
    ),
    _rule(
        r"allowed dynamic shared memory|shared memory.*(exceed|too large|limit)",
        ResourceExceeded,
        "use a smaller tile or fewer stages",
    ),
    _rule(r"Thread .*(exceed|larger|limit)|threads.*must be", ResourceExceeded, "use a thread count the chip allows"),
    _rule(
        r"unsupported|not supported|does not support|doesn't support|unimplemented|not implemented|Cannot convert type",
        UnsupportedOp,
        "see `tilehal portability` for the targets that can express this line",
    ),
)

_NOISE = re.compile(r"^\s*(File \"|\[bt\]|Stack trace|\d+: |Traceback)|^\s*at /|InternalError:|^\s*\^+\s*$")


def reason_of(error: BaseException) -> str:
    """The sentence of an exception that carries its reason: TVM's check text without the stack dump."""
    text = str(error).strip() or type(error).__name__
    check = re.search(r"Check failed:.*?(?:is false|\)): ?(.+)", text, re.DOTALL)
    if check:
        text = check.group(1)
    lines = [line.strip() for line in text.splitlines() if line.strip() and not _NOISE.search(line)]
    return " ".join(lines[:4])[:600] if lines else text[:600]


def translate(
    error: BaseException,
    *,
    fallback: type[TileHALError],
    stage: str,
    location: Location | None = None,
) -> TileHALError:
    """A typed error for `error`, which happened while `stage`; the caller raises it `from error`."""
    reason = reason_of(error)
    where = user_location(error) or location
    text = str(error)
    for rule in _RULES:
        if rule.pattern.search(text):
            return rule.error(f"{stage}: {reason}", hint=rule.hint, location=where, details={"stage": stage})
    hint = "set TILEHAL_TRACEBACK=1 (or read __cause__) for the compiler's own message"
    if fallback is KernelError and isinstance(error, TypeError):
        hint = "check the arguments given to the kernel factory"
    return fallback(f"{stage}: {type(error).__name__}: {reason}", hint=hint, location=where, details={"stage": stage})
