"""Each thing `core._tilelang` assumes about the tilelang wheel, as a test that names it when a release breaks it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from core import _tilelang

tilelang = _tilelang.import_tilelang()
import tilelang.language as T  # noqa: E402 - tilelang must be imported through TileHAL first


@pytest.fixture(scope="module")
def matmul() -> Any:
    @T.prim_func
    def main(
        A: T.Tensor((256, 128), "float16"), B: T.Tensor((128, 256), "float16"), C: T.Tensor((256, 256), "float16")
    ):
        with T.Kernel(2, 2, threads=128) as (bx, by):
            a = T.alloc_shared((128, 64), "float16")
            b = T.alloc_shared((64, 128), "float16")
            c = T.alloc_fragment((128, 128), "float32")
            T.clear(c)
            for k in T.Pipelined(2, num_stages=2):
                T.copy(A[by * 128, k * 64], a)
                T.copy(B[k * 64, bx * 128], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * 128, bx * 128])

    return main


@pytest.fixture(scope="module")
def lowered(matmul: Any) -> _tilelang.NativeModules:
    return _tilelang.lower_native(matmul, {"kind": "cuda", "arch": "sm_90a"}, {})


def test_native_lowering_needs_no_device_and_uses_the_pinned_architecture(lowered: _tilelang.NativeModules) -> None:
    assert "wgmma" in lowered.device_source
    assert "tma_load" in lowered.device_source


def test_device_functions_carry_their_launch(lowered: _tilelang.NativeModules) -> None:
    (function,) = lowered.functions
    assert function.name == "main_kernel"
    assert function.grid == ("2", "2", "1")
    assert function.threads == (256, 1, 1)  # 128 asked, and a producer warpgroup
    assert function.dynamic_shared_bytes == 2 * (128 * 64 + 64 * 128) * 2
    assert "tirx.use_dyn_shared_memory" in function.launch_tags


def test_tensor_maps_are_marked_by_their_storage_scope(lowered: _tilelang.NativeModules) -> None:
    (function,) = lowered.functions
    by_name = dict(zip(("A_desc", "B_desc"), function.tensor_maps, strict=False))
    assert by_name == {"A_desc": True, "B_desc": True}
    assert "CUtensorMap A_desc" in lowered.device_source


def test_the_host_module_is_c_with_the_entry_tvm_ffi_looks_for(lowered: _tilelang.NativeModules) -> None:
    assert "int32_t __tvm_ffi_main(" in lowered.host_source
    assert '"main_kernel"' in lowered.host_source


def test_the_runtime_reads_our_function_metadata(lowered: _tilelang.NativeModules) -> None:
    import tvm_ffi

    table = tvm_ffi.get_global_func("runtime.LoadMetaDataFromJSON")(lowered.runtime_metadata())
    assert "main_kernel" in table
    assert json.loads(lowered.runtime_metadata())["func_info"]["main_kernel"]["arg_extra_tags"].count(1) == sum(
        lowered.functions[0].tensor_maps
    )


def test_the_cuda_module_factory_takes_a_binary_from_memory(lowered: _tilelang.NativeModules) -> None:
    import tvm_ffi

    table = tvm_ffi.get_global_func("runtime.LoadMetaDataFromJSON")(lowered.runtime_metadata())
    module = tvm_ffi.get_global_func("ffi.Module.create.cuda")(b"not loaded until launched", "cubin", table, {})
    assert module.kind == "cuda"


def test_include_folders_exist() -> None:
    folders = (*_tilelang.host_include_paths(), *_tilelang.device_include_paths())
    assert (folders[0] / "tvm" / "runtime" / "c_backend_api.h").is_file()
    assert (folders[1] / "tvm" / "ffi" / "c_api.h").is_file()
    assert all(folder.is_dir() for folder in folders)


def test_a_lazy_jit_object_gives_its_prim_func_and_outputs_without_compiling() -> None:
    @tilelang.jit(out_idx=[1], pass_configs={"tl.disable_tma_lower": True})
    def copy(N: int):
        @T.prim_func
        def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
            with T.Kernel(1, threads=128):
                for i in T.Parallel(N):
                    B[i] = A[i]

        return main

    traced = _tilelang.trace(copy, (64,), {})
    assert _tilelang.is_prim_func(traced.prim_func)
    assert traced.out_idx == [1]
    assert {str(getattr(k, "value", k)): v for k, v in traced.pass_configs.items()} == {"tl.disable_tma_lower": True}


def test_a_foreign_tvm_imported_first_is_explained() -> None:
    code = (
        "import sys, types; m = types.ModuleType('tvm'); m.__file__ = '/elsewhere/tvm/__init__.py';"
        "sys.modules['tvm'] = m\n"
        "import core\n"
        "try:\n    core.compile(None, target='cpu')\n"
        "except core.TileHALError as error:\n    print(error.code, '|', error)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True).stdout
    assert out.startswith("tvm-import-order | `tvm` is already imported from /elsewhere/tvm/__init__.py")
    assert "in a fresh process" in out
