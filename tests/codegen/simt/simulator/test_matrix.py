"""Matrix instructions made from a descriptor: every one of every chip, against torch."""

from __future__ import annotations

import pytest
import torch

import core
from core.codegen.simt.simulator.matrix import c_expression, matrix_source, simulated_instructions
from core.hardware import Chip, LaneLayout, MatrixInstruction
from tests.codegen.simt.simulator.handwritten import kernel, tensor

LANES = 64
TORCH = {"tfloat32": "float32", "float8_e4m3": "float8_e4m3fn"}


def cases() -> list[tuple[Chip, MatrixInstruction]]:
    chips = [core.chip(f"metax:{name}") for name in ("c500", "c550", "c600")]
    return [(chip, instruction) for chip in chips for instruction in simulated_instructions(chip)]


def torch_type(dtype: str) -> torch.dtype:
    found = getattr(torch, TORCH.get(dtype, dtype))
    assert isinstance(found, torch.dtype)
    return found


def random_matrix(dtype: str, rows: int, columns: int) -> torch.Tensor:
    if dtype.startswith("int"):
        return torch.randint(-128, 128, (rows, columns)).to(torch_type(dtype))
    if dtype == "tfloat32":
        # Exactly representable: the unit reads ten bits of the fraction.
        return (torch.randint(-512, 512, (rows, columns)) / 64).to(torch.float32)
    return torch.randn(rows, columns).to(torch_type(dtype))


def registers(matrix: torch.Tensor, layout: LaneLayout) -> torch.Tensor:
    """Each lane's registers in a row."""
    places = list(layout.elements(LANES))
    rows, columns = [row for row, _ in places], [column for _, column in places]
    return matrix.view(torch.uint8 if matrix.element_size() == 1 else matrix.dtype)[rows, columns].reshape(LANES, -1)


def as_bytes(values: torch.Tensor) -> torch.Tensor:
    return values.contiguous().view(torch.uint8).flatten()


@pytest.mark.parametrize(("chip", "instruction"), cases(), ids=lambda value: getattr(value, "name", str(value)))
def test_each_instruction_multiplies(chip: Chip, instruction: MatrixInstruction) -> None:
    assert instruction.a_layout
    assert instruction.b_layout
    assert instruction.c_layout
    a = random_matrix(instruction.a_dtype, instruction.m, instruction.k)
    b = random_matrix(instruction.b_dtype, instruction.k, instruction.n)
    c = random_matrix(instruction.accumulator_dtype, instruction.m, instruction.n)
    inputs = [
        as_bytes(registers(matrix, layout))
        for matrix, layout in ((a, instruction.a_layout), (b, instruction.b_layout), (c, instruction.c_layout))
    ]
    sizes = [len(each) // LANES for each in inputs]
    body = f"""
struct A {{ unsigned char data[{sizes[0]}]; }};
struct B {{ unsigned char data[{sizes[1]}]; }};
struct C {{ unsigned char data[{sizes[2]}]; }};
extern "C" __global__ void __launch_bounds__(64) k(const A* a, const B* b, const C* c, C* out) {{
  out[threadIdx.x] = {instruction.name}(a[threadIdx.x], b[threadIdx.x], c[threadIdx.x]);
}}
"""
    parameters = [
        *(tensor(name, "uint8", len(each)) for name, each in zip("abc", inputs, strict=True)),
        tensor("out", "uint8", len(inputs[2]), writes=True),
    ]
    out = torch.zeros(len(inputs[2]), dtype=torch.uint8)
    kernel(body, parameters, chip=chip)(*inputs, out)
    got = torch.zeros_like(c)
    values = out.view(torch_type(instruction.accumulator_dtype))
    for value, (row, column) in zip(values, instruction.c_layout.elements(LANES), strict=True):
        got[row, column] = value
    wide = torch.float64 if c.is_floating_point() else torch.int64
    expected = c.to(wide) + a.to(wide) @ b.to(wide)
    if c.is_floating_point():
        assert torch.allclose(got.to(wide), expected, rtol=1e-5, atol=1e-4)
    else:
        assert torch.equal(got.to(wide), expected)


def test_every_instruction_with_layouts_is_simulated() -> None:
    for name in ("c500", "c550", "c600"):
        chip = core.chip(f"metax:{name}")
        described = [i for i in chip.matrix_instructions if i.issued_by == "wave" and i.c_layout is not None]
        assert len(simulated_instructions(chip)) == len(described) > 0


def test_the_source_prints_the_descriptors_expressions() -> None:
    chip = core.chip("metax:c500")
    text = matrix_source(chip, simulated_instructions(chip))
    assert "A[lane % 16][4 * (lane / 16) + i]" in text
    assert c_expression("lane // 16 + 4 * i") == "lane / 16 + 4 * i"


def test_a_layout_that_leaves_elements_out_is_refused() -> None:
    chip = core.chip("metax:c500")
    instruction = simulated_instructions(chip)[0]
    assert instruction.a_layout is not None
    broken = instruction.a_layout.model_copy(update={"column": "4 * (lane // 16)"})
    with pytest.raises(core.DescriptorError, match="in no lane"):
        matrix_source(chip, [instruction.model_copy(update={"a_layout": broken})])
