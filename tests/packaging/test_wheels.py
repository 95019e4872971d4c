"""Built wheels, not only editable installs: complete, in every combination, and with nobody else's files."""

from __future__ import annotations

import json
import re
import zipfile
from itertools import combinations
from pathlib import Path

import pytest

from tests.packaging.layout import DISTRIBUTIONS, ROOT, VENDORS, Distribution, Environment, MakeEnvironment

COMBINATIONS = [vendors for size in range(len(VENDORS) + 1) for vendors in combinations(VENDORS, size)]


def wheel_files(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if not name.endswith("/")}


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=lambda d: d.name)
def test_a_wheel_holds_the_package_and_nothing_else(distribution: Distribution, wheels: dict[str, Path]) -> None:
    files = wheel_files(wheels[distribution.name])
    packaged = {name for name in files if ".dist-info/" not in name}
    expected = distribution.package_files()
    assert packaged - expected == set(), "shipped, but not part of the package"
    assert expected - packaged == set(), "in the source tree, but not shipped"
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in files)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=lambda d: d.name)
def test_a_wheel_owns_only_its_own_top_level_name(distribution: Distribution, wheels: dict[str, Path]) -> None:
    # A vendor's wheel that overwrites files of the compiler breaks it for every other vendor.
    with zipfile.ZipFile(wheels[distribution.name]) as archive:
        (record,) = (name for name in archive.namelist() if name.endswith(".dist-info/RECORD"))
        paths = [line.split(",")[0] for line in archive.read(record).decode().splitlines()]
    own = f"backends/{distribution.vendor}/" if distribution.vendor else "core/"
    foreign = [path for path in paths if not path.startswith(own) and ".dist-info/" not in path]
    assert foreign == []
    assert "backends/__init__.py" not in paths, "a file there would make `backends` belong to one vendor"


# None, each alone and all of them in every run: what is between is no different unless one needs another.
@pytest.mark.parametrize(
    "vendors",
    [pytest.param(some, marks=pytest.mark.wide if 1 < len(some) < len(VENDORS) else ()) for some in COMBINATIONS],
    ids=lambda vendors: "+".join(vendors) or "none",
)
def test_backends_install_in_every_combination(
    vendors: tuple[str, ...], environment: MakeEnvironment, light_dependencies: Path
) -> None:
    names = ["tilehal", *(f"tilehal-{vendor}" for vendor in vendors)]
    made = environment(names, light_dependencies)
    # The environment has neither torch nor tilelang, as the first line proves.
    absent = made.run(made.python, "-c", "import torch")
    assert "No module named 'torch'" in absent.stderr
    listed = made.run(made.python, "-m", "core.describe", "--list", "--json")
    assert listed.returncode == 0, listed.stdout + listed.stderr
    assert listed.stderr == ""
    assert {entry["chip"]["vendor"] for entry in json.loads(listed.stdout)["chips"]} == set(vendors)


def test_the_real_installer_gives_a_working_command(
    wheels: dict[str, Path], environment: MakeEnvironment, all_dependencies: Path
) -> None:
    made = environment([], all_dependencies)
    installed = made.run(
        made.python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", *map(str, wheels.values())
    )
    assert installed.returncode == 0, installed.stdout + installed.stderr
    helped = made.run(str(made.scripts / "tilehal"), "--help")
    assert helped.returncode == 0, helped.stderr
    assert "describe" in helped.stdout
    assert_comes_from_wheels(made)
    # Code generation, headers and launch too, by README's example.
    script = made.root / "matmul.py"
    script.write_text(
        re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)[0]
    )
    ran = made.run(made.python, str(script))
    assert ran.returncode == 0, ran.stderr
    assert "largest difference" in ran.stdout


def assert_comes_from_wheels(made: Environment) -> None:
    """`core` and each backend are imported from the environment, not from the source tree."""
    names = ["core", *(f"backends.{vendor}" for vendor in VENDORS)]
    code = f"import importlib; [print(importlib.import_module(n).__file__) for n in {names}]"
    found = made.run(made.python, "-c", code)
    assert found.returncode == 0, found.stderr
    assert [Path(line).is_relative_to(made.site_packages) for line in found.stdout.split()] == [True] * len(names)
