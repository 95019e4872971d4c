"""Where the five distributions live in the source tree, which files each ships, and environments to try them in."""

from __future__ import annotations

import subprocess
import sysconfig
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

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
        return subprocess.run(command, cwd=self.root, capture_output=True, text=True, timeout=timeout_s)


#: Makes an environment that holds the named distributions and sees a folder of dependencies.
MakeEnvironment = Callable[[Iterable[str], Path], Environment]
