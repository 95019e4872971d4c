"""Finding NVIDIA devices, without one: the driver's answers are recorded, its files imitated."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from backends.cuda import detect as detection
from backends.cuda.detect import detect, device_from_facts
from core.hardware import load_chips, verify

#: What the probe printed on an H200 (driver 580.159).
H200 = {
    "name": "NVIDIA H200", "memory_bytes": 150109880320, "threads_per_block": 1024, "block_dim_x": 1024,
    "block_dim_y": 1024, "block_dim_z": 64, "grid_dim_x": 2147483647, "grid_dim_y": 65535, "grid_dim_z": 65535,
    "shared_per_block": 49152, "warp_size": 32, "registers_per_block": 65536, "clock_khz": 1980000, "sm_count": 132,
    "bus_width_bits": 6016, "l2_bytes": 62914560, "threads_per_sm": 2048, "compute_capability_major": 9,
    "compute_capability_minor": 0, "shared_per_sm": 233472, "registers_per_sm": 65536,
    "shared_per_block_optin": 232448, "blocks_per_sm": 32, "shared_reserved_per_block": 1024,
}  # fmt: skip


@pytest.fixture
def nvidia_machine(tmp_path: Path) -> Path:
    file = tmp_path / "proc/driver/nvidia/version"
    file.parent.mkdir(parents=True)
    file.write_text("NVRM version")
    return tmp_path


def answer(monkeypatch, answers):
    monkeypatch.setattr(detection, "ask_driver", lambda: answers)


def test_a_described_device(nvidia_machine, monkeypatch):
    answer(monkeypatch, [H200, H200])
    found = detect(nvidia_machine)
    assert [(device.chip, device.index, device.torch_device) for device in found.devices] == [
        ("h200", 0, "cuda:0"),
        ("h200", 1, "cuda:1"),
    ]
    assert found.reason == "CUDA driver: NVIDIA H200"


@pytest.mark.parametrize(
    ("file", "facts", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024", {}, "550.54.15"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159  Release Build", {}, "580.159"),
        ("", {"cuda_version": 12080}, "CUDA 12.8"),
        ("", {}, ""),
    ],
)
def test_the_drivers_version_is_its_own_or_else_that_of_cuda(file, facts, version, nvidia_machine, monkeypatch):
    (nvidia_machine / "proc/driver/nvidia/version").write_text(file)
    answer(monkeypatch, [{**H200, **facts}])
    assert [device.driver for device in detect(nvidia_machine).devices] == [version]


def test_the_descriptor_of_h200_agrees_with_the_device_but_for_the_printed_capacity():
    device = device_from_facts(0, H200)
    checks = verify(load_chips("backends.cuda")[0], device.facts)
    assert {check.path for check in checks if check.verdict == "differs"} == {"memories.global.capacity_bytes"}
    assert sum(check.verdict == "same" for check in checks) == 17


def test_without_nvidias_driver_nothing_is_asked(tmp_path, monkeypatch):
    monkeypatch.setattr(detection, "ask_driver", lambda: pytest.fail("the driver was asked"))
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/mxcd").touch()
    found = detect(tmp_path)
    assert found.devices == ()
    assert "no NVIDIA driver" in found.reason


def test_an_undescribed_product_is_compiled_for_as_its_capability_and_says_so():
    device = device_from_facts(0, H200 | {"name": "NVIDIA H200 NVL"})
    assert device.chip == "h200"
    assert "NVIDIA H200 NVL, not described here" in device.evidence


def test_an_undescribed_capability_is_no_device(nvidia_machine, monkeypatch):
    answer(monkeypatch, [H200 | {"name": "Tesla T4", "compute_capability_major": 7, "compute_capability_minor": 5}])
    found = detect(nvidia_machine)
    assert found.devices == ()
    assert "Tesla T4" in found.reason


@pytest.mark.parametrize(
    "error", [RuntimeError("cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)"), subprocess.TimeoutExpired("probe", 10)]
)
def test_a_driver_that_does_not_answer_is_reported_not_raised(nvidia_machine, monkeypatch, error):
    def fail():
        raise error

    monkeypatch.setattr(detection, "ask_driver", fail)
    found = detect(nvidia_machine)
    assert found.devices == ()
    assert "the driver does not answer" in found.reason


def test_the_probe_fails_with_a_sentence_where_there_is_no_driver(monkeypatch):
    """Runs the real probe, whose library search is led astray so that a machine with a driver has none either."""
    monkeypatch.setattr(detection, "DRIVER_LIBRARY", "libcuda-absent.so.1")
    with pytest.raises(RuntimeError, match="libcuda-absent") as caught:
        detection.ask_driver()
    assert "Traceback" not in str(caught.value)
