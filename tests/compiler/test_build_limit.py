"""`timeout_s`: how long the native compiler may take, for every backend that runs one."""

from __future__ import annotations

from pathlib import Path

import pytest
import tilelang.language as T

import core
from core.cli.main import run
from core.compiler.artifacts import CompileOptions
from core.compiler.options import compile_options

#: Where each backend looks for its compiler below the folder that its variable names.
COMPILERS = {"cuda:h200": ("CUDA_HOME", "bin/nvcc"), "metax:c500": ("MACA_PATH", "mxgpu_llvm/bin/mxcc")}
KERNEL = """
import tilelang.language as T

def negate(N: int):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, 64), threads=64) as bx:
            for i in T.Parallel(64):
                B[bx * 64 + i] = -A[bx * 64 + i]
    return main
"""


@T.prim_func
def negate(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        for i in T.Parallel(64):
            B[i] = -A[i]


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compilers that say their version, and never finish a kernel."""
    for variable, place in COMPILERS.values():
        compiler = tmp_path / place
        compiler.parent.mkdir(parents=True)
        compiler.write_text(
            '#!/bin/sh\ncase "$*" in\n*ersion*) echo "release 13.0, V13.0.88" ;;\n*) exec sleep 300 ;;\nesac\n'
        )
        compiler.chmod(0o755)
        monkeypatch.setenv(variable, str(tmp_path))


@pytest.mark.parametrize("target", COMPILERS)
def test_a_compiler_that_takes_longer_is_ended_and_the_error_says_what_to_do(slow, target):
    kernel = core.compile(negate, target=target, out_idx=[1], options={"timeout_s": 0.3}, build=False)
    with pytest.raises(core.BuildFailed, match=r"did not finish within 0.3 s and was stopped \(to compile ") as caught:
        kernel.build()
    assert 'options={"timeout_s": SECONDS}' in caught.value.hint
    assert caught.value.details["transient"] is True


def test_the_command_has_the_limit_too(slow, tmp_path, capsys):
    (tmp_path / "kernels.py").write_text(KERNEL)
    words = ["compile", f"{tmp_path}/kernels.py:negate", "--target", "cuda:h200", "--param", "N=64", "--emit", "binary"]
    assert run([*words, "--timeout", "0.3"]) == 2
    assert "did not finish within 0.3 s" in " ".join(capsys.readouterr().err.replace("│", " ").split())


@pytest.mark.parametrize("given", [0, -1, float("inf"), float("nan"), "60", True])
def test_what_is_no_limit_is_refused(given):
    with pytest.raises(core.KernelError, match="option timeout_s="):
        compile_options(None, None, False, {"timeout_s": given})


def test_the_limit_is_of_the_build_alone():
    """A kernel that was given longer is the same kernel: to the cache, to tuned results, and to the backend."""
    options = compile_options(None, None, False, {"tf32": True, "timeout_s": 60})
    assert (options.timeout_s, options.backend) == (60, {"tf32": True})
    assert options == CompileOptions(backend={"tf32": True})
    assert options.given == {"tf32": True, "timeout_s": 60}
    first, second = (
        core.compile(negate, target="metax:c500", out_idx=[1], options=given, build=False)
        for given in ({}, {"timeout_s": 60})
    )
    assert first.provenance.cache_key == second.provenance.cache_key
