"""`kernel.export`: a built kernel as a folder that runs without TileHAL's compiler. docs/export.md describes it."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.codegen.host import LAUNCH_LIBRARY, LAUNCH_ROLE
from core.codegen.launch import with_headers
from core.codegen.launch.c_interface import c_name
from core.errors import UnsupportedOp
from core.runtime.artifact import FORMAT, SCHEMA, describe_file, staging, write
from core.runtime.plan import UnusablePlan
from core.runtime.symbols import symbol_sources

if TYPE_CHECKING:
    from core.compiler.artifacts import BuiltKernel, Export
    from core.runtime.kernel import Kernel


def export(kernel: Kernel, directory: Path) -> Path:
    """Writes the folder; see :meth:`core.Kernel.export`."""
    import core

    if kernel.simulated:
        raise UnsupportedOp(
            f"{kernel.name} is compiled for the simulator of {kernel.target}",
            hint="compile it without simulate=True, and export that",
        )
    how = _asked(kernel)
    built = kernel.build()
    with staging(directory) as folder:
        _write(kernel, built, how, folder, core.__version__)
    return directory


def _asked(kernel: Kernel) -> Export:
    """What the chip's backend says of the launch. Raises UnsupportedOp before anything is built or written."""
    from core.plugins import manager

    backend = manager().backend(kernel.chip.vendor)
    if not backend.implements("tilehal_export", kernel.chip):
        raise UnsupportedOp(
            f"kernels for {kernel.target} cannot be exported: {backend.package} does not implement tilehal_export",
            hint="its native source is in get_kernel_source(), its built files in binary()",
            location=kernel.program.location,
        )
    try:
        found: Export = backend.call("tilehal_export", kernel.chip, lowered=kernel.lowered)
    except UnsupportedOp as error:
        error.location = error.location or kernel.program.location
        raise
    return found


def _write(kernel: Kernel, built: BuiltKernel, how: Export, folder: Path, version: str) -> None:
    name = c_name(kernel.name)
    binary = folder / f"{name}{how.suffix}"
    shutil.copyfile(built.path(how.binary_role), binary)
    title = f"{kernel.name} for {kernel.target}, exported by TileHAL {version}"
    header, source = _interface(kernel, how, title, binary)
    paths = {
        "binary": binary,
        "native_source": folder / f"{name}{how.source_suffix}",
        "header": folder / f"{name}.h",
        "loader": folder / f"{name}.c",
    }
    paths["native_source"].write_text(kernel.get_kernel_source(), encoding="utf-8")
    paths["header"].write_text(header, encoding="utf-8")
    paths["loader"].write_text(with_headers(source), encoding="utf-8")
    if LAUNCH_ROLE in built.files:
        paths["launch"] = folder / f"{name}.{LAUNCH_LIBRARY}"
        shutil.copyfile(built.path(LAUNCH_ROLE), paths["launch"])
    write(folder, _metadata(kernel, built, how, paths, version))


def _interface(kernel: Kernel, how: Export, title: str, binary: Path) -> tuple[str, str]:
    try:
        return how.interface(title, binary.name, binary.read_bytes())
    except UnusablePlan as error:
        raise UnsupportedOp(
            f"{kernel.name} cannot be exported: {error}",
            hint="pass that number in a tensor of one element",
            location=kernel.program.location,
        ) from error


def _metadata(kernel: Kernel, built: BuiltKernel, how: Export, paths: dict[str, Path], version: str) -> dict[str, Any]:
    signature = kernel.lowered.signature
    return {
        "format": FORMAT,
        "schema": list(SCHEMA),
        "name": signature.name,
        "target": kernel.target,
        "device_type": how.device_type,
        "signature": signature.to_json(),
        "symbols": {symbol: asdict(source) for symbol, source in symbol_sources(signature).items()},
        "launch": dict(how.launch),
        "resources": asdict(built.resources),
        "config": kernel.config.to_json(),
        "made_by": {
            "tilehal": version,
            "backend": kernel.provenance.backend,
            "tilelang": kernel.provenance.tilelang,
            "toolchain": kernel.provenance.toolchain,
            "route": kernel.provenance.route,
            "rewrites": list(kernel.provenance.rewrites),
        },
        "files": {role: describe_file(path) for role, path in paths.items()},
    }
