"""From CUDA C++ to a cubin with nvcc, and from the host C to the library that launches it."""

from __future__ import annotations

import shlex
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from backends.cuda import ptxas
from backends.cuda.toolchain import cuda_include_folders, find_nvcc, toolchain
from core.codegen import host, native
from core.compiler import BuiltKernel, CompileOptions, LoweredKernel, Toolchain, ToolResult, run_tool
from core.hardware import Chip
from core.plugins import BuildRequest

_DEVICE_SOURCE = "kernel.cu"
_DEVICE_BINARY = "kernel.cubin"
_HOST_LIBRARY = "host.so"


def build(chip: Chip, lowered: LoweredKernel, request: BuildRequest) -> BuiltKernel:
    """Compiles device and host code side by side into `request.directory`.

    Raises:
        ToolchainNotFound: nvcc or a host C compiler is missing.
        BuildFailed: one of them refused; the sources stay in the folder.
    """
    folder = request.directory
    (folder / _DEVICE_SOURCE).write_text(lowered.source)
    (folder / native.HOST_SOURCE).write_bytes(lowered.attachments[native.HOST_SOURCE])
    used = toolchain()
    command = nvcc_command(chip, request.options)
    purpose = f"compile {lowered.signature.name} for {chip.target}"
    with ThreadPoolExecutor(1) as pool:
        library = pool.submit(_build_host, folder, purpose, request.options.verbose)
        result = run_tool(
            command, cwd=folder, source=folder / _DEVICE_SOURCE, purpose=purpose, verbose=request.options.verbose
        )
        library.result()
    usage = ptxas.parse(result.stderr)
    entries = [usage[name] for name in lowered.entry_points if name in usage]
    figures = {
        name: max((value for value in (getattr(entry, name) for entry in entries) if value is not None), default=None)
        for name in (
            "registers_per_thread",
            "static_shared_bytes",
            "stack_bytes",
            "spill_store_bytes",
            "spill_load_bytes",
        )
    }
    return BuiltKernel(
        lowered=lowered,
        toolchain=Toolchain(used.name, used.version, used.path, tuple(command)),
        files={"binary": _DEVICE_BINARY, "library": _HOST_LIBRARY, "source": _DEVICE_SOURCE},
        directory=folder,
        resources=native.with_build_figures(lowered, figures),
        metadata={"arch": str(chip.codegen["arch"]), "format": "cubin"},
    )


def nvcc_command(chip: Chip, options: CompileOptions) -> list[str]:
    """The nvcc command line, with file names relative to the build folder.

    The flags are those TileLang's own CUDA route passes, so that the same source gives the same binary; `-Xptxas -v`
    adds the resource report.
    """
    nvcc = find_nvcc()
    flags = ["--cubin", "-O3", "-lineinfo", f"-arch={chip.codegen['arch']}", "-std=c++20", "-Xptxas", "-v", "-w"]
    if options.fast_math or options.pass_configs.get("tl.enable_fast_math"):
        flags.append("--use_fast_math")
    level = options.pass_configs.get("tl.ptxas_register_usage_level")
    if level is not None:
        flags.append(f"--ptxas-options=--register-usage-level={int(level)}")
    extra = options.pass_configs.get("tl.device_compile_flags") or ()
    for flag in (*((extra,) if isinstance(extra, str) else tuple(extra)), *options.compile_flags):
        flags += shlex.split(str(flag))
    includes = [f"-I{path}" for path in (*host.device_include_paths(), *cuda_include_folders(nvcc))]
    return [*nvcc.command, *flags, *includes, "-o", _DEVICE_BINARY, _DEVICE_SOURCE]


def _build_host(folder: Path, purpose: str, verbose: bool) -> ToolResult:
    compiler = host.find_c_compiler()
    command = native.host_compile_command(compiler.command, Path(native.HOST_SOURCE), Path(_HOST_LIBRARY))
    return run_tool(
        command,
        cwd=folder,
        source=folder / native.HOST_SOURCE,
        purpose=f"{purpose} (host side)",
        verbose=verbose,
    )
