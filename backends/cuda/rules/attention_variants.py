"""Attention that a chip with warpgroup instructions and bulk copies runs in variants scheduled by hand."""

from __future__ import annotations

from collections.abc import Sequence

from core.hardware import Chip
from core.tiling import KernelShape, Tiles, Value
from core.tiling.constraints import number, operand_bytes

#: What the variants by hand need of the chip, and of the kernel.
_FEATURES = frozenset({"wgmma", "tma"})
_PLAIN, _BY_HAND, _ORDERED = "pipelined", "overlapped", "ping_pong"
#: Rows of a warpgroup, and its threads.
_ROWS, _GROUP = 64, 128
#: A head's row in whole lines of shared memory, at most as long as a copy's box.
_LINE_BYTES, _LONGEST = 128, 256
#: Registers of a thread for scores, weights and output, by computing warpgroups: 240, 240 and 160 without the rest.
_BUDGET = {1: 208, 2: 208, 3: 128}
#: Usual width of a head; wider ones leave no room for long tiles of keys.
_HEAD = 128
#: Least keys of a tile for two warpgroups; and tiles that only the variants by hand are given.
_LEAST_KEYS, _BY_HAND_KEYS = 80, (80, 96, 176)
#: Narrower tiles of keys leave room for a third one in flight.
_THREE_IN_FLIGHT = 96


def usable(chip: Chip, kernel: KernelShape) -> bool:
    """Whether the kernel comes in these variants, and the chip and the shape allow them."""
    options = next((p.choices for p in kernel.parameters.values() if p.key == "variant" and p.choices), ())
    queries, keys, dim = (kernel.dimensions.get(name) for name in ("M", "N", "dim"))
    return (
        {_PLAIN, _BY_HAND, _ORDERED} <= set(options)
        and set(chip.features) >= _FEATURES
        and queries is not None
        and queries >= _ROWS
        and keys is not None
        and dim is not None
        and dim <= _LONGEST
        and dim * operand_bytes(kernel) % _LINE_BYTES == 0
    )


def values(chip: Chip, kernel: KernelShape) -> dict[str, Sequence[Value]]:
    """By key, most wanted first; replaces what plain attention would get."""
    dim, queries = kernel.dimensions["dim"], kernel.dimensions["M"]
    units = chip.main_unit.count
    tiles = kernel.dimensions.get("batch", 1) * kernel.dimensions.get("heads", 1) * -(-queries // (2 * _ROWS))
    # Blocks that stay pay off from one tile of queries to the next.
    stay = units is not None and tiles > units
    return {
        "M": (128, 192, 64),
        "N": (128, 160, 96, 192, 64) if dim <= 64 else (128, 160, 80, 96, 176, 64) if dim <= _HEAD else (80, 64),
        "threads": (256, 384, 128),
        "stages": (2, 3),
        "variant": (_BY_HAND, _ORDERED, _PLAIN),
        "workers": (units, 0) if units is not None and stay else (0,),
    }


def leave_out(kernel: KernelShape, tiles: Tiles) -> str | None:
    """For `TileRule.leave_out`: what a variant does not have, and what its design is not for."""
    m, n, threads, stages = (number(tiles, key) or 0 for key in ("M", "N", "threads", "stages"))
    groups = threads // _GROUP
    variant, workers = tiles.get("variant"), number(tiles, "workers")
    if m != _ROWS * groups:
        return f"{threads} threads are {groups} warpgroups, which take {_ROWS} rows each"
    needed = n // 2 + n // 4 + kernel.dimensions["dim"] // 2
    if needed > _BUDGET.get(groups, 0):
        return f"{n} keys need {needed} registers a thread, and {groups} warpgroups leave fewer"
    if variant == _PLAIN:
        if workers:
            return f"blocks that stay are of the variants {_BY_HAND} and {_ORDERED}"
        return f"tiles of {n} keys are of the variants by hand" if n in _BY_HAND_KEYS else None
    if variant == _ORDERED and groups != 2:
        return f"{_ORDERED} is for two warpgroups"
    if n < (2 * _ROWS if groups < 2 else _LEAST_KEYS) and kernel.dimensions["dim"] <= _HEAD:
        return f"tiles of {n} keys, products too short to hide a softmax behind"
    if stages > 2 and n > _THREE_IN_FLIGHT:
        return f"two tiles of {n} keys in flight are enough"
    return None
