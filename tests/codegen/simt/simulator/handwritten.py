"""Kernels written by hand in MACA C++, and running them on the simulator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import core
from core.codegen.simt.simulator import simulator
from core.compiler import CompileOptions, LoweredKernel
from core.hardware import Chip
from core.runtime import ScalarArgument, Signature, TensorArgument

SHIM = Path(__file__).parents[4] / "backends" / "metax" / "simulator_include"


def c500() -> Chip:
    return core.chip("metax:c500")


def kernel(
    body: str,
    parameters: list[TensorArgument | ScalarArgument],
    *,
    grid: tuple[int, int, int] = (1, 1, 1),
    threads: int | tuple[int, int, int] = 64,
    dynamic: int = 0,
    checked: bool = False,
    chip: Chip | None = None,
    metadata: dict[str, Any] | None = None,
    entry_points: tuple[str, ...] = ("k",),
    folders: tuple[Path, ...] = (),
) -> Any:
    """The launcher of `entry_points`, the `__global__` functions of `body`: the whole text after the headers' line."""
    from core.compiler import Resources

    chip = chip or c500()
    block = threads if isinstance(threads, tuple) else (threads, 1, 1)
    lowered = LoweredKernel(
        target=chip.target,
        route="simt-wave",
        language="maca",
        source="#include <mcr/mc_runtime.h>\n" + body,
        entry_points=entry_points,
        signature=Signature("k", tuple(parameters)),
        grid=((str(grid[0]), str(grid[1]), str(grid[2])),),
        block=(block,),
        resources=Resources(dynamic_shared_bytes=dynamic),
        metadata=metadata or {},
    )
    options = CompileOptions(backend={"simulator": "checked" if checked else "plain"})
    return simulator(chip, lowered, options, include_folders=(SHIM, *folders))


def tensor(name: str, dtype: str, *shape: int, writes: bool = False) -> TensorArgument:
    return TensorArgument(name, dtype, shape, writes=writes)
