"""From CUDA C++ to a cubin with nvcc, and from the launch's C to the library that calls it."""

from __future__ import annotations

import shlex
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from backends.cuda import ptxas
from backends.cuda.toolchain import cuda_include_folders, find_nvcc, toolchain
from core.codegen import host, native
from core.compiler import BuiltKernel, CompileOptions, LoweredKernel, Toolchain, run_tool
from core.hardware import Chip
from core.plugins import BuildRequest

_DEVICE_SOURCE = "kernel.cu"
_DEVICE_BINARY = "kernel.cubin"
_HOST_LIBRARY = "host.so"


def build(chip: Chip, lowered: LoweredKernel, request: BuildRequest) -> BuiltKernel:
    """Compiles device and host code side by side into `request.directory`.

    Raises:
        ToolchainNotFound: nvcc is missing; or a C compiler, for a kernel that only TileLang's host code can launch.
        BuildFailed: one of them refused; the sources stay in the folder.
    """
    folder = request.directory
    (folder / _DEVICE_SOURCE).write_text(lowered.source)
    used = toolchain()
    command = nvcc_command(chip, request.options)
    purpose = f"compile {lowered.signature.name} for {chip.target}"
    with ThreadPoolExecutor(1) as pool:
        host_files = pool.submit(
            _build_host, lowered, str(chip.codegen["arch"]), folder, purpose, request.options.verbose
        )
        result = run_tool(
            command,
            cwd=folder,
            source=folder / _DEVICE_SOURCE,
            purpose=purpose,
            verbose=request.options.verbose,
            options=request.options,
        )
        files = host_files.result()
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
        files={"binary": _DEVICE_BINARY, "source": _DEVICE_SOURCE, **files},
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


def _build_host(lowered: LoweredKernel, arch: str, folder: Path, purpose: str, verbose: bool) -> dict[str, str]:
    """Our own launch, or TileLang's host code where the launch has no plan; names of the files by role."""
    if native.plan_of(lowered) is not None:
        return host.build_launch(folder, native.launch_file(lowered, arch), purpose, verbose=verbose)
    (folder / native.HOST_SOURCE).write_bytes(lowered.attachments[native.HOST_SOURCE])
    compiler = host.find_c_compiler()
    command = native.host_compile_command(compiler.command, Path(native.HOST_SOURCE), Path(_HOST_LIBRARY))
    run_tool(
        command,
        cwd=folder,
        source=folder / native.HOST_SOURCE,
        purpose=f"{purpose} (host side)",
        verbose=verbose,
    )
    return {"library": _HOST_LIBRARY}
