"""From modules to what Huawei's compiler makes of them: HIVM, and the device object where CANN is installed."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from backends.ascend import ascendc, command, messages
from backends.ascend.plan import Plan, read_plan
from backends.ascend.settings import Settings
from backends.ascend.toolchain import find_compiler, find_hivmc, toolchain
from core.codegen import mlir
from core.compiler import BuiltKernel, LoweredKernel, Toolchain, ToolResult, run_tool
from core.errors import BuildFailed, UnsupportedOp
from core.hardware import Chip
from core.plugins import BuildRequest

#: How long the compiler may take when the user does not say.
_TIMEOUT_S = 300.0


def build(chip: Chip, lowered: LoweredKernel, request: BuildRequest) -> BuiltKernel:
    """Compiles every launch of the kernel in a folder of its own below `request.directory`.

    Without CANN's `hivmc` the result is the compiled HIVM module (role `module`, then `module_1`, ...): the memory plan
    is known, nothing can be launched. With it there are the device object (`binary`) and the host callbacks (`host`).

    Raises:
        ToolchainNotFound: no `bishengir-compile`.
        ResourceExceeded: a memory space overflows, with the buffers in it.
        UnsupportedOp: an operation the compiler refuses, with the user's line.
        BuildFailed: it failed otherwise, crashed or hung; the module is kept.
    """
    settings = Settings.from_options(request.options.backend)
    if lowered.route == ascendc.ROUTE:
        raise UnsupportedOp(
            "AscendC source is generated here and built by TileLang's own adapter, on a machine with CANN's bisheng",
            hint='there, use tilelang.compile(kernel, target="ascend")',
        )
    files: dict[str, str] = {}
    plans: list[Plan] = []
    records: list[dict[str, Any]] = []
    used: tuple[str, ...] = ()
    for number, (source, launch) in enumerate(
        zip(lowered.source.split(mlir.SEPARATOR), lowered.metadata["launches"], strict=True)
    ):
        folder = request.directory / launch["entry"]
        folder.mkdir()
        (folder / "kernel.mlir").write_text(source, encoding="utf-8")
        plan, multi_buffer, result = _compile(chip, lowered, launch, folder, settings, request)
        suffix = f"_{number}" if number else ""
        files[f"module{suffix}"] = f"{launch['entry']}/{command.FINAL_MODULE}"
        files[f"source{suffix}"] = f"{launch['entry']}/kernel.mlir"
        for role, names in (("binary", ("kernel.o", "kernel_reloc.o")), ("host", ("libkernel.so",))):
            found = next((name for name in names if (folder / name).is_file()), None)
            if found is not None:
                files[f"{role}{suffix}"] = f"{launch['entry']}/{found}"
        plans.append(plan)
        records.append(_record(launch["entry"], plan, multi_buffer))
        used = result.command
    found_toolchain = toolchain(chip)
    return BuiltKernel(
        lowered=lowered,
        toolchain=Toolchain(found_toolchain.name, found_toolchain.version, found_toolchain.path, used),
        files=files,
        directory=request.directory,
        resources=replace(lowered.resources, memory_bytes=_memory(plans), workspace_bytes=_workspace(lowered, plans)),
        metadata={"launches": records, "complete": "binary" in files, "target": str(chip.codegen["target"])},
    )


def _record(entry: str, plan: Plan, multi_buffer: bool) -> dict[str, Any]:
    return {
        "entry": entry,
        "kernel_type": plan.kernel_type,
        "functions": list(plan.functions),
        "memory_bytes": plan.memory_bytes,
        "workspace_bytes_per_block": plan.workspace_bytes_per_block,
        "task_type": plan.task_type,
        "lock_count": plan.lock_count,
        "multi_buffer": multi_buffer,
    }


def _compile(
    chip: Chip,
    lowered: LoweredKernel,
    launch: dict[str, Any],
    folder: Path,
    settings: Settings,
    request: BuildRequest,
) -> tuple[Plan, bool, ToolResult]:
    """Compiles one module; a mix kernel that was taken for a pure one is compiled again without multi-buffering."""
    wanted = settings.multi_buffer
    multi_buffer = launch["kernel_type"] != "mix" if wanted is None else wanted
    plan, result = _run(chip, lowered, launch, folder, settings, request, multi_buffer)
    if wanted is None and multi_buffer and plan.kernel_type == "mix":
        multi_buffer = False
        plan, result = _run(chip, lowered, launch, folder, settings, request, multi_buffer)
    return plan, multi_buffer, result


def _run(
    chip: Chip,
    lowered: LoweredKernel,
    launch: dict[str, Any],
    folder: Path,
    settings: Settings,
    request: BuildRequest,
    multi_buffer: bool,
) -> tuple[Plan, ToolResult]:
    compiler = find_compiler(chip)
    words = command.compile_command(
        compiler, chip, "kernel.mlir", "kernel", settings, multi_buffer=multi_buffer
    ) + list(request.options.compile_flags)
    hivmc = find_hivmc(chip)
    final = folder / command.FINAL_MODULE
    final.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="tilehal-hivmc-") as stand_in:
        if hivmc is None:
            command.write_stand_in(Path(stand_in), chip)
            first = stand_in
        else:
            first = str(hivmc.path.parent)
        try:
            result = run_tool(
                words,
                cwd=folder,
                timeout_s=_TIMEOUT_S,
                options=request.options,
                env={"PATH": os.pathsep.join([first, os.environ.get("PATH", "")])},
                source=folder / "kernel.mlir",
                purpose=f"compile {launch['entry']} for {chip.target}",
                verbose=request.options.verbose,
            )
        except BuildFailed as error:
            translated = messages.translate(error, lowered.metadata, launch, chip.target)
            if translated is error:
                raise
            raise translated from error
    if not final.is_file() or final.stat().st_size == 0:
        raise BuildFailed(
            f"{compiler.path.name} ended well but left no {command.FINAL_MODULE}\n{result.output}",
            hint=f"the module it was given is {folder / 'kernel.mlir'}",
            details={"command": list(result.command), "output": result.output, "directory": str(folder)},
        )
    if hivmc is None:
        (folder / "kernel").unlink(missing_ok=True)  # the stand-in's copy of the module
    return read_plan(final.read_text(encoding="utf-8"), launch["entry"], result.output), result


def _memory(plans: list[Plan]) -> dict[str, int]:
    total: dict[str, int] = {}
    for plan in plans:
        for space, size in plan.memory_bytes.items():
            total[space] = max(total.get(space, 0), size)
    return total


def _workspace(lowered: LoweredKernel, plans: list[Plan]) -> int | None:
    """Bytes of the largest launch whose grid is known; None when a module or a grid does not say."""
    largest = 0
    for plan, grid in zip(plans, lowered.grid, strict=True):
        if not plan.workspace_bytes_per_block:
            continue
        blocks = 1
        for extent in grid:
            if not extent.isdigit():
                return None
            blocks *= int(extent)
        largest = max(largest, plan.workspace_bytes_per_block * blocks)
    return largest
