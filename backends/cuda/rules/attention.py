"""Tiles of attention on NVIDIA GPUs: queries a block keeps, keys it walks over, blocks that share keys in decoding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from backends.cuda.rules import attention_variants, latent_variants, matrix
from core.hardware import Chip
from core.tiling import KernelShape, TileRule, Tiles, Value
from core.tiling.constraints import number

#: Width of a head where the kernel has no argument that says it.
_HEAD = 128
#: From this width on, an output of 64 queries needs the registers of two warpgroups: latent attention.
_WIDE = 512
#: Up to so many queries, a block's time is that of reading the keys.
_FEW_QUERIES = 32
#: Least keys a block that shares them should have.
_SHARE = 256


def attention_rule(chip: Chip, kernel: KernelShape) -> TileRule:
    """The rule for kernels with two products and a reduction between them."""
    plain = _values(chip, kernel)
    values, leave_out, weigh = plain, None, None
    if attention_variants.usable(chip, kernel):
        values, leave_out = {**plain, **attention_variants.values(chip, kernel)}, attention_variants.leave_out
    elif latent_variants.usable(chip, kernel):
        values, weigh = latent_variants.values(plain), latent_variants.weigh

        def leave_out(kernel: KernelShape, tiles: Tiles) -> str | None:
            return latent_variants.leave_out(kernel, plain, tiles)

    return TileRule(
        "cuda.attention-tile",
        "64 queries a warpgroup (16 a warp), as many keys as leave registers for the scores and the output",
        values=values,
        forbid=matrix.forbid(chip),
        leave_out=_leave_out(leave_out),
        inspect=matrix.inspect(chip),
        weigh=weigh,
    )


def _values(chip: Chip, kernel: KernelShape) -> dict[str, Sequence[Value]]:
    """By key, most wanted first."""
    return {**_tiles(chip, kernel), **_shares(chip, kernel)}


def _tiles(chip: Chip, kernel: KernelShape) -> dict[str, Sequence[Value]]:
    queries = kernel.dimensions.get("M")
    dim = kernel.dimensions.get("dim", _HEAD)
    narrow = dim <= _HEAD // 2
    if queries is not None and queries <= _FEW_QUERIES:
        # A warp for every 16 queries: the weights stay in the registers of the warp that has their rows.
        return {"M": (16, 32), "N": (64, 128, 32, 256), "threads": (32, 64, 128), "stages": (2, 3, 4, 1)}
    if matrix.has_warpgroups(chip) and dim >= _WIDE:
        return {"M": (64,), "N": (64, 32, 48), "threads": (256,), "stages": (2, 3, 4, 1)}
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


def _shares(chip: Chip, kernel: KernelShape) -> Mapping[str, Sequence[Value]]:
    """Blocks that share the keys of a query, where the kernel can: enough for one, two and four on each unit.

    How many keys count may be known only when the kernel runs, and the cost model then sees no use in sharing them:
    with half the units idle, nothing else is offered.
    """
    queries, keys = kernel.dimensions.get("M"), kernel.dimensions.get("N")
    units = chip.main_unit.count
    if queries is None or keys is None or units is None:
        return {}
    blocks = kernel.dimensions.get("batch", 1) * kernel.dimensions.get("heads", 1) * -(-queries // 64)
    most = max(1, keys // _SHARE)
    wanted = [min(most, max(1, round(units * waves / blocks))) for waves in (1, 2, 4)]
    return {"split_N": tuple(dict.fromkeys(wanted if 2 * blocks <= units else (1, *wanted)))}


def _leave_out(
    variants: Callable[[KernelShape, Tiles], str | None] | None,
) -> Callable[[KernelShape, Tiles], str | None]:
    """For `TileRule.leave_out`: too few registers for both accumulators, and what the variants are not for."""

    def leave_out(kernel: KernelShape, tiles: Tiles) -> str | None:
        reason = _over_registers(kernel, tiles)
        return reason if reason is not None or variants is None else variants(kernel, tiles)

    return leave_out


def _over_registers(kernel: KernelShape, tiles: Tiles) -> str | None:
    """Why a thread cannot keep its part of scores and output, or None."""
    m, n, threads = (number(tiles, key) for key in ("M", "N", "threads"))
    dim = kernel.dimensions.get("dim")
    if m is None or n is None or not threads or dim is None:
        return None
    needed = m * (n + dim) // threads
    if needed > matrix.ACCUMULATORS:
        return f"{m} x ({n} + {dim}) float32 accumulators are {needed} registers a thread"
    return None
