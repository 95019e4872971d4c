"""Compiles generated C++ to a shared library."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from backends.cpu.toolchain import FLAGS, is_zig, toolchain
from core.codegen.host import build_launch, cpu_launch_file, find_cxx_compiler
from core.compiler import BuiltKernel, Toolchain, run_tool

if TYPE_CHECKING:
    from core.compiler import LoweredKernel
    from core.hardware import Chip
    from core.plugins import BuildRequest

SOURCE_NAME = "kernel.cpp"
LIBRARY_NAME = "kernel.so"


def build(chip: Chip, lowered: LoweredKernel, request: BuildRequest) -> BuiltKernel:
    """Writes the source into the request's folder and compiles it there.

    Raises:
        ToolchainNotFound: no C++ compiler, with every place that was looked at.
        BuildFailed: the compiler's message and command; the source stays in the folder.
    """
    from tvm_ffi import libinfo

    (request.directory / SOURCE_NAME).write_text(lowered.source, encoding="utf-8")
    for name, content in lowered.attachments.items():
        (request.directory / name).write_bytes(content)
    found = find_cxx_compiler()
    includes = dict.fromkeys((libinfo.find_include_path(), libinfo.find_dlpack_include_path()))
    command = (
        *found.command,
        *FLAGS,
        f"-march={chip.codegen.get('march', 'native')}",
        # The generated code needs no C++ library, which zig would build from source first: two minutes.
        *(("-nostdlib++",) if is_zig(found) else ()),
        # TVM-FFI's symbols come from the process that loads the library.
        *(("-undefined", "dynamic_lookup") if platform.system() == "Darwin" else ()),
        *(f"-I{folder}" for folder in includes),
        *request.options.compile_flags,
        SOURCE_NAME,
        "-o",
        LIBRARY_NAME,
        "-lpthread",
    )
    run_tool(
        command,
        cwd=request.directory,
        source=request.directory / SOURCE_NAME,
        purpose=f"compile {lowered.signature.name} for {chip.target}",
        verbose=request.options.verbose,
        options=request.options,
    )
    launch = cpu_launch_file(lowered)
    purpose = f"compile {lowered.signature.name} for {chip.target}"
    files = build_launch(request.directory, launch, purpose, verbose=request.options.verbose) if launch else {}
    used = toolchain()
    return BuiltKernel(
        lowered=lowered,
        toolchain=Toolchain(used.name, used.version, used.path, tuple(command)),
        files={"library": LIBRARY_NAME, "source": SOURCE_NAME, **files},
        directory=request.directory,
        resources=lowered.resources,
        metadata={"function": lowered.metadata["function"]},
    )
