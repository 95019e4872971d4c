"""The example packages, installed as pip installs them, in an interpreter of their own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "vendor_example"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with both example packages, put there by pip."""
    target = tmp_path_factory.mktemp("installed")
    sources = tmp_path_factory.mktemp("sources")
    for name in ("backend", "extension"):
        # setuptools builds in the source folder; the tree of the repository stays clean.
        shutil.copytree(EXAMPLES / name, sources / name)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    command = [*pip, "--target", str(target), str(sources / "backend"), str(sources / "extension")]
    finished = subprocess.run(command, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    return target


@pytest.fixture
def python(folder, tmp_path):
    """Runs Python with the packages on its path and returns what it prints."""

    def run(*arguments: str, **variables: str) -> str:
        environment = {
            **os.environ,
            "PYTHONPATH": str(folder),
            "TILEHAL_CACHE_DIR": str(tmp_path / "cache"),
            **variables,
        }
        finished = subprocess.run(
            [sys.executable, *arguments], env=environment, capture_output=True, text=True, cwd=tmp_path
        )
        assert finished.returncode == 0, finished.stdout + finished.stderr
        return finished.stdout

    return run


def test_its_chips_are_targets(python):
    infos = {info["target"]: info for info in json.loads(python("-m", "core", "targets", "--json"))}
    n1 = infos["nova:n1"]
    assert (n1["backend"], n1["title"], n1["default"]) == ("tilehal-nova 0.3.0", "Nova N1", True)
    assert n1["compile"]["possible"]
    assert n1["simulate"]["possible"]
    assert (n1["run"]["possible"], infos["nova:n2"]["default"]) == (False, False)


def test_doctor_loads_owner_and_extension_and_has_no_complaint(python):
    report = json.loads(python("-m", "core", "doctor", "--target", "nova:n2", "--json"))
    plugins = {(plugin["package"], plugin["target"]): plugin["status"] for plugin in report["plugins"]}
    assert plugins["tilehal-nova 0.3.0", "nova"] == "loaded"
    assert plugins["nova-house-rules 1.0.0", "nova"] == "loaded"
    assert plugins["nova-house-rules 1.0.0", "nova:n2"] == "loaded"
    (backend,) = report["backends"]
    assert backend["examined"] == "nova:n2"
    assert [finding["code"] for finding in report["findings"] if finding["code"].startswith("nova")] == [
        "nova-no-device"
    ]


def test_a_kernel_compiles_with_the_extensions_tiles_and_is_right_on_the_simulator(python, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        """
import json, torch, core
from tilehal_nova.kernels import add
found = {}
for chip in ("n1", "n2"):
    kernel = core.compile(add, 1000, target=f"nova:{chip}", simulate=True)
    a, b = torch.randn(1000), torch.randn(1000)
    built = kernel.build()
    found[chip] = {
        "right": bool((kernel(a, b) == a + b).all()),
        "tile": kernel.config["block_N"].requested,
        "chosen_by": kernel.config["block_N"].chosen_by,
        "signed": len(built.metadata.get("signature", "")),
    }
print(json.dumps(found))
"""
    )
    found = json.loads(python(str(script)).splitlines()[-1])
    assert found == {
        "n1": {"right": True, "tile": 256, "chosen_by": "rule:nova-rows", "signed": 64},
        "n2": {"right": True, "tile": 512, "chosen_by": "rule:house-rows", "signed": 64},
    }


def test_each_call_can_be_traced_to_its_package(python):
    script = (
        "from core.plugins import manager; b = manager().backend('nova'); b.call('tilehal_toolchain', b.chips()[0])"
    )
    assert python("-c", script, TILEHAL_TRACE_PLUGINS="1") == ""


def test_left_out_they_are_gone(python):
    printed = python("-m", "core", "targets", "--json", TILEHAL_LOAD_PLUGINS="cpu")
    assert {info["target"].partition(":")[0] for info in json.loads(printed)} == {"cpu"}
