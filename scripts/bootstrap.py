"""Creates `.venv` with TileHAL, its four backends and the tools of the checks in it; quick when nothing changed.

Run by `make` with any Python 3.11 or newer; uses nothing but the standard library. PyTorch goes first, because the
`torch` on PyPI brings several gigabytes of CUDA libraries that neither the demo nor the tests use: the CPU build is
taken where pip finds one (its index or folder in pip's own configuration, or in PIP_EXTRA_INDEX_URL / PIP_FIND_LINKS).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TORCH_VERSION = "2.13.0"
BACKENDS = ("cpu", "cuda", "ascend", "metax")
#: Vendors' own compilers and simulators' parts that pip can install: their tests run wherever the checks do.
EXTRAS = {"ascend": "[simulator]"}
CXX_COMPILERS = ("c++", "g++", "clang++")


def inputs_digest() -> str:
    """Hash of everything that decides what gets installed: this file, the project files and the Python."""
    digest = hashlib.sha256(sys.version.encode())
    projects = [ROOT / "pyproject.toml", *sorted(ROOT.glob("backends/*/pyproject.toml"))]
    for path in [Path(__file__), *projects]:
        digest.update(path.read_bytes())
    # A moved checkout needs its editable installs redone.
    digest.update(str(ROOT).encode())
    return digest.hexdigest()


def run(step: str, command: list[str]) -> bool:
    """Runs one installation step and says how it ended; its output is shown only when it fails."""
    print(f"  {step} ...", flush=True)
    finished = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if finished.returncode != 0:
        print(f"    failed: {' '.join(command)}\n{finished.stdout}", flush=True)
    return finished.returncode == 0


def has_cxx_compiler() -> bool:
    """Whether a C++ compiler is named by CXX or lies on PATH."""
    named = os.environ.get("CXX")
    return any(shutil.which(compiler) for compiler in ([named] if named else CXX_COMPILERS))


def install(python: str) -> bool:
    """Installs everything with the virtual environment's pip, in an order that keeps the download small."""
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    if not run("build tools", [*pip, "setuptools>=77", "wheel"]):
        return False
    installed = f"import torch; raise SystemExit(torch.__version__.split('+')[0] != {TORCH_VERSION!r})"
    has_torch = subprocess.run([python, "-c", installed], capture_output=True).returncode == 0
    # The second attempt is for a pip that knows no CPU build: the same release, with the CUDA libraries.
    if not has_torch and not (
        run(f"PyTorch {TORCH_VERSION} for the CPU", [*pip, f"torch=={TORCH_VERSION}+cpu"])
        or run(f"PyTorch {TORCH_VERSION} (large: with CUDA libraries)", [*pip, f"torch=={TORCH_VERSION}"])
    ):
        return False
    editable = ["-e", ".[dev,docs]"]
    for backend in BACKENDS:
        editable += ["-e", f"backends/{backend}{EXTRAS.get(backend, '')}"]
    if not run("TileLang, TileHAL and the backends", [*pip, "--no-build-isolation", *editable]):
        return False
    if has_cxx_compiler():
        return True
    return run("Zig's C++ compiler, since this machine has none", [*pip, "--no-build-isolation", "-e", ".[cxx]"])


def main() -> int:
    """Brings the environment up to date; returns 0 on success."""
    if sys.version_info < (3, 11):  # noqa: UP036 - run by whatever `python3` is, before any requirement is checked.
        print(f"TileHAL needs Python 3.11 or newer; this is {sys.version.split()[0]}. Try: make PYTHON=python3.11")
        return 1
    environment = ROOT / ".venv"
    python = str(environment / "bin" / "python")
    stamp = environment / "tilehal-installed"
    digest = inputs_digest()
    if stamp.exists() and stamp.read_text() == digest:
        return 0
    print("Preparing .venv (a few minutes the first time)", flush=True)
    if not Path(python).exists():
        venv.create(environment, with_pip=True)
    if not install(python):
        return 1
    stamp.write_text(digest)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
