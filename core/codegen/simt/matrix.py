"""Which matrix instruction does a product, and how its tile is split over the block's waves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from core.codegen.simt.dialect import Dialect
from core.errors import UnsupportedOp

if TYPE_CHECKING:
    from core.hardware import Chip, LaneLayout, MatrixInstruction

#: dtype of a kernel's operand as an instruction's, where they differ: TF32 operands are float32 in memory.
_AS_TF32 = "tfloat32"


@dataclass(frozen=True, slots=True)
class Product:
    """A matrix product as the choice sees it: dtypes and tile."""

    a: str
    b: str
    accumulator: str
    m: int
    n: int
    k: int


@dataclass(frozen=True, slots=True)
class MatrixPlan:
    """An instruction, and a block's waves in a grid of `waves_m` x `waves_n` over the tile.

    `swapped`: the instruction computes the transposed product, B^T A^T, because then each lane holds neighbours of a
    *row* of C, which it can store together.
    """

    instruction: MatrixInstruction
    swapped: bool
    waves_m: int
    waves_n: int
    wave_lanes: int
    product: Product

    @property
    def tile_m(self) -> int:
        """Rows of the kernel's C that one instruction computes."""
        return self.instruction.n if self.swapped else self.instruction.m

    @property
    def tile_n(self) -> int:
        """Columns of the kernel's C that one instruction computes."""
        return self.instruction.m if self.swapped else self.instruction.n

    @property
    def rows(self) -> int:
        """Instruction tiles along m in one wave."""
        return self.product.m // (self.waves_m * self.tile_m)

    @property
    def columns(self) -> int:
        """Instruction tiles along n in one wave."""
        return self.product.n // (self.waves_n * self.tile_n)

    @property
    def steps(self) -> int:
        """Instructions along k."""
        return self.product.k // self.instruction.k

    def layout(self, operand: str) -> LaneLayout:
        """Layout of the instruction's operand that holds the kernel's `a`, `b` or `c`."""
        name = {"a": "b", "b": "a"}.get(operand, operand) if self.swapped else operand
        layout: LaneLayout | None = getattr(self.instruction, f"{name}_layout")
        assert layout is not None, "choose() takes only instructions with layouts"
        return layout

    @property
    def function(self) -> str:
        """Name of the generated function that issues the instruction."""
        i = self.instruction
        types = "_".join(dict.fromkeys((i.a_dtype, i.b_dtype)))
        return f"tilehal_mma_{i.m}x{i.n}x{i.k}_{types}"


