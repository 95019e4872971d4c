"""Kernels in TileLang's own Ascend dialect take the wheel's backend; ordinary ones never do."""

import pytest

import core
from backends.ascend.tests.ascend_dialect_kernels import matmul_nt, vector_add
from backends.ascend.tests.capacity_kernels import trace


@pytest.mark.parametrize(
    ("kernel", "core_kind"), [(vector_add(4096), "__vector__"), (matmul_nt(256, 256, 256), "__cube__")]
)
def test_a_dialect_kernel_becomes_ascendc_for_the_950_family(kernel: object, core_kind: str) -> None:
    compiled = core.compile(kernel, target="ascend:950pr")
    assert compiled.provenance.route == "tilelang-ascendc"
    assert f'extern "C" __global__ {core_kind} void' in compiled.get_kernel_source()
    with pytest.raises(core.UnsupportedOp, match="built by TileLang's own adapter"):
        compiled.build()


def test_a_dialect_kernel_is_refused_for_910b_with_the_reason() -> None:
    with pytest.raises(core.UnsupportedOp, match="950 family") as caught:
        core.compile(vector_add(4096), target="ascend:910b3")
    assert "tilelang.language" in caught.value.hint


def test_an_ordinary_kernel_goes_through_tile_mlir(target: str) -> None:
    program = trace("softmax", {"rows": 4, "columns": 1024, "dtype": "float16", "tail": False})
    assert core.compile(program, target=target).provenance.route == "tile-mlir"
