"""The driver's binary interface as we declare it is the one of the CUDA toolkit's own header."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from core.codegen.launch import with_headers
from tests.runtime.standin import c_compiler

CHECKS = """
#define TILEHAL_LAUNCHES 1
#include "launch.h"
#include <cuda.h>
#include <stddef.h>
#define SAME(a, b) _Static_assert((a) == (b), #a " is " #b)
SAME(sizeof(tilehal_config), sizeof(CUlaunchConfig));
SAME(offsetof(tilehal_config, block), offsetof(CUlaunchConfig, blockDimX));
SAME(offsetof(tilehal_config, shared_bytes), offsetof(CUlaunchConfig, sharedMemBytes));
SAME(offsetof(tilehal_config, stream), offsetof(CUlaunchConfig, hStream));
SAME(offsetof(tilehal_config, attributes), offsetof(CUlaunchConfig, attrs));
SAME(offsetof(tilehal_config, count), offsetof(CUlaunchConfig, numAttrs));
SAME(sizeof(tilehal_attribute), sizeof(CUlaunchAttribute));
SAME(offsetof(tilehal_attribute, value), offsetof(CUlaunchAttribute, value));
SAME(sizeof(tilehal_map), sizeof(CUtensorMap));
_Static_assert(_Alignof(tilehal_map) >= _Alignof(CUtensorMap), "64 bytes, 128 since CUDA 13");
SAME(sizeof(CUtensorMapDataType), sizeof(int));
SAME(CU_LAUNCH_ATTRIBUTE_COOPERATIVE, 2);
SAME(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, 4);
SAME(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, 6);
SAME(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75);
SAME(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76);
SAME(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 97);
SAME(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, 1);
SAME(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 8);
SAME(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 14);
SAME(CU_STREAM_CAPTURE_MODE_RELAXED, 2);
SAME(sizeof(CUdevice), sizeof(int));
SAME(sizeof(CUdeviceptr), sizeof(uint64_t));
SAME(sizeof(tilehal_pool), sizeof(CUmemPoolProps));
SAME(offsetof(tilehal_pool, place), offsetof(CUmemPoolProps, location));
SAME(offsetof(tilehal_pool, place.id), offsetof(CUmemPoolProps, location.id));
SAME(offsetof(tilehal_pool, largest), offsetof(CUmemPoolProps, maxSize));
SAME(offsetof(tilehal_pool, usage), offsetof(CUmemPoolProps, usage));
SAME(CU_MEM_ALLOCATION_TYPE_PINNED, 1);
SAME(CU_MEM_LOCATION_TYPE_DEVICE, 1);
SAME(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 4);
int main(void) { return 0; }
"""


def cuda_header() -> Path:
    from backends.cuda.toolchain import cuda_include_folders, find_nvcc
    from core.errors import ToolchainNotFound

    try:
        folders = [*cuda_include_folders(find_nvcc()), find_nvcc().path.resolve().parents[1] / "include"]
        folders += sorted(Path("/usr/local").glob("cuda*/include"), reverse=True)
    except ToolchainNotFound as error:
        pytest.skip(error.message)
    for folder in folders:
        if (Path(folder) / "cuda.h").is_file():
            return Path(folder)
    pytest.skip("this toolkit has no cuda.h")


def test_structures_and_numbers_are_those_of_cuda_h(tmp_path: Path) -> None:
    source = tmp_path / "check.c"
    source.write_text(with_headers(CHECKS))
    command = [*c_compiler(), "-std=gnu11", "-w", f"-I{cuda_header()}", "-fsyntax-only", str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_interpreter_declares_the_same_structures() -> None:
    import ctypes

    from core.runtime.driver import LaunchAttribute, LaunchConfig, PoolProperties

    assert (ctypes.sizeof(LaunchAttribute), LaunchAttribute.value.offset) == (72, 8)
    assert (LaunchConfig.block.offset, LaunchConfig.shared_bytes.offset, LaunchConfig.stream.offset) == (12, 24, 32)
    assert (LaunchConfig.attributes.offset, LaunchConfig.count.offset, ctypes.sizeof(LaunchConfig)) == (40, 48, 56)
    assert (PoolProperties.place.offset, PoolProperties.largest.offset, PoolProperties.usage.offset) == (12, 24, 32)
    assert ctypes.sizeof(PoolProperties) == 88
