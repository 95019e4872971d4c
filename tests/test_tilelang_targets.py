"""TileHAL inside TileLang: its targets work in `tilelang.compile` and `@tilelang.jit`; TileLang's own stay theirs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import core
from core._tilelang import import_tilelang

tilelang = import_tilelang()
import tilelang.language as T  # noqa: E402 - tilelang must be imported through TileHAL first


@pytest.fixture(scope="module", autouse=True)
def installed() -> tuple[str, ...]:
    return core.install_tilelang_targets()


def double(N: int):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, 64), threads=64) as bx:
            for i in T.Parallel(64):
                B[bx * 64 + i] = A[bx * 64 + i] * 2.0

    return main


def test_every_vendor_is_reachable_and_owned_names_only_with_the_prefix(installed: tuple[str, ...]) -> None:
    assert {"cpu", "metax", "tilehal:cpu", "tilehal:cuda", "tilehal:ascend", "tilehal:metax"} <= set(installed)
    assert "cuda" not in installed
    assert "ascend" not in installed
    assert core.install_tilelang_targets() == installed


def test_compile_runs_through_tilehal() -> None:
    kernel = tilelang.compile(double(100), out_idx=[1], target="cpu")
    x = torch.randn(100)
    assert torch.equal(kernel(x), x * 2)


def test_a_kernel_tilelang_has_compiled_already_is_compiled_again_for_a_chip() -> None:
    stock = tilelang.compile(double(100), out_idx=[1], target="cpu")
    x = torch.randn(100)
    assert torch.equal(core.compile(stock, target="cpu")(x), x * 2)


def test_jit_runs_through_tilehal() -> None:
    @tilelang.jit(out_idx=[1], target="tilehal:cpu")
    def factory(N: int):
        return double(N)

    x = torch.randn(77)
    assert torch.equal(factory(77)(x), x * 2)


def test_source_is_the_native_source_and_a_call_without_a_device_explains() -> None:
    kernel = tilelang.compile(double(128), target="tilehal:cuda:h200")
    assert "__global__" in kernel.get_kernel_source()
    if not torch.cuda.is_available():
        with pytest.raises(RuntimeError, match="cannot run on cuda:h200"):
            kernel(torch.zeros(128), torch.zeros(128))


def test_targets_tilelang_owns_keep_their_meaning() -> None:
    from tilelang.backend.module import create_backend_context

    assert create_backend_context({"kind": "cuda", "arch": "sm_80"}).name == "cuda"
    assert create_backend_context({"kind": "hip", "mcpu": "gfx942"}).name == "rocm"
    assert create_backend_context("c").name == "cpu"


def test_a_module_of_several_kernels_is_refused_where_only_one_could_be_called() -> None:
    from tilelang.engine import lower

    one, two = (double(n).with_attr("global_symbol", name) for n, name in ((64, "one"), (128, "two")))
    module = tilelang.tvm.IRModule({"one": one, "two": two})
    with pytest.raises(core.UnsupportedOp, match="this module has one, two"):
        lower(module, target="tilehal:cpu")


def test_an_unknown_tilehal_target_is_named() -> None:
    with pytest.raises(core.TargetNotFound, match="nosuch"):
        tilelang.compile(double(64), target="tilehal:nosuch")


SCRIPT = """
import tilelang, torch, core
core.install_tilelang_targets()
import tilelang.language as T

@T.prim_func
def main(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        for i in T.Parallel(64):
            B[i] = A[i] + 3.0

x, y = torch.randn(64), torch.empty(64)
tilelang.compile(main, target="cpu")(x, y)
assert torch.equal(y, x + 3)
"""


def test_a_kernel_from_tilelangs_own_cache_works_in_a_new_process(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "TILELANG_CACHE_DIR": str(tmp_path / "tilelang"), "TILELANG_PRINT_ON_COMPILATION": "0"}
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
    assert any((tmp_path / "tilelang").rglob("*.so"))
