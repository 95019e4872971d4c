"""From MACA C++ to an image: mxcc, or the compiler inside the runtime library (mcrtc) where there is no mxcc."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from backends.metax import mcrtc
from backends.metax.dialect import MACA
from backends.metax.toolchain import architecture, mxcc_toolchain
from core.codegen import simt
from core.compiler import BuiltKernel, LoweredKernel, Toolchain
from core.errors import ToolchainNotFound
from core.hardware import Chip
from core.plugins import BuildRequest


def include_folder() -> Path:
    """Folder of our headers `tilehal/maca/*.h`."""
    return Path(str(files("backends.metax") / "include"))


def toolchain(chip: Chip) -> Toolchain:
    """mxcc; where it is missing and the runtime library is there, mcrtc, which the kernel's provenance then names.

    Raises:
        ToolchainNotFound: neither; lists every place that was looked at, for both.
    """
    try:
        return mxcc_toolchain(chip)
    except ToolchainNotFound as error:
        compiler = mcrtc.find()
        if compiler is not None:
            return Toolchain("mcrtc", f"{compiler.version} for {architecture(chip)}", compiler.path)
        raise ToolchainNotFound(
            f"{error.message}\n  nor is there a {MACA.runtime_library}, whose mcrtc could compile instead",
            hint=error.hint,
            details=error.details,
        ) from error


def build(chip: Chip, lowered: LoweredKernel, request: BuildRequest) -> BuiltKernel:
    """Compiles into `request.directory`.

    Raises:
        ToolchainNotFound: no compiler.
        BuildFailed: it refused; its message, and the source in the folder.
    """
    if toolchain(chip).name == "mcrtc":
        return mcrtc.build(chip, lowered, request, architecture(chip), [include_folder(), simt.include_folder()])
    return simt.build(
        lowered, request, dialect=MACA, architecture=architecture(chip), include_folders=[include_folder()]
    )
