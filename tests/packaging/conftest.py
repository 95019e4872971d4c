"""Builds the five distributions once and makes clean environments that hold chosen ones of them.

The environments take their dependencies from the one that runs the tests, through a folder of links that leaves out
TileHAL's own (editable) installation: what is imported there comes from the wheels.
"""

from __future__ import annotations

import shutil
import site
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.packaging.layout import DISTRIBUTIONS, Distribution, Environment, MakeEnvironment, made_once

#: Not importable in the light environments: what `describe` must do without. By the folder's name in site-packages.
HEAVY = ("torch", "tilelang", "tvm_ffi", "tvm", "torch_c_dlpack_ext", "functorch", "torchgen")


def build(distribution: Distribution, folder: Path) -> None:
    """Builds sdist and, from the sdist, wheel, from a copy of the sources, into `folder/dist`."""
    source = folder / "source"
    generated = shutil.ignore_patterns(
        "__pycache__", "*.egg-info", "build", "dist", ".venv", ".git", ".*_cache", "site"
    )
    if distribution.vendor:
        shutil.copytree(distribution.root, source, ignore=generated)
    else:
        shutil.copytree(distribution.root / "core", source / "core", ignore=generated)
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(distribution.root / name, source / name)
    out = folder / "dist"
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(source)]
    finished = subprocess.run(command, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stdout + finished.stderr


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel of each distribution, by the distribution's name."""
    with made_once(tmp_path_factory, "wheels") as (folder, is_made):
        if not is_made:
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(lambda d: build(d, folder / d.name), DISTRIBUTIONS))
    return {d.name: next((folder / d.name / "dist").glob("*.whl")) for d in DISTRIBUTIONS}


def link_dependencies(folder: Path, without: Iterable[str] = ()) -> Path:
    """A folder of links to everything installed beside the tests, except TileHAL itself and `without`."""
    folder.mkdir()
    for packages in site.getsitepackages():
        for entry in Path(packages).iterdir():
            ours = entry.name.lower().startswith(("tilehal", "__editable__"))
            if not ours and entry.suffix != ".pth" and entry.name not in without:
                (folder / entry.name).symlink_to(entry)
    return folder


@pytest.fixture(scope="session")
def all_dependencies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return link_dependencies(tmp_path_factory.mktemp("dependencies") / "all")


@pytest.fixture(scope="session")
def light_dependencies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dependencies without torch, tilelang and what they bring."""
    return link_dependencies(tmp_path_factory.mktemp("dependencies") / "light", without=HEAVY)


@pytest.fixture
def environment(wheels: dict[str, Path], tmp_path: Path) -> MakeEnvironment:
    """Makes an environment with the named distributions unpacked into its site-packages, and the given dependencies."""

    def make(names: Iterable[str], dependencies: Path) -> Environment:
        made = Environment(tmp_path / "environment")
        venv.create(made.root, with_pip=False, symlinks=True)
        for name in names:
            with zipfile.ZipFile(wheels[name]) as wheel:
                wheel.extractall(made.site_packages)
        (made.site_packages / "dependencies.pth").write_text(f"{dependencies}\n")
        return made

    return make
