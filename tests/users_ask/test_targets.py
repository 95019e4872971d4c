"""What users of neighbouring projects ran into before a kernel even compiled. The number in a name is its row."""

from __future__ import annotations

import pytest
import torch

import core
from core.errors import TargetNotFound
from tests.users_ask import kernels


def test_row_2_no_device_is_asked_before_the_target_is_settled(monkeypatch):
    """Compiling for another machine's chip, and running on the CPU, with a torch whose CUDA must not be touched."""

    def touched(*args, **kwargs):
        raise AssertionError("torch.cuda was asked")

    for name in ("is_available", "device_count", "current_device", "get_device_capability", "_lazy_init", "init"):
        monkeypatch.setattr(torch.cuda, name, touched)
    assert core.compile(kernels.writes_only(), target="cuda:h200").get_kernel_source()
    out = torch.empty(100)
    core.compile(kernels.writes_only(), target="cpu")(out)
    assert torch.equal(out, torch.arange(100, dtype=torch.float32))


def test_row_29_headless_cuda_is_never_sm_50():
    """Without a device, `cuda` is the vendor's default chip, said so; an architecture can be named."""
    kernel = core.compile(kernels.add(1000), target="cuda", build=False)
    arch = str(kernel.chip.codegen["arch"])
    assert arch.startswith("sm_")
    assert int("".join(filter(str.isdigit, arch))) >= 75
    assert kernel.target == kernel.chip.target != "cuda"
    assert core.compile(kernels.add(1000), target="cuda:sm_80", build=False).chip.codegen["arch"] == "sm_80"


def test_row_29_an_architecture_in_tilelangs_syntax_is_answered_with_ours():
    with pytest.raises(TargetNotFound) as caught:
        core.compile(kernels.add(1000), target="cuda -arch=sm_90a")
    assert '"cuda:sm_90a"' in caught.value.hint


@pytest.mark.parametrize(
    ("target", "arch"),
    [("ascend:910b1", "dav-c220"), ("ascend:910b3", "dav-c220"), ("ascend:910_9382", "dav-c220")]
    + [(f"ascend:950pr_{sku}", "dav-c310") for sku in ("9579", "957c", "9589", "958b", "9599")],
)
def test_row_32_the_architecture_flag_is_the_descriptors(target, arch):
    assert core.chip(target).codegen["arch"] == arch


def test_row_32_an_unsupported_sku_is_refused():
    with pytest.raises(TargetNotFound) as caught:
        core.compile(kernels.add(1000), target="ascend:910c7")
    assert caught.value.details["chips"]
