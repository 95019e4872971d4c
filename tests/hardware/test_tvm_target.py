"""Descriptors as TVM target configs, accepted by tilelang's TVM; tests/packaging asks PyPI's apache-tvm."""

from __future__ import annotations

import subprocess
import sys

import pytest

from core.errors import DescriptorError
from core.hardware import load_chips

CHIPS = [load_chips(f"backends.{vendor}")[0] for vendor in ("cuda", "metax", "ascend")]


def test_the_config_has_the_descriptors_figures():
    target = load_chips("backends.cuda")[0].tvm_target()
    assert target == {
        "kind": "cuda",
        "keys": ["cuda", "gpu"],
        "model": "h200",
        "arch": "sm_90a",
        "max_threads_per_block": 1024,
        "max_num_threads": 1024,
        "thread_warp_size": 32,
        "max_shared_memory_per_block": 227 * 1024,
        "registers_per_block": 65536,
        "l2_cache_size_bytes": 60 * 1024**2,
    }


def test_a_chip_tvm_has_no_kind_for_keeps_its_vendor_and_limits():
    target = load_chips("backends.metax")[0].with_changes("shared=128KiB").tvm_target()
    assert target["kind"] == "opencl"
    assert target["keys"][0] == "metax"
    assert target["model"] == "c500+shared=128KiB"
    assert (target["thread_warp_size"], target["max_shared_memory_per_block"]) == (64, 128 * 1024)


def test_an_unknown_figure_is_left_out():
    target = next(chip for chip in load_chips("backends.metax") if chip.name == "n260").tvm_target()
    assert "thread_warp_size" not in target
    assert "max_shared_memory_per_block" not in target


def test_a_chip_without_a_kind_is_refused():
    chip = CHIPS[0].model_copy(update={"codegen": {}})
    with pytest.raises(DescriptorError, match="names no TVM target kind"):
        chip.tvm_target()


@pytest.mark.parametrize("chip", CHIPS, ids=lambda chip: chip.target)
def test_tilelangs_tvm_accepts_the_config(chip):
    import tilelang  # noqa: F401 - before tvm, or its own build cannot load
    from tilelang import tvm

    target = tvm.target.Target(chip.tvm_target())
    assert str(target.kind) == chip.codegen["tvm_kind"]
    assert target.attrs["model"] == chip.name


def test_making_the_config_imports_no_tvm():
    code = (
        "import sys; from core.hardware import load_chips; load_chips('backends.cuda')[0].tvm_target();"
        "print([name for name in ('tvm', 'tilelang', 'torch') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
