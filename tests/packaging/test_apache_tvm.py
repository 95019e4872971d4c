"""PyPI's `apache-tvm` beside tilelang, which ships a TVM build of its own under the same import name.

The release that the extra `tilehal[tvm]` pins is installed into a folder that goes first on the path, and each test is
a process of its own: what is tested is the order of imports.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import Distribution, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.packaging.layout import ROOT, environment_of_a_shell, made_once

pytestmark = pytest.mark.slow

KERNEL = """
import tilelang.language as T

@T.prim_func
def add_one(A: T.Tensor((1024,), "float32"), B: T.Tensor((1024,), "float32")):
    with T.Kernel(8, threads=128) as bx:
        for i in T.Parallel(128):
            B[bx * 128 + i] = A[bx * 128 + i] + 1.0
"""

UNREACHABLE = re.compile(r"Retrying|NewConnectionError|Temporary failure in name resolution|timed out", re.IGNORECASE)


@pytest.fixture(scope="session")
def apache_tvm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the release that the extra pins, without its dependencies."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    with made_once(tmp_path_factory, "apache-tvm") as (folder, is_made):
        if not is_made:
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--retries", "1"]
            command = [*pip, "--target", str(folder), *extras["tvm"]]
            finished = subprocess.run(command, capture_output=True, text=True)
            if finished.returncode != 0 and UNREACHABLE.search(finished.stderr):
                pytest.skip("the package registry cannot be reached")
            assert finished.returncode == 0, finished.stderr
    return folder


def python(code: str, folder: Path, directory: Path) -> subprocess.CompletedProcess[str]:
    """Runs code, as a file (TileLang reads the kernel's source), with the release first on the path."""
    script = directory / "script.py"
    script.write_text(code)
    environment = {**environment_of_a_shell(), "PYTHONPATH": str(folder)}
    return subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=300)


def test_the_pinned_release_fits_the_ffi_of_tilelang(apache_tvm: Path) -> None:
    (info,) = apache_tvm.glob("apache_tvm-*.dist-info")
    requirements = map(Requirement, Distribution.at(info).requires or [])
    (ffi,) = (requirement for requirement in requirements if requirement.name == "apache-tvm-ffi")
    assert ffi.specifier.contains(version("apache-tvm-ffi"))


def test_core_first_and_everybody_shares_the_tvm_of_tilelang(apache_tvm: Path, tmp_path: Path) -> None:
    code = "import core\n" + KERNEL
    code += "source = core.compile(add_one, target='cuda:h200', out_idx=[1]).get_kernel_source()\n"
    code += "import json, tilelang, tvm\nprint(json.dumps([tvm is tilelang.tvm, tvm.__file__, '__global__' in source]))"
    finished = python(code, apache_tvm, tmp_path)
    assert finished.returncode == 0, finished.stderr
    same, file, compiled = json.loads(finished.stdout.splitlines()[-1])
    assert same
    assert compiled
    assert not Path(file).is_relative_to(apache_tvm)


TVM_FIRST = """
import json
import tvm
import core

facts = {}
for name in ("cuda:h200", "cuda:a100-80gb", "metax:c500", "ascend:910b3"):
    chip = core.chip(name)
    target = tvm.target.Target(chip.tvm_target())
    facts[name] = [target.kind.name == chip.codegen["tvm_kind"], target.attrs["model"], target.attrs.get("arch")]
limit = int(tvm.target.Target(core.chip("cuda:h200").tvm_target()).attrs["max_num_threads"])

def factory(n):
    raise AssertionError("never traced: tilelang cannot be imported any more")

try:
    core.compile(factory, 8, target="cpu")
except core.TileHALError as error:
    print(json.dumps({"tvm": tvm.__file__, "facts": facts, "limit": limit, "error": error.to_json()}), flush=True)
import tilelang
"""


@pytest.fixture(scope="module")
def tvm_first(apache_tvm: Path, tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """A process that imports the release first, uses our descriptors, and then tries to compile."""
    return python(TVM_FIRST, apache_tvm, tmp_path_factory.mktemp("tvm-first"))


def test_our_descriptors_are_targets_of_apache_tvm_in_a_process_of_its_own(
    apache_tvm: Path, tvm_first: subprocess.CompletedProcess[str]
) -> None:
    said = json.loads(tvm_first.stdout)
    assert Path(said["tvm"]).is_relative_to(apache_tvm)
    assert said["facts"] == {
        "cuda:h200": [True, "h200", "sm_90a"],
        "cuda:a100-80gb": [True, "a100-80gb", "sm_80"],
        "metax:c500": [True, "c500", None],
        "ascend:910b3": [True, "910b3", None],
    }
    assert said["limit"] == 1024


def test_tvm_first_and_compiling_says_what_happened_and_what_to_do(
    tvm_first: subprocess.CompletedProcess[str],
) -> None:
    said = json.loads(tvm_first.stdout)
    error = said["error"]
    assert error["code"] == "tvm-import-order"
    assert said["tvm"] in error["message"]
    assert "fresh process" in error["hint"]
    assert "import tilelang" in error["hint"]
    assert "before `import tvm`" in error["hint"]


def test_tvm_first_and_tilelang_itself_gives_no_such_help(tvm_first: subprocess.CompletedProcess[str]) -> None:
    """The reason for our own error: when this fails, tilelang has learned to say it or to live with it."""
    assert tvm_first.returncode == 1
    assert "undefined symbol" in tvm_first.stderr
