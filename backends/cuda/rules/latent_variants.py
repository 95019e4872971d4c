"""Decoding with latent attention that a chip with warpgroup instructions and bulk copies runs scheduled by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from core.hardware import Chip
from core.tiling import KernelShape, Prediction, Tiles, Value
from core.tiling.constraints import number

#: What the variants by hand need of the chip.
_FEATURES = frozenset({"wgmma", "tma"})
_PLAIN, _BY_HAND, _ORDERED = "pipelined", "two_groups", "two_groups_in_turn"
#: Their one tile: 64 heads, or all where there are fewer; two warpgroups, two tiles of 64 keys in flight.
_HEADS = 64
_TILE: Mapping[str, int] = {"N": 64, "threads": 256, "stages": 2}
#: Halves of a key in whole lines of shared memory, together at most so many elements; and its rotated part.
_LINES, _LONGEST, _ROTATED = 128, 512, 64
#: Fewer heads leave most of a tile of 64 empty.
_LEAST_HEADS = 16
#: The model takes the plain variant to be faster, beside those by hand, than it is. On an H200 it took 1.13, 1.39 and
#: 1.53 times as long as `two_groups_in_turn` with 16, 64 and 128 heads (docs/operators.md, `scripts/explore_mla.py`),
#: which is 1.10, 1.32 and 1.09 times what the model says; this is their geometric mean. One sequence of 65,536 keys is
#: not in it (measured 1.05, predicted 1.16): launches and combining the shares count there, which all variants do.
_PLAIN_IS_SLOWER = 1.17


def usable(chip: Chip, kernel: KernelShape) -> bool:
    """Whether the kernel comes in these variants, and the chip and the shape allow them."""
    options = next((p.choices for p in kernel.parameters.values() if p.key == "variant" and p.choices), ())
    heads, dim, rope = (kernel.dimensions.get(name, 0) for name in ("M", "dim", "rope"))
    return (
        {_PLAIN, _BY_HAND, _ORDERED} <= set(options)
        and set(chip.features) >= _FEATURES
        and heads >= _LEAST_HEADS
        and 0 < dim <= _LONGEST
        and dim % _LINES == 0
        and rope == _ROTATED
    )


def values(plain: Mapping[str, Sequence[Value]]) -> dict[str, Sequence[Value]]:
    """By key, most wanted first: those of the plain variant and those by hand.

    The model sees no difference between the two by hand, so that the order here decides. Of nine pairs measured on an
    H200, taking turns was up to 0.4% faster and up to 0.2% slower in the six where a batch fills the chip, and as fast,
    within 0.5%, in the three of few long sequences.
    """
    joined = {key: tuple(dict.fromkeys((*plain.get(key, ()), value))) for key, value in _TILE.items()}
    return {**plain, **joined, "variant": (_ORDERED, _BY_HAND, _PLAIN)}


def leave_out(kernel: KernelShape, plain: Mapping[str, Sequence[Value]], tiles: Tiles) -> str | None:
    """For `TileRule.leave_out`: the variants by hand have one tile, the plain one those it would have alone."""
    if tiles.get("variant") == _PLAIN:
        other = next((key for key in _TILE if tiles.get(key) not in plain.get(key, (tiles.get(key),))), None)
        return None if other is None else f"{other} of {tiles[other]} is for the variants {_BY_HAND} and {_ORDERED}"
    other = next((key for key, value in _TILE.items() if number(tiles, key) not in (None, value)), None)
    if other is not None:
        return f"two groups take two tiles of 64 keys: {other} is {_TILE[other]}"
    heads = number(tiles, "M") or _HEADS
    if heads != _HEADS and not kernel.dimensions["M"] <= heads < _HEADS:
        return f"two groups take {_HEADS} heads, or all where there are fewer, not {heads}"
    return None


def weigh(kernel: KernelShape, tiles: Tiles, prediction: Prediction) -> float:
    """For `TileRule.weigh`."""
    return _PLAIN_IS_SLOWER if tiles.get("variant", _PLAIN) == _PLAIN else 1.0
