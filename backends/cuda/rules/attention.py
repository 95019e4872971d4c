"""Tiles of attention on NVIDIA GPUs: queries a block keeps, keys it walks over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from backends.cuda.rules import matrix
from core.hardware import Chip
from core.tiling import KernelShape, TileRule, Value

#: Width of a head where the kernel has no argument that says it.
_HEAD = 128
#: Up to so many queries, a block's time is that of reading the keys.
_FEW_QUERIES = 32


def attention_rule(chip: Chip, kernel: KernelShape) -> TileRule:
    """The rule for kernels with two products and a reduction between them."""
    return TileRule(
        "cuda.attention-tile",
        "64 queries a warpgroup (16 a warp), as many keys as leave registers for the scores and the output",
        values=_values(chip, kernel),
        forbid=matrix.forbid(chip),
        inspect=matrix.inspect(chip),
    )


def _values(chip: Chip, kernel: KernelShape) -> Mapping[str, Sequence[Value]]:
    queries, keys = kernel.dimensions.get("M"), kernel.dimensions.get("N")
    narrow = kernel.dimensions.get("dim", _HEAD) <= _HEAD // 2
    if queries is not None and queries <= _FEW_QUERIES:
        values: dict[str, Sequence[Value]] = {
            "M": (16, 32),
            "N": (64, 128, 32, 256),
            "threads": (128, 64),
            "stages": (2, 3, 4),
        }
        if keys is not None:
            # Few blocks, each with very many keys: several share them.
            values["split_N"] = (1, *(parts for parts in (2, 4, 8, 16, 32) if keys >= 256 * parts))
        return values
    if matrix.has_warpgroups(chip):
        return {
            "M": (128, 192, 64, 256) if narrow else (128, 64, 192),
            "N": (128, 64, 256) if narrow else (128, 64),
            "threads": (256, 128, 384),
            "stages": (2, 1, 3),
        }
    return {
        "M": (128, 64, 32),
        "N": (64, 128, 32) if narrow else (64, 32, 128),
        "threads": (128, 256),
        "stages": (2, 1, 3),
    }
