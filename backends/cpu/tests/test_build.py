"""The C++ compiler: found, missing, failing; what it is asked."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tilelang.language as T

from backends.cpu import toolchain
from backends.cpu.build import build
from backends.cpu.chips import host_chip
from backends.cpu.diagnose import diagnose
from core import BuildFailed, ToolchainNotFound
from core.codegen import cpp, host
from core.compiler import CompileOptions
from core.plugins import BuildRequest
from core.program import Program


def lowered(flags: tuple[str, ...] = ()) -> Any:
    @T.prim_func
    def kernel(X: T.Tensor((64,), "float32")):
        with T.Kernel(1):
            for i in T.Parallel(64):
                X[i] = 0.0

    return cpp.lower(Program(kernel), host_chip(), CompileOptions(compile_flags=flags))


def without_compilers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)


def test_no_compiler_says_where_it_was_looked_for_and_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    without_compilers(monkeypatch, tmp_path)
    with pytest.raises(ToolchainNotFound) as caught:
        build(host_chip(), lowered(), BuildRequest(tmp_path, CompileOptions()))
    assert "$CXX (not set)" in caught.value.message
    assert "PATH (1 folder)" in caught.value.message
    assert caught.value.details["path"] == str(tmp_path)
    assert "ziglang" in caught.value.message
    assert "pip install ziglang" in caught.value.hint
    (finding,) = diagnose()
    assert finding.code == "cpu-compiler-missing"
    assert finding.blocks == ("build", "run")


def test_ziglang_serves_where_there_is_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    without_compilers(monkeypatch, tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name == "ziglang")
    found = host.find_cxx_compiler()
    assert toolchain.is_zig(found)
    assert found.command[1:] == ("-m", "ziglang", "c++")


def test_cxx_decides(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CXX", str(tmp_path / "nothing"))
    with pytest.raises(ToolchainNotFound, match="names no program"):
        host.find_cxx_compiler()


def test_a_refused_source_stays_with_the_compiler_s_message_and_command(tmp_path: Path) -> None:
    broken = replace(lowered(), source=lowered().source + "\nthis is no C++\n")
    with pytest.raises(BuildFailed) as caught:
        build(host_chip(), broken, BuildRequest(tmp_path, CompileOptions()))
    assert "error" in caught.value.message
    assert "-march=native" in caught.value.message
    assert caught.value.details["source"] == str(tmp_path / "kernel.cpp")
    assert (tmp_path / "kernel.cpp").read_text().startswith("// kernel for cpu:host")


def test_the_built_kernel_names_its_files_and_its_compiler(tmp_path: Path) -> None:
    built = build(host_chip(), lowered(), BuildRequest(tmp_path, CompileOptions(compile_flags=("-DUSERS_OWN",))))
    assert built.path("library").stat().st_size > 0
    assert built.path("source").read_text() == built.lowered.source
    assert "-DUSERS_OWN" in built.toolchain.command
    assert built.toolchain.version
    assert toolchain.machine() in built.toolchain.version  # a library for one machine is not taken for another's


def test_the_compiler_is_a_finding(tmp_path: Path) -> None:
    (finding,) = diagnose()
    assert finding.severity == "info"
    assert finding.details["command"]


@pytest.mark.parametrize("flags", [("-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-Wno-unused-parameter")])
def test_generated_code_has_no_warnings(tmp_path: Path, flags: tuple[str, ...]) -> None:
    build(host_chip(), lowered(), BuildRequest(tmp_path, CompileOptions(compile_flags=flags)))
