"""Tiles of matrix products on NVIDIA GPUs: what is worth considering, and what cannot be compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from backends.cuda.rules import launch, pipelines
from backends.cuda.rules.instructions import WARPGROUP, refused, shares, unshareable
from core.hardware import Chip
from core.tiling import KernelShape, Profile, TileRule, Tiles, Value
from core.tiling.constraints import blocks_of, covering, has_variants, number, operand_bytes, power_of_two

#: Rows and columns of the tile that most chips need to keep their matrix units fed from shared memory.
_SIDE = 128
#: Up to so many rows of C, a product lives on the bandwidth with which B is read.
_FEW_ROWS = 64
#: Registers of a thread that may hold 32-bit sums: of 255, or 240 beside warps that copy, the rest addresses operands.
ACCUMULATORS = 200


def gemm_rule(chip: Chip, kernel: KernelShape) -> TileRule:
    """The rule for kernels whose work is one or several products."""
    return TileRule(
        "cuda.matrix-tile",
        "tiles that warps share in whole instructions, deep enough to stream whole lines, as large as the grid allows",
        values=_values(chip, kernel),
        forbid=forbid(chip),
        leave_out=_over_registers,
        inspect=inspect(chip),
    )


def _values(chip: Chip, kernel: KernelShape) -> Mapping[str, Sequence[Value]]:
    """By key, most wanted first. Fewer blocks than units want smaller tiles, a wide margin the largest."""
    m, k = kernel.dimensions.get("M"), kernel.dimensions.get("K")
    units = chip.main_unit.count or _SIDE
    blocks = blocks_of(kernel, _SIDE, _SIDE)
    fill = blocks / units if blocks is not None else 1.0
    grouped = has_warpgroups(chip)
    few = m is not None and m <= _FEW_ROWS
    rows, columns = _sides(fill, grouped) if not few else _sides_of_few_rows(m or 1)
    depths_bytes = (256, 128, 512) if few else (128, 256) if grouped else (64, 128)
    stages = (4, 6, 3) if few or (grouped and fill < 1) else (4, 3, 2) if grouped else (3, 4, 2)
    values: dict[str, Sequence[Value]] = {
        "M": rows,
        "N": columns,
        "K": covering(k, [size // operand_bytes(kernel) for size in depths_bytes]),
        # Threads that find elements one by one have few registers and a unit to themselves beside others that compute:
        # several blocks without stages hide each other's loads.
        "stages": (*stages, 0) if kernel.gathers else stages,
        "threads": (128, 64) if few else (256, 128) if fill >= 1 else (128, 256),
        # A panel of blocks keeps its part of both operands in L2; a grid of few waves is in flight all at once.
        "swizzle": (8, 0) if fill >= 4 else (0,),
        # Warpgroups below each other read B once each and A once in all.
        "warp_policy": (1,) if grouped else (0,),
    }
    if k is not None and blocks is not None and not has_variants(kernel):
        values["split_K"] = _splits(kernel, units, k)
    return values


def _sides(fill: float, grouped: bool) -> tuple[Sequence[int], Sequence[int]]:
    """Rows and columns of a tile for a grid with `fill` blocks of the usual size a unit."""
    if fill >= 1:
        return (128, 256, 64), (256, 128, 64) if grouped else (128, 256, 64)
    if fill >= 1 / 4:
        return (64, 128, 32), (128, 64, 256)
    return (64, 32, 128), (64, 32, 128)


def _sides_of_few_rows(m: int) -> tuple[Sequence[int], Sequence[int]]:
    """Every column of B is read once whatever the tile: narrow ones spread the reading over the chip."""
    return tuple(size for size in (16, 32, 64) if size <= max(16, power_of_two(m))), (32, 64, 128, 16)


def _splits(kernel: KernelShape, units: int, k: int) -> tuple[int, ...]:
    """Blocks that share a long reduction where the tiles of C leave units idle; 1 always."""
    blocks = blocks_of(kernel, 64, 64) or 1
    return tuple(
        parts for parts in (1, 2, 4, 8, 16) if parts == 1 or (blocks * parts <= 4 * units and k >= 512 * parts)
    )


def has_warpgroups(chip: Chip) -> bool:
    return "wgmma" in chip.features


def forbid(chip: Chip) -> Callable[[KernelShape, Tiles], str | None]:
    """For `TileRule.forbid`: whole instructions, and warps that can share the tile."""
    grouped = has_warpgroups(chip)

    def judge(kernel: KernelShape, tiles: Tiles) -> str | None:
        m, n, threads = number(tiles, "M"), number(tiles, "N"), number(tiles, "threads")
        if not _multiplied(chip, kernel):
            return None
        for key, value, step in (("M", m, 16), ("N", n, 8)):
            if value is not None and value % step:
                return f"{key} tile {value} is not a multiple of the instruction's {step}"
        if m is None or n is None or threads is None:
            return None
        if n % 16 == 8 and m >= 64 and grouped:
            # tile-ai/tilelang#2593: such tiles give silently wrong results with warpgroup instructions.
            return f"N tile {n} is 8 modulo 16, which warpgroup instructions get wrong"
        warps = threads // 32
        # Operands of one byte may lie so that warpgroup instructions cannot have them: `inspect` sees how.
        either = grouped and m >= 64 and warps % WARPGROUP == 0
        if any(shares(m, n, warps, warpgroups, 0) for warpgroups in ((True, False) if either else (False,))):
            return None
        return unshareable(f"{m} x {n}", warps, either)

    return judge


def _over_registers(kernel: KernelShape, tiles: Tiles) -> str | None:
    """For `TileRule.leave_out`: sums that a thread cannot keep in registers go to memory and back at every step."""
    m, n, threads = number(tiles, "M"), number(tiles, "N"), number(tiles, "threads")
    if m is None or n is None or not threads or m * n // threads <= ACCUMULATORS:
        return None
    return f"{m} x {n} sums are {m * n // threads} registers a thread"


def _multiplied(chip: Chip, kernel: KernelShape) -> bool:
    """Whether the kernel's products go to the matrix unit; others become loops, which take any tile."""
    pairs = {(i.a_dtype, i.b_dtype) for i in chip.matrix_instructions}
    return tuple(kernel.dtypes[:2]) in pairs


def inspect(chip: Chip) -> Callable[[KernelShape, Tiles, Profile], str | None]:
    """For `TileRule.inspect`: each product of each launch as its instruction takes it, and the loops it waits in."""

    def judge(kernel: KernelShape, tiles: Tiles, profile: Profile) -> str | None:
        for one in profile.launches:
            if one.threads is None:
                continue
            launched, chained = launch.launched_threads(chip, one), len(one.products) > 1
            reasons = (
                refused(chip, product, one.computing_threads(product.loop) or 0, launched, chained)
                for product in one.products
            )
            reason = next((reason for reason in reasons if reason is not None), None)
            reason = reason or pipelines.refused(chip, one, kernel.options)
            if reason is not None:
                return reason
        return None

    return judge
