"""Finding nvcc: `CUDA_HOME`/`CUDA_PATH`, PATH, the PyPI package `nvidia-cuda-nvcc`, the usual installation folders."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from core.codegen import host
from core.compiler import FoundProgram, NotFound, Toolchain, find_program, tool_version

#: Flags nvcc takes from the environment.
_VARIABLES = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")


def find_nvcc() -> FoundProgram:
    """The nvcc to build with.

    Raises:
        ToolchainNotFound: none is found; the message lists every place.
    """
    found = find_program(
        ("nvcc",),
        env_homes=("CUDA_HOME", "CUDA_PATH"),
        folders=(*_pypi_folders(), Path("/usr/local/cuda/bin"), Path("/opt/cuda/bin")),
    )
    if isinstance(found, NotFound):
        raise found.error(
            "build CUDA binaries", "install the CUDA toolkit and set CUDA_HOME, or `pip install tilehal[nvcc]`"
        )
    return found


def _pypi_folders() -> tuple[Path, ...]:
    """Where the PyPI package keeps nvcc (version 13 and later; the `-cu12` packages hold only ptxas)."""
    try:
        listed = files("nvidia-cuda-nvcc") or []
    except PackageNotFoundError:
        return ()
    return tuple(Path(str(file.locate())).parent for file in listed if file.name == "nvcc")


def nvcc_toolchain() -> Toolchain:
    """Name, version (`13.0.88`) and path of nvcc. Raises ToolchainNotFound."""
    nvcc = find_nvcc()
    text = tool_version(nvcc)
    match = re.search(r"release [\d.]+, V([\d.]+)", text)
    return Toolchain("nvcc", match[1] if match else text.splitlines()[-1], str(nvcc.path), nvcc.command)


def toolchain() -> Toolchain:
    """nvcc with everything else a build depends on in its version: the host compiler, and what the environment adds.

    Raises:
        ToolchainNotFound: nvcc or a host compiler is missing.
    """
    nvcc = nvcc_toolchain()
    besides = [tool_version(host.find_c_compiler()).splitlines()[0]]
    besides += [f"{name}={os.environ[name]}" for name in _VARIABLES if os.environ.get(name)]
    return replace(nvcc, version=f"{nvcc.version} ({'; '.join(besides)})")


def cuda_include_folders(nvcc: FoundProgram) -> tuple[Path, ...]:
    """Extra include folders for an nvcc from PyPI, whose runtime and CCCL headers come in packages beside it."""
    root = nvcc.path.resolve().parent.parent
    return tuple(folder for folder in (root / "include", root / "include" / "cccl") if folder.is_dir())
