"""Variants of a kernel that only some chips can run: which of their parameters are worth combining."""

from __future__ import annotations

from collections.abc import Callable

from core.hardware import Chip
from core.tiling import KernelShape, TileRule, Tiles
from core.tiling.constraints import blocks_of, number, operand_bytes

#: What a variant that schedules copies and products by hand needs of the chip.
_FEATURES = frozenset({"wgmma", "tma", "clusters"})
_BY_HAND, _PLAIN = "warp_specialized", "tiled"
#: A bulk copy's rows start at multiples of this.
_ROW_BYTES = 16
#: What the variant by hand is for: two warpgroups that multiply, on tiles with a whole line of shared memory a row.
_CONSUMERS, _SIDE, _DEPTH_BYTES = 256, 128, 128


def variant_rule(chip: Chip, kernel: KernelShape) -> TileRule | None:
    """The rule for products that come in a plain variant and one of persistent, warp-specialised blocks; or None."""
    options = next((p.choices for p in kernel.parameters.values() if p.key == "variant" and p.choices), ())
    if not {_BY_HAND, _PLAIN} <= set(options):
        return None
    units = chip.main_unit.count
    blocks = blocks_of(kernel, 128, 128)
    able = set(chip.features) >= _FEATURES and units is not None and blocks is not None and _aligned(kernel)
    # Blocks that stay pay off from one tile to the next: with fewer tiles than units there is no next one.
    if not able or blocks is None or units is None or blocks < units:
        return TileRule(
            "cuda.variant", "one block a tile: too few tiles, or no warpgroups", values={"variant": (_PLAIN,)}
        )
    return TileRule(
        "cuda.variant",
        "blocks that stay load the next tile's operands while they store this one's result; neighbours share B's tile",
        values={"variant": (_BY_HAND, _PLAIN), "cluster": (2, 1), "workers": (units, 0)},
        leave_out=_leave_out(operand_bytes(kernel)),
    )


def _aligned(kernel: KernelShape) -> bool:
    """Whether the rows of both operands may be copied in bulk."""
    element = operand_bytes(kernel)
    return all(kernel.dimensions.get(name, 1) * element % _ROW_BYTES == 0 for name in ("N", "K"))


def _leave_out(element: int) -> Callable[[KernelShape, Tiles], str | None]:
    """Leaves out what one variant does not have, and of the other what its design is not for."""

    def unwanted(kernel: KernelShape, tiles: Tiles) -> str | None:
        if tiles.get("variant") == _PLAIN:
            own = (number(tiles, "cluster") or 1) > 1 or bool(number(tiles, "workers"))
            return f"clusters and blocks that stay are of the variant {_BY_HAND}" if own else None
        if number(tiles, "workers") == 0:
            return "this variant is for blocks that stay"
        m, n, k, threads = (number(tiles, key) or 0 for key in ("M", "N", "K", "threads"))
        if threads != _CONSUMERS or m < _SIDE or n < _SIDE or k * element != _DEPTH_BYTES:
            return f"this variant is for two warpgroups, sides from {_SIDE} and a depth of {_DEPTH_BYTES} bytes"
        return None

    return unwanted
