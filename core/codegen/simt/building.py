"""From translated source to a loadable image, with the vendor's compiler as the dialect describes it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from core.codegen.simt.dialect import Dialect
from core.codegen.simt.launching import sdk_roots
from core.codegen.simt.lowering import include_folder
from core.compiler.artifacts import BuiltKernel, CompileOptions, LoweredKernel, Toolchain
from core.compiler.toolchain import FoundProgram, NotFound, find_program, run_tool, tool_version

if TYPE_CHECKING:
    from core.plugins import BuildRequest


def find_compiler(dialect: Dialect) -> FoundProgram:
    """The vendor's compiler: under the SDK's root (variables, else the usual places), then on PATH.

    Raises:
        ToolchainNotFound: names the compiler, the variables, and every place that was looked at.
    """
    step = dialect.compile
    folders = [root / folder for root in sdk_roots(dialect) for folder in step.folders]
    in_sdk = find_program((step.program,), folders=folders, search_path=False)
    if isinstance(in_sdk, FoundProgram):
        return in_sdk
    on_path = find_program((step.program,))
    if isinstance(on_path, FoundProgram):
        return on_path
    variables = tuple(f"${name} ({_said(name)})" for name in step.environment)
    raise NotFound((step.program,), (*variables, *in_sdk.looked, *on_path.looked)).error(
        f"build {dialect.name} binaries",
        f"install the vendor's SDK and set {' or '.join(step.environment)} to its root",
    )


def _said(name: str) -> str:
    import os

    return f"set to {os.environ[name]}" if os.environ.get(name) else "not set"


def compiler_toolchain(dialect: Dialect, architecture: str) -> Toolchain:
    """Name, version and path of the compiler. The architecture is part of the version: it changes the binary.

    Raises:
        ToolchainNotFound: it is missing, or does not run.
    """
    found = find_compiler(dialect)
    version = next((line for line in tool_version(found).splitlines() if line.strip()), "unknown version")
    return Toolchain(dialect.compile.program, f"{version.strip()} for {architecture}", str(found.path), found.command)


def compile_command(
    dialect: Dialect,
    compiler: Sequence[str],
    architecture: str,
    options: CompileOptions,
    include_folders: Sequence[Path],
    source: str,
    binary: str,
) -> list[str]:
    """The command line, with file names relative to the build folder."""
    step = dialect.compile
    flags = [flag.format(arch=architecture) for flag in step.flags]
    if options.fast_math:
        flags += step.fast_math_flags
    for flag in options.compile_flags:
        flags += shlex.split(flag)
    sdk = [root / folder for root in sdk_roots(dialect) for folder in step.include_folders if (root / folder).is_dir()]
    includes = [f"{step.include_flag}{folder}" for folder in (*include_folders, include_folder(), *sdk)]
    return [*compiler, *flags, *includes, step.output_flag, binary, source]


def build(
    lowered: LoweredKernel,
    request: BuildRequest,
    *,
    dialect: Dialect,
    architecture: str,
    include_folders: Sequence[Path],
) -> BuiltKernel:
    """Compiles into `request.directory`.

    Raises:
        ToolchainNotFound: the compiler is missing.
        BuildFailed: it refused; its message and command are in the error, the source stays in the folder.
    """
    step = dialect.compile
    source, binary = f"kernel{step.source_suffix}", f"kernel{step.binary_suffix}"
    folder = request.directory
    (folder / source).write_text(lowered.source)
    toolchain = compiler_toolchain(dialect, architecture)
    command = compile_command(
        dialect, toolchain.command, architecture, request.options, include_folders, source, binary
    )
    run_tool(
        command,
        cwd=folder,
        source=folder / source,
        purpose=f"compile {lowered.signature.name} for {lowered.target}",
        verbose=request.options.verbose,
        options=request.options,
    )
    return BuiltKernel(
        lowered=lowered,
        toolchain=Toolchain(toolchain.name, toolchain.version, toolchain.path, tuple(command)),
        files={"binary": binary, "source": source},
        directory=folder,
        resources=lowered.resources,
        metadata={"architecture": architecture, "format": step.binary_suffix.lstrip(".")},
    )