def choose(chip: Chip, product: Product, threads: int, policy: int, *, allow_tf32: bool = False) -> MatrixPlan | str:
    """The instruction and split for a product, or in words why there is none.

    The instruction with the largest k that divides the tile's, whose shape divides the tile, and for which the waves
    can be split evenly; TF32 only when allowed and nothing is exact.

    Args:
        threads: of the block.
        policy: 0 square, 1 all waves along m, 2 along n.
    """
    lanes = chip.main_unit.lanes_per_wave
    if lanes is None or threads % lanes:
        return f"{threads} threads are not whole waves"
    fitting = [i for i in chip.matrix_instructions if i.issued_by == "wave" and _computes(i, product, allow_tf32)]
    if not fitting:
        return f"{chip.target} has no matrix instruction for {product.a} and {product.b} into {product.accumulator}"
    exact_first = sorted(fitting, key=lambda i: (i.a_dtype == _AS_TF32, -i.k))
    for instruction in exact_first:
        if product.k % instruction.k:
            continue
        for swapped in _orders(instruction):
            tile_m, tile_n = (instruction.n, instruction.m) if swapped else (instruction.m, instruction.n)
            split = _split(product.m, product.n, tile_m, tile_n, threads // lanes, policy)
            if split is not None:
                return MatrixPlan(instruction, swapped, *split, lanes, product)
    shapes = ", ".join(dict.fromkeys(f"{i.m}x{i.n}x{i.k}" for i in exact_first))
    return (
        f"a tile of {product.m}x{product.n}x{product.k} cannot be cut into {shapes} instructions for"
        f" {threads // lanes} waves"
    )


def _computes(instruction: MatrixInstruction, product: Product, allow_tf32: bool) -> bool:
    if None in (instruction.a_layout, instruction.b_layout, instruction.c_layout):
        return False
    if instruction.types == (product.a, product.b, product.accumulator):
        return True
    tf32 = (_AS_TF32, _AS_TF32, "float32")
    return allow_tf32 and instruction.types == tf32 and (product.a, product.b, product.accumulator) == ("float32",) * 3


def _orders(instruction: MatrixInstruction) -> tuple[bool, bool]:
    """Whether to swap the operands, the better order first."""
    layout = instruction.c_layout
    assert layout is not None
    along_rows = layout.elements_per_lane > 1 and layout.element(0, 1)[0] == layout.element(0, 0)[0] + 1
    return (True, False) if along_rows else (False, True)


def _split(m: int, n: int, tile_m: int, tile_n: int, waves: int, policy: int) -> tuple[int, int] | None:
    """Waves along m and n with equal shares of whole instruction tiles; None when there is no such split."""
    possible = [
        (waves_m, waves // waves_m)
        for waves_m in range(1, waves + 1)
        if waves % waves_m == 0 and m % (waves_m * tile_m) == 0 and n % (waves // waves_m * tile_n) == 0
    ]
    if not possible:
        return None
    if policy == 1:
        return max(possible)
    if policy == 2:
        return min(possible)

    def shape(split: tuple[int, int]) -> float:
        """How far a wave's part is from a square, which needs the fewest operands."""
        height, width = m / split[0], n / split[1]
        return max(height / width, width / height) if height and width else inf

    return min(possible, key=shape)


#: C++ types of elements in generated code.
_ELEMENT_TYPES: Mapping[str, str] = {
    "float16": "half_t",
    "bfloat16": "bfloat16_t",
    "float32": "float",
    "tfloat32": "float",
    "float64": "double",
    "int8": "signed char",
    "uint8": "unsigned char",
    "int32": "int",
    "float8_e4m3fn": "tilehal::e4m3",
    "float8_e5m2": "tilehal::e5m2",
}


def function_source(plan: MatrixPlan, dialect: Dialect, architecture: str) -> str:
    """The device function that issues the plan's instruction: registers in, the vendor's call, registers out.

    Raises:
        UnsupportedOp: the dialect does not say how the instruction takes an operand.
    """
    instruction = plan.instruction

    def operand(dtype: str, layout: LaneLayout | None) -> str:
        assert layout is not None
        special = dialect.instruction_operands.get((architecture, instruction.name))
        key = (dtype, layout.elements_per_lane)
        if special is not None and dtype != instruction.accumulator_dtype:
            return special
        if key not in dialect.matrix_operands:
            raise UnsupportedOp(
                f"the {dialect.name} dialect does not say how {instruction.name} takes {key[1]} elements of {dtype}",
                hint=f"add it to the dialect's matrix_operands: {key!r}: the C++ type of the builtin's operand, "
                f"a vector of {key[1]} (docs/simt.md has an example)",
            )
        return dialect.matrix_operands[key]

    lines = []
    parameters = []
    for name, dtype, layout in (
        ("c", instruction.accumulator_dtype, instruction.c_layout),
        ("a", instruction.a_dtype, instruction.a_layout),
        ("b", instruction.b_dtype, instruction.b_layout),
    ):
        assert layout is not None
        const = "" if name == "c" else "const "
        parameters.append(f"{const}{_ELEMENT_TYPES[dtype]} *{name}, int {name}_first")
        size = f"{layout.elements_per_lane} * sizeof({_ELEMENT_TYPES[dtype]})"
        lines += [
            f"  {operand(dtype, layout)} {name}_lane = {{}};",
            f"  __builtin_memcpy(&{name}_lane, {name} + {name}_first, {size});",
        ]
    c_size = lines[1].rpartition(", ")[2]
    return "\n".join(
        [
            f"{dialect.function_prefix} void {plan.function}({', '.join(parameters)}) {{",
            *lines,
            f"  c_lane = {instruction.name}(a_lane, b_lane, c_lane);",
            f"  __builtin_memcpy(c + c_first, &c_lane, {c_size}",
            "}",
            "",
        ]
    )
