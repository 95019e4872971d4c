"""Where the five distributions live in the source tree, which files each ships, and environments to try them in."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from filelock import FileLock

ROOT = Path(__file__).resolve().parents[2]
VENDORS = ("ascend", "cpu", "cuda", "metax")

#: Files of a backend's folder that belong to its project, not to its package.
PROJECT_FILES = {"pyproject.toml", "setup.py", "README.md", "LICENSE", "CHANGELOG.md"}
GENERATED = {"__pycache__", "build", "dist"}


@dataclass(frozen=True)
class Distribution:
    """A distribution: `vendor` is empty for `tilehal` itself."""

    name: str
    vendor: str
    root: Path

    def package_files(self) -> set[str]:
        """Paths inside the wheel of every file of the package's source: modules and data, no tests."""
        source = self.root if self.vendor else self.root / "core"
        prefix = f"backends/{self.vendor}" if self.vendor else "core"
        files = set()
        for path in source.rglob("*"):
            parts = path.relative_to(source).parts
            generated = any(part in GENERATED or part.endswith(".egg-info") or part.startswith(".") for part in parts)
            project = self.vendor and (parts[0] == "tests" or (len(parts) == 1 and parts[0] in PROJECT_FILES))
            if path.is_file() and not generated and not project:
                files.add("/".join((prefix, *parts)))
        return files


DISTRIBUTIONS = (
    Distribution("tilehal", "", ROOT),
    *(Distribution(f"tilehal-{vendor}", vendor, ROOT / "backends" / vendor) for vendor in VENDORS),
)


def environment_of_a_shell() -> dict[str, str]:
    """The environment without what importing tilelang leaves in it for child processes.

    With those a child finds tilelang's `tvm` on its path and tilelang's libraries first, so that another TVM breaks.
    """
    left_by_tilelang = {"PYTHONPATH", "TVM_LIBRARY_PATH", "TL_CUTLASS_PATH", "TL_TEMPLATE_PATH"}
    return {name: value for name, value in os.environ.items() if name not in left_by_tilelang}


@dataclass(frozen=True)
class Environment:
    """A virtual environment; `python` runs in it, `scripts` has its console scripts."""

    root: Path

    @property
    def python(self) -> str:
        return str(self.root / "bin" / "python")

    @property
    def scripts(self) -> Path:
        return self.root / "bin"

    @property
    def site_packages(self) -> Path:
        return Path(sysconfig.get_path("purelib", vars={"base": str(self.root), "platbase": str(self.root)}))

    def run(self, *command: str, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
        """Runs a command away from the source tree, so that neither `core` nor `backends` is found there."""
        return subprocess.run(
            command, cwd=self.root, env=environment_of_a_shell(), capture_output=True, text=True, timeout=timeout_s
        )


#: Makes an environment that holds the named distributions and sees a folder of dependencies.
MakeEnvironment = Callable[[Iterable[str], Path], Environment]


@contextmanager
def made_once(tmp_path_factory: pytest.TempPathFactory, name: str) -> Iterator[tuple[Path, bool]]:
    """A folder that all workers of a test run share, and whether one of them has filled it; the others wait."""
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    folder, done = shared / name, shared / f"{name}.done"
    with FileLock(shared / f"{name}.lock"):
        if not done.exists():
            # What a worker left that failed half-way.
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        yield folder, done.exists()
        done.touch()
