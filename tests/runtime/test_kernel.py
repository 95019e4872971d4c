"""What a compiled kernel says about itself before and after it has run."""

import pytest
import tilelang.language as T
import torch

import core


def add_one(N: int):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, 64), threads=64) as bx:
            for i in T.Parallel(64):
                B[bx * 64 + i] = A[bx * 64 + i] + 1.0

    return main


def test_evidence_grows_from_source_to_compiler_to_device() -> None:
    kernel = core.compile(add_one, 65, target="cpu", out_idx=[1], build=False)
    assert kernel.provenance.evidence == "source only"
    assert kernel.resources.actual is None
    kernel.build()
    assert kernel.provenance.evidence == "vendor compiler"
    assert kernel.resources.actual is not None
    x = torch.randn(65)
    assert torch.equal(kernel(x), x + 1)
    assert kernel.provenance.evidence == "device"


def test_a_call_that_is_refused_proves_nothing() -> None:
    kernel = core.compile(add_one, 65, target="cpu", out_idx=[1])
    with pytest.raises(core.ShapeMismatch):
        kernel(torch.randn(64))
    assert kernel.provenance.evidence == "vendor compiler"


def test_a_kernel_names_its_files_and_refuses_a_role_it_has_not() -> None:
    kernel = core.compile(add_one, 65, target="cpu", out_idx=[1])
    assert kernel.binary("library").is_file()
    with pytest.raises(core.BuildFailed, match="has no 'cubin' file") as caught:
        kernel.binary("cubin")
    assert "library" in caught.value.hint
