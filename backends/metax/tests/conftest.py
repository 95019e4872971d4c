"""A MACA SDK that is none: a compiler, a runtime library and macainfo, each of which checks how it is used."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.metax import launcher, mcrtc, toolchain
from core.codegen import simt
from core.codegen.host import find_cxx_compiler

STANDIN = Path(__file__).with_name("standin")


@pytest.fixture(scope="session")
def runtime_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in runtime library, built once."""
    library = tmp_path_factory.mktemp("standin") / "libmcruntime.so"
    abi = simt.include_folder().parent / "simulator" / "runtime"
    command = [*find_cxx_compiler().command, "-shared", "-fPIC", "-O1", "-std=c++17", f"-I{abi}"]
    source = str(STANDIN / "libmcruntime.cpp")
    subprocess.run([*command, source, "-o", str(library), "-ldl"], check=True, timeout=120)
    return library


@pytest.fixture
def sdk(tmp_path: Path, runtime_library: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An SDK at `MACA_PATH` with mxcc, the runtime library and macainfo (a C550); the log is `calls` in it."""
    for folder in ("mxgpu_llvm/bin", "lib", "bin"):
        (tmp_path / folder).mkdir(parents=True)
    script(tmp_path / "mxgpu_llvm/bin/mxcc", f'exec "{sys.executable}" "{STANDIN / "mxcc.py"}" "$@"')
    script(tmp_path / "bin/macainfo", 'echo "  Name:                    XCORE1002"')
    (tmp_path / "lib/libmcruntime.so").symlink_to(runtime_library)
    monkeypatch.setenv("MACA_PATH", str(tmp_path))
    monkeypatch.setenv("STANDIN_LOG", str(tmp_path / "calls"))
    monkeypatch.delenv("MACA_ARCH", raising=False)
    forget()
    yield tmp_path
    forget()


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def forget() -> None:
    """What the backend remembers of the machine for the life of the process."""
    toolchain.device_architectures.cache_clear()
    mcrtc.find.cache_clear()
    launcher.runtime.cache_clear()
