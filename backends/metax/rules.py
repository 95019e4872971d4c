"""Tile-size rules for MetaX: 16x16 matrix tiles, waves of 64, 64 KiB of shared memory, registers per AP."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from core.hardware import Chip
from core.tiling import KernelShape, TileRule, whole_waves

_BYTES = {"float64": 8, "float32": 4, "int32": 4, "int8": 1, "uint8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1}
#: Of a thread's registers, what a matrix tile leaves for addresses and operands.
_OTHER_REGISTERS = 64
#: Waves per AP that keep its latencies covered; fewer are allowed, and come later in the order.
_WANTED_WAVES = 8
#: Tiles of C and threads: every wave gets whole 16x16 instruction tiles.
_BLOCKS = (
    (128, 128, 256),
    (128, 64, 256),
    (64, 128, 256),
    (64, 64, 256),
    (64, 64, 128),
    (32, 64, 128),
    (16, 64, 64),
    (32, 32, 64),
    (16, 16, 64),
)


def tile_rules(chip: Chip, kernel: KernelShape) -> list[TileRule]:
    """Preferences by operator, and the constraints every launch on the chip obeys."""
    rules = [
        TileRule("metax.launch", "threads come in whole waves of 64, within the block limit", forbid=whole_waves(chip)),
    ]
    if kernel.operator in ("gemm", "attention"):
        rules.append(
            TileRule(
                "metax.matrix-tile",
                "tiles that 16x16 instructions divide for every wave, that fit shared memory with their stages, and"
                " whose accumulators leave registers for other waves",
                prefer=tuple(_matrix_tiles(chip, kernel)),
                forbid=_matrix(chip),
            )
        )
    elif kernel.operator == "reduction":
        rules.append(
            TileRule(
                "metax.row-tile",
                "rows are spread over whole waves; one row a block keeps many blocks in flight",
                prefer=tuple({"M": rows, "threads": threads} for rows, threads in ((1, 256), (4, 256), (1, 128))),
            )
        )
    else:
        rules.append(
            TileRule(
                "metax.elementwise-tile",
                "a few thousand elements a block: 16-byte accesses, several per thread",
                prefer=tuple({"M": m, "N": n, "threads": 256} for m, n in ((32, 128), (64, 64), (16, 128))),
            )
        )
    return rules


def _matrix_tiles(chip: Chip, kernel: KernelShape) -> list[Mapping[str, int]]:
    """Candidates that fit, least device time first: full waves of blocks, then occupancy, then fewer bytes moved."""
    units = chip.main_unit.count or 0
    m, n = kernel.dimensions.get("M"), kernel.dimensions.get("N")
    element = max((_BYTES.get(dtype, 2) for dtype in kernel.dtypes[:2]), default=2)
    depth = 32 // element * 2 if element < 4 else 16
    limit = shared_limit_bytes(chip)
    shapes = [
        (bm, bn, bk, stages, threads)
        for bm, bn, threads in _BLOCKS
        for bk, stages in ((depth * 2, 2), (depth, 2), (depth, 1))
        if limit is None or (bm + bn) * bk * element * stages <= limit
    ]

    def cost(shape: tuple[int, int, int, int, int]) -> float:
        bm, bn = shape[:2]
        passes: float = 1
        if m is not None and n is not None and units:
            blocks = -(-m // bm) * -(-n // bn)
            passes = -(-blocks // units) * bm * bn * units / (m * n)
        waves = resident_waves(chip, shape, element)
        covered = min(1.0, waves / _WANTED_WAVES) ** 0.25 if waves else 1.0
        traffic = 1 / bm + 1 / bn
        return passes * (1 + 32 * traffic) / covered

    ordered = sorted(shapes, key=cost)
    return [{"M": bm, "N": bn, "K": bk, "stages": st, "threads": th} for bm, bn, bk, st, th in ordered]


def resident_waves(chip: Chip, shape: tuple[int, int, int, int, int], element_bytes: int) -> int | None:
    """Waves that one AP holds of a matrix tile (m, n, k, stages, threads); None when a figure is unknown."""
    bm, bn, bk, stages, threads = shape
    registers = chip.main_unit.registers
    limit = shared_limit_bytes(chip)
    if limit is None or registers is None or registers.per_unit is None or not chip.main_unit.lanes_per_wave:
        return None
    by_shared = limit // ((bm + bn) * bk * element_bytes * max(1, stages))
    per_thread = bm * bn // threads + _OTHER_REGISTERS
    by_registers = registers.per_unit // (per_thread * threads)
    by_threads = (chip.main_unit.max_threads or threads) // threads
    return max(0, min(by_shared, by_registers, by_threads)) * threads // chip.main_unit.lanes_per_wave


def shared_limit_bytes(chip: Chip) -> int | None:
    """Shared memory one block may have; None when nobody has published it."""
    return next((memory.block_limit_bytes for memory in chip.memories if "shared" in memory.scopes), None)


def _matrix(chip: Chip) -> Callable[[KernelShape, Mapping[str, int]], str | None]:
    lanes = chip.main_unit.lanes_per_wave or 64

    def forbid(kernel: KernelShape, tiles: Mapping[str, int]) -> str | None:
        m, n, threads = tiles.get("M"), tiles.get("N"), tiles.get("threads")
        for name, value in (("M", m), ("N", n)):
            if value is not None and value % 16:
                return f"{name} tile {value} is not a multiple of the instruction's 16"
        if m is not None and n is not None and threads is not None:
            waves = threads // lanes
            if waves and (m // 16) * (n // 16) % waves:
                return f"a {m}x{n} tile has {(m // 16) * (n // 16)} instruction tiles, {waves} waves cannot share them"
        return None

    return forbid
