"""What no compiler should be started for: refused with type, line and hint, in under a second."""

from __future__ import annotations

import pytest

import core
from core.errors import ResourceExceeded, ShapeMismatch
from core.plugins import Backend
from tests.users_ask import kernels
from tests.users_ask.refusing import refused


@pytest.fixture(autouse=True)
def no_compiler_runs(monkeypatch):
    """No backend is asked to lower or build anything."""
    genuine = Backend.call

    def guarded(self, hook, *args, **kwargs):
        if hook in ("tilehal_lower", "tilehal_build", "tilehal_toolchain", "tilehal_launcher", "tilehal_simulator"):
            raise AssertionError(f"{hook} was called")
        return genuine(self, hook, *args, **kwargs)

    monkeypatch.setattr(Backend, "call", guarded)


def test_512_kib_of_shared_memory_on_an_h200():
    found = refused(kernels.in_shared(512), "cuda:h200", ResourceExceeded, "# the buffer")
    assert "cuda:h200 has 227 KiB of shared memory per block; this kernel needs 512 KiB" in found.message
    assert found.details["needed_bytes"] == 512 * 1024
    assert "in place of" in found.hint


def test_96_kib_of_shared_memory_on_a_c500():
    found = refused(kernels.in_shared(96), "metax:c500", ResourceExceeded, "# the buffer")
    assert "metax:c500 has 64 KiB of shared memory per block; this kernel needs 96 KiB" in found.message


def test_the_same_96_kib_are_no_fault_where_there_is_room():
    """The control: the fixture's refusal to call the backend is what stops this one."""
    with pytest.raises(AssertionError, match="tilehal_lower was called"):
        core.compile(kernels.in_shared(96), target="cuda:h200", options={"unused": "control"})


@pytest.mark.parametrize("target", ["cpu", "cuda:h200", "metax:c500", "ascend:910b3"])
def test_a_fill_past_the_end_of_its_buffer(target):
    found = refused(kernels.fill_past_the_end(), target, ShapeMismatch, "# past the end")
    assert "reaches index 11 of dimension 0, which has 8 elements" in found.message


@pytest.mark.parametrize("target", ["cpu", "cuda:h200", "metax:c500", "ascend:910b3"])
@pytest.mark.parametrize("dim", [2, -3])
def test_a_reduction_over_a_missing_dimension(target, dim):
    found = refused(lambda: kernels.reduce_over(dim), target, ShapeMismatch, "# over `dim`")
    assert "dim" in found.message


def test_33_threads_on_waves_of_64():
    found = refused(kernels.thirty_three_threads(), "metax:c500", ResourceExceeded, "# 33")
    assert "33 threads per block; metax:c500 wants a multiple of its wave width, 64" in found.message
    assert "threads=64" in found.hint
