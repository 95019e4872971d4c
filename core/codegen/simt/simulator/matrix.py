"""The C++ of a chip's matrix instructions, from the lane layouts of its descriptor and from nothing else.

An instruction gathers both operands from the registers of the wave's lanes into matrices, as the descriptor's
expressions say, multiplies, and hands the result back to the lanes. The emitter's idea of a layout is not used: where
it is wrong, the numbers are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.errors import DescriptorError

if TYPE_CHECKING:
    from core.hardware import Chip, LaneLayout, MatrixInstruction


@dataclass(frozen=True, slots=True)
class _Element:
    """How an operand's element lies in registers: bytes, the type it is computed in, the expression that reads it."""

    size: int
    computed: str
    read: str


#: Element types. `p` is the lane's registers as bytes, `i` the element's index in them.
_ELEMENTS = {
    "float16": _Element(2, "float", "(float)load<_Float16>(p, i)"),
    "bfloat16": _Element(2, "float", "from_bits((uint32_t)load<uint16_t>(p, i) << 16)"),
    "float32": _Element(4, "float", "load<float>(p, i)"),
    # The unit reads sign, exponent and the upper ten bits of the fraction.
    "tfloat32": _Element(4, "float", "from_bits(load<uint32_t>(p, i) & 0xffffe000u)"),
    "float64": _Element(8, "double", "load<double>(p, i)"),
    "int8": _Element(1, "int32_t", "(int32_t)load<int8_t>(p, i)"),
    "uint8": _Element(1, "int32_t", "(int32_t)load<uint8_t>(p, i)"),
    "int32": _Element(4, "int32_t", "load<int32_t>(p, i)"),
    "float8_e4m3": _Element(1, "float", "from_fp8(load<uint8_t>(p, i), 3, false)"),
    "float8_e5m2": _Element(1, "float", "from_fp8(load<uint8_t>(p, i), 2, true)"),
}
_ALIASES = {"float8_e4m3fn": "float8_e4m3", "float8_e5m2fn": "float8_e5m2"}

_PROLOGUE = """// Matrix instructions of {target}, from its descriptor.
#include <math.h>
#include <string.h>

#include <tilehal_sim/interface.h>

namespace {{

using tilehal_sim::MatrixOperands;

template <typename T> T load(const unsigned char *p, int i) {{
  T value;
  memcpy(&value, p + i * (int)sizeof(T), sizeof(T));
  return value;
}}

float from_bits(uint32_t bits) {{
  float value;
  memcpy(&value, &bits, 4);
  return value;
}}

float from_fp8(uint8_t data, int mantissa_bits, bool infinities) {{
  const int exponent_bits = 7 - mantissa_bits, bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = data >> mantissa_bits & ((1 << exponent_bits) - 1), mantissa = data & ((1 << mantissa_bits) - 1);
  const bool top = exponent == (1 << exponent_bits) - 1;
  float value;
  if (top && infinities)
    value = mantissa ? NAN : INFINITY;
  else if (top && mantissa == (1 << mantissa_bits) - 1)
    value = NAN;
  else
    value = exponent ? ldexpf((float)(mantissa | 1 << mantissa_bits), exponent - bias - mantissa_bits)
                     : ldexpf((float)mantissa, 1 - bias - mantissa_bits);
  return data & 0x80 ? -value : value;
}}

}} // namespace
"""

_FUNCTION = """
// {title}
extern "C" __attribute__((visibility("hidden"))) void {function}(const MatrixOperands *const *lanes) {{
  {a_type} A[{m}][{k}];
  {b_type} B[{k}][{n}];
  {c_type} C[{m}][{n}];
  for (int lane = 0; lane < {lanes}; ++lane) {{
    const unsigned char *p = (const unsigned char *)lanes[lane]->a;
    for (int i = 0; i < {a_count}; ++i) A[{a_row}][{a_column}] = {a_read};
    p = (const unsigned char *)lanes[lane]->b;
    for (int i = 0; i < {b_count}; ++i) B[{b_row}][{b_column}] = {b_read};
    p = (const unsigned char *)lanes[lane]->c;
    for (int i = 0; i < {c_count}; ++i) C[{c_row}][{c_column}] = {c_read};
  }}
  for (int row = 0; row < {m}; ++row)
    for (int step = 0; step < {k}; ++step)
      for (int column = 0; column < {n}; ++column)
        {multiply};
  for (int lane = 0; lane < {lanes}; ++lane) {{
    unsigned char *p = (unsigned char *)lanes[lane]->c;
    for (int i = 0; i < {c_count}; ++i)
      memcpy(p + i * (int)sizeof({c_type}), &C[{c_row}][{c_column}], sizeof({c_type}));
  }}
}}
"""

