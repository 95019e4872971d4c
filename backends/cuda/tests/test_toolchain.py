"""What a CUDA build depends on is in the toolchain's version, and with it in the cache key."""

from __future__ import annotations

from pathlib import Path

import pytest

import core
from backends.cuda.toolchain import find_nvcc, toolchain


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An nvcc and a C compiler that say their versions, and no variable of the user's."""
    for name in ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    answers = {"nvcc": "Cuda compilation tools, release 13.0, V13.0.88", "cc": "cc (Some) 12.2.0"}
    for name, answer in answers.items():
        tool = tmp_path / name
        tool.write_text(f'#!/bin/sh\necho "{answer}"\n')
        tool.chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setenv("CC", str(tmp_path / "cc"))
    return tmp_path


def test_nvcc_and_the_host_compiler_are_named_with_their_versions(tools: Path) -> None:
    found = toolchain()
    assert (found.name, found.path) == ("nvcc", str(tools / "nvcc"))
    assert found.version == "13.0.88 (cc (Some) 12.2.0)"


def test_flags_from_the_environment_make_another_toolchain(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-G")
    assert toolchain().version == "13.0.88 (cc (Some) 12.2.0; NVCC_APPEND_FLAGS=-G)"


def test_without_a_host_compiler_nothing_is_built(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", str(tools / "absent"))
    with pytest.raises(core.ToolchainNotFound, match="host side of kernels"):
        toolchain()
    assert find_nvcc().path == tools / "nvcc"
