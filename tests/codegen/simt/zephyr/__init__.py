"""A vendor that does not exist, with two chips of 32-lane waves: one multiplies 8x8x16 matrices, one has no such unit.

All of it is here: nothing in core knows of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from core.codegen.simt import STOCK, CompileStep, include_folder, lower
from core.codegen.simt.simulator import simulator
from core.compiler import CompileOptions, LoweredKernel
from core.hardware import Chip
from core.program import Program

FOLDER = Path(__file__).parent
INCLUDES = (FOLDER / "shim", FOLDER / "include", include_folder())

DIALECT = STOCK.derive(
    name="zephyr",
    headers=("tilehal/zephyr/platform.h", *STOCK.headers),
    runtime_prefix="zeph",
    runtime_library="libzephrt.so",
    compile=CompileStep(
        program="zephcc",
        flags=("--device={arch}", "-O2"),
        source_suffix=".zph",
        binary_suffix=".zbin",
        environment=("ZEPHYR_HOME",),
    ),
    function_prefix="zeph_inline",
    matrix_operands={
        ("float16", 4): "tilehal::platform::f16x4",
        ("float32", 2): "tilehal::platform::f32x2",
    },
).with_names(
    qualifiers={"__global__": "zeph_entry", "__launch_bounds__": "zeph_bounds"},
    indices={"threadIdx": "zeph_local", "blockIdx": "zeph_group", "gridDim": "zeph_groups"},
    barriers={"__syncthreads": "zeph_barrier"},
    maths={"exp2f": "zeph_exp2", "__expf": "zeph_exp", "expf": "zeph_exp"},
)


def _chip(name: str, **more: Any) -> Chip:
    return Chip.model_validate(
        {
            "vendor": "zephyr",
            "name": name,
            "title": f"Zephyr {name.upper()}",
            "architecture": name,
            "codegen": {"arch": name},
            "units": [{"kind": "cluster", "count": 8, "lanes_per_wave": 32}],
            "memories": [
                {"name": "global", "scopes": ["global"], "owner": "device"},
                {"name": "shared", "scopes": ["shared"], "owner": "block", "capacity_bytes": 49152},
            ],
            "limits": {"threads_per_block": 512, "thread_multiple": 32},
            **more,
        }
    )


#: Registers of a lane run along rows of A and C and columns of B; a lane holds four elements of A and B, two of C.
WITH_MATRIX_UNIT = _chip(
    "z8",
    matrix_instructions=[
        {
            "name": "__builtin_zeph_mma8x8x16",
            "m": 8,
            "n": 8,
            "k": 16,
            "a_dtype": "float16",
            "b_dtype": "float16",
            "accumulator_dtype": "float32",
            "unit": "cluster",
            "a_layout": {"elements_per_lane": 4, "row": "lane // 4", "column": "4 * (lane % 4) + i"},
            "b_layout": {"elements_per_lane": 4, "row": "4 * (lane % 4) + i", "column": "lane // 4"},
            "c_layout": {"elements_per_lane": 2, "row": "lane // 4", "column": "2 * (lane % 4) + i"},
        }
    ],
)
WITHOUT_MATRIX_UNIT = _chip("z0")


def lowered(prim_func: Any, chip: Chip, out_idx: list[int] | None = None, **options: Any) -> LoweredKernel:
    """A kernel in Zephyr's language."""
    return lower(Program(prim_func, out_idx), chip, CompileOptions(**options), dialect=DIALECT)


def run(kernel: LoweredKernel, chip: Chip, *arguments: Any) -> None:
    """Runs it on the simulator, with every argument given."""
    simulator(chip, kernel, CompileOptions(), include_folders=INCLUDES)(*arguments, symbols={})