_BUILTIN = """
extern "C" __attribute__((visibility("hidden"))) void {function}(const tilehal_sim::MatrixOperands *const *);
template <typename A, typename B, typename C> inline C {name}(A a, B b, C c) {{
  static_assert(sizeof(A) >= {a_bytes}, "{name}: a lane holds {a_bytes} bytes of the first operand");
  static_assert(sizeof(B) >= {b_bytes}, "{name}: a lane holds {b_bytes} bytes of the second operand");
  static_assert(sizeof(C) == {c_bytes}, "{name}: a lane holds {c_bytes} bytes of the accumulator");
  tilehal_sim::MatrixOperands operands{{&a, &b, &c}};
  tilehal_sim_matrix("{name}", {function}, &operands);
  return c;
}}
"""


def simulated_instructions(chip: Chip) -> tuple[MatrixInstruction, ...]:
    """The chip's instructions that the simulator has: issued by a wave, layouts known, element types known."""
    return tuple(
        instruction
        for instruction in chip.matrix_instructions
        if instruction.issued_by == "wave"
        and instruction.name.isidentifier()
        and all(layout is not None for layout in _layouts(instruction))
        and all(_ALIASES.get(dtype, dtype) in _ELEMENTS for dtype in instruction.types)
    )


def matrix_source(chip: Chip, instructions: Sequence[MatrixInstruction]) -> str:
    """C++ that computes the instructions, to be compiled apart from kernels.

    Raises:
        DescriptorError: the registers a layout describes do not hold the operand, each element at least once.
    """
    lanes = chip.main_unit.lanes_per_wave
    if lanes is None:
        return ""
    return _PROLOGUE.format(target=chip.target) + "".join(_function(chip, each, lanes) for each in instructions)


def matrix_header(instructions: Sequence[MatrixInstruction]) -> str:
    """Declares the builtins for kernels, whatever vector types they pass their registers in."""
    parts = ["#pragma once\n", "#include <tilehal_sim/interface.h>\n"]
    for instruction in instructions:
        a, b, c = (
            _element(dtype).size * layout.elements_per_lane
            for dtype, layout in zip(instruction.types, _known_layouts(instruction), strict=True)
        )
        parts.append(
            _BUILTIN.format(name=instruction.name, function=_name(instruction), a_bytes=a, b_bytes=b, c_bytes=c)
        )
    return "".join(parts)


def _function(chip: Chip, instruction: MatrixInstruction, lanes: int) -> str:
    m, n, k = instruction.m, instruction.n, instruction.k
    fields: dict[str, object] = {"m": m, "n": n, "k": k, "lanes": lanes, "function": _name(instruction)}
    for operand, dtype, layout, rows, columns in zip(
        "abc", instruction.types, _known_layouts(instruction), (m, k, m), (k, n, n), strict=True
    ):
        _check_coverage(chip, instruction, operand, layout, lanes, rows, columns)
        element = _element(dtype)
        fields[f"{operand}_type"] = element.computed
        fields[f"{operand}_read"] = element.read
        fields[f"{operand}_count"] = layout.elements_per_lane
        fields[f"{operand}_row"] = c_expression(layout.row)
        fields[f"{operand}_column"] = c_expression(layout.column)
    if fields["c_type"] == "int32_t":
        # Wraps like the unit's adder; signed overflow is undefined in C++.
        multiply = "C[row][column] = (int32_t)((uint32_t)C[row][column] + (uint32_t)(A[row][step] * B[step][column]))"
    else:
        fma = "__builtin_fma" if fields["c_type"] == "double" else "__builtin_fmaf"
        multiply = f"C[row][column] = {fma}(A[row][step], B[step][column], C[row][column])"
    title = f"{instruction.name}: {m}x{n}x{k}, {', '.join(instruction.types)}"
    return _FUNCTION.format(multiply=multiply, title=title, **fields)


def c_expression(expression: str) -> str:
    """A layout's index expression in C: on non-negative integers only the spelling of division differs."""
    return expression.replace("//", "/")


def _name(instruction: MatrixInstruction) -> str:
    return "tilehal_sim_" + re.sub(r"\W", "_", instruction.name).strip("_")


def _element(dtype: str) -> _Element:
    return _ELEMENTS[_ALIASES.get(dtype, dtype)]


def _layouts(instruction: MatrixInstruction) -> tuple[LaneLayout | None, LaneLayout | None, LaneLayout | None]:
    return instruction.a_layout, instruction.b_layout, instruction.c_layout


def _known_layouts(instruction: MatrixInstruction) -> tuple[LaneLayout, ...]:
    return tuple(layout for layout in _layouts(instruction) if layout is not None)


def _check_coverage(
    chip: Chip, instruction: MatrixInstruction, operand: str, layout: LaneLayout, lanes: int, rows: int, columns: int
) -> None:
    held = set(layout.elements(lanes))
    wanted = {(row, column) for row in range(rows) for column in range(columns)}
    if held != wanted:
        wrong = sorted(held ^ wanted)[0]
        raise DescriptorError(
            f"{chip.target}: the lane layout of operand {operand} of {instruction.name} does not cover its "
            f"{rows}x{columns} elements: {wrong} is {'in no lane' if wrong in wanted else 'outside'}",
            hint="check elements_per_lane, row and column of the layout in the chip's descriptor",
        )
