"""Finding Huawei's compilers: `bishengir-compile` (CANN's first, then PyPI's `ascendnpu-ir`) and CANN's `hivmc`."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from core.compiler import FoundProgram, NotFound, Toolchain, find_program, tool_version
from core.hardware import Chip

_INSTALL = (
    "pip install tilehal-ascend[compiler] (Huawei's compiler from PyPI, about 500 MB), or source set_env.sh of a CANN"
    " toolkit that has it"
)


def compiler_name(chip: Chip) -> str:
    """The compiler for the chip's family: `bishengir-compile`, or its `-a5` twin. Neither serves the other's chips."""
    return str(chip.codegen.get("tool", "bishengir-compile"))


def is_a5(chip: Chip) -> bool:
    """Whether the chip is of the 950 family (A5, dav-c310)."""
    return compiler_name(chip).endswith("-a5")


def find_compiler(chip: Chip) -> FoundProgram:
    """The `bishengir-compile` to build with.

    Raises:
        ToolchainNotFound: there is none; the message lists every place looked at.
    """
    found = find_program(
        (compiler_name(chip),),
        env_homes=("ASCEND_HOME_PATH",),
        folders=_pypi_folders(),
    )
    if isinstance(found, NotFound):
        raise found.error(f"build for {chip.target}", _INSTALL)
    return found


def find_opt(chip: Chip) -> FoundProgram:
    """The `bishengir-opt` that belongs to the compiler. Raises ToolchainNotFound."""
    name = compiler_name(chip).replace("compile", "opt")
    found = find_program((name,), env_homes=("ASCEND_HOME_PATH",), folders=_pypi_folders())
    if isinstance(found, NotFound):
        raise found.error(f"transform modules for {chip.target}", _INSTALL)
    return found


def find_hivmc(chip: Chip) -> FoundProgram | None:
    """CANN's backend compiler, which makes the device object; None where CANN is not installed."""
    name = "hivmc-a5" if is_a5(chip) else "hivmc"
    found = find_program((name,), env_homes=("BISHENG_INSTALL_PATH", "ASCEND_HOME_PATH"))
    return None if isinstance(found, NotFound) else found


def _pypi_folders() -> tuple[Path, ...]:
    """Where the PyPI package keeps its programs."""
    try:
        listed = files("ascendnpu-ir") or []
    except PackageNotFoundError:
        return ()
    return tuple({Path(str(file.locate())).parent for file in listed if file.name == "bishengir-compile"})


def toolchain(chip: Chip) -> Toolchain:
    """The compiler and, as far as there is one, the backend compiler behind it. Raises ToolchainNotFound."""
    found = find_compiler(chip)
    version = tool_version(found).splitlines()[0].strip()
    hivmc = find_hivmc(chip)
    behind = f"hivmc {tool_version(hivmc).splitlines()[0]}" if hivmc is not None else "no hivmc (module only)"
    return Toolchain(compiler_name(chip), f"{version.removeprefix('bishengir-compile ')}; {behind}", str(found.path))
