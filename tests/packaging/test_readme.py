"""What README tells a newcomer to do works as written."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.layout import ROOT
from tests.packaging.markdown import blocks, run

README = (ROOT / "README.md").read_text()


def test_the_five_minute_example_is_right(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """That it runs by itself, from the built wheels, is a test of theirs."""
    run(blocks(README, "python")[0], tmp_path / "matmul.py")
    printed = capsys.readouterr().out
    difference = re.search(r"largest difference: (\S+)", printed)
    assert difference is not None
    # fp16 rounding of sums of 512 products, each of order one: the largest are near 100, where an fp16 step is 1/16.
    assert 0 < float(difference.group(1)) <= 0.0625
    error = re.search(r"relative error: (\S+)", printed)
    assert error is not None
    assert 1e-4 < float(error.group(1)) < 3e-4  # what README says to expect: about 2e-4
    assert "'block_M': 128" in printed
    assert "uses TMA: True and warpgroup products: True" in printed


def test_the_kernel_of_raw_tilelang_is_complete(tmp_path: Path) -> None:
    """It asserts what it computes."""
    run(blocks(README, "python")[1], tmp_path / "double.py")


def test_every_linked_file_exists() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("backends/*/README.md"))]
    broken = []
    for page in pages:
        for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in link and not (page.parent / link).exists():
                broken.append(f"{page.relative_to(ROOT)}: {link}")
    assert broken == []


def test_the_commands_it_names_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"\$ make ([a-z]+)", README)) <= targets
    finished = subprocess.run([sys.executable, "-m", "core", "--help"], capture_output=True, text=True, cwd=ROOT)
    assert finished.returncode == 0, finished.stderr
    missing = [name for name in re.findall(r"\$ tilehal ([a-z]+)", README) if name not in finished.stdout]
    assert missing == []
