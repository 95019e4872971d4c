"""Finding MetaX devices, without one: the tools' tables are those found in public logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.metax import plugin
from backends.metax.detect import detect, parse_macainfo, parse_mx_smi
from core.hardware import load_chips
from core.plugins import DetectedDevice, Detection

MX_SMI = """\
mx-smi  version: 2.2.6

=================== MetaX System Management Interface Log ===================
Timestamp                                         : Thu Sep 18 14:01:32 2025

Attached GPUs                                     : 2
+---------------------------------------------------------------------------------+
| MX-SMI 2.2.6                        Kernel Mode Driver Version: 2.16.0          |
| MACA Version: 3.0.0.8               BIOS Version: 1.26.1.0                      |
|------------------------------------+---------------------+----------------------+
| GPU     NAME         Persistence-M | Bus-id              | GPU-Util      sGPU-M |
| Temp    Pwr:Usage/Cap         Perf | Memory-Usage        | GPU-State            |
|====================================+=====================+======================|
| 0       MetaX C500             Off | 0000:38:00.0        | 0%            Native |
| 44C     71W / 350W              P9 | 986/65536 MiB       | Available            |
+------------------------------------+---------------------+----------------------+
| 1       MetaX C550             Off | 0000:39:00.0        | 0%            Native |
| 44C     71W / 350W              P9 | 986/65536 MiB       | Available            |
+------------------------------------+---------------------+----------------------+

+---------------------------------------------------------------------------------+
| Process:                                                                        |
|  GPU                    PID         Process Name                 GPU Memory     |
|=================================================================================|
|  0                     2477         python                       128            |
+---------------------------------------------------------------------------------+
"""
OLD_MX_SMI = """\
|------------------------------------+---------------------+----------------------+
| GPU         NAME                   | Bus-id              | GPU-Util             |
| Temp        Power                  | Memory-Usage        |                      |
|====================================+=====================+======================|
| 0           MetaX C500             | 0000:0e:00.0        | 0%                   |
| 36C         69W / 350W             | 5680/65536 MiB      |                      |
+------------------------------------+---------------------+----------------------+
"""


def test_devices_from_mx_smi():
    devices, _ = parse_mx_smi(MX_SMI)
    assert [(device.chip, device.index, device.torch_device) for device in devices] == [
        ("c500", 0, "cuda:0"),
        ("c550", 1, "cuda:1"),
    ]
    assert devices[0].evidence == "mx-smi: MetaX C500"
    assert devices[0].facts == {"memories.global.capacity_bytes": 65536 * 2**20}


def test_the_driver_is_the_one_mx_smi_names_where_it_names_one():
    assert {device.driver for device in parse_mx_smi(MX_SMI)[0]} == {"2.16.0"}
    assert {device.driver for device in parse_mx_smi(OLD_MX_SMI)[0]} == {""}


def test_devices_from_an_older_mx_smi():
    devices, _ = parse_mx_smi(OLD_MX_SMI)
    assert [device.chip for device in devices] == ["c500"]


def test_a_product_nobody_described_is_named():
    devices, reason = parse_mx_smi(MX_SMI.replace("C500", "C999").replace("C550", "C998"))
    assert devices == []
    assert reason == "no chip is described as MetaX C999, MetaX C998"


def test_devices_from_macainfo():
    devices, _ = parse_macainfo("  Marketing Name: MetaX C500\n  ISA Name: METAX-MXC-MXMACA--XCORE1000\n")
    assert [(device.chip, device.facts["architecture"]) for device in devices] == [("c500", "xcore1000")]


def machine(root: Path, *, driver: bool) -> Path:
    (root / "dev").mkdir()
    if driver:
        (root / "dev/mxcd").touch()
    return root


def tool(folder: Path, name: str, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.txt").write_text(text)
    script = folder / name
    script.write_text(f'#!/bin/sh\ncat "{folder}/{name}.txt"\n')
    script.chmod(0o755)


def test_a_machine_with_the_driver_and_its_tools(tmp_path, monkeypatch):
    tool(tmp_path / "maca/bin", "mx-smi", MX_SMI)
    monkeypatch.setenv("MACA_PATH", str(tmp_path / "maca"))
    found = detect(machine(tmp_path, driver=True))
    assert [device.chip for device in found.devices] == ["c500", "c550"]


def test_the_second_tool_is_asked_when_the_first_says_nothing(tmp_path, monkeypatch):
    tool(tmp_path / "maca/bin", "mx-smi", "Error: no permission")
    tool(tmp_path / "maca/bin", "macainfo", "Name: XCORE1500")
    monkeypatch.setenv("MACA_PATH", str(tmp_path / "maca"))
    found = detect(machine(tmp_path, driver=True))
    assert [device.chip for device in found.devices] == ["c600"]


def test_without_the_driver_no_tool_is_run(tmp_path, monkeypatch):
    monkeypatch.setattr("subprocess.run", lambda *_, **__: pytest.fail("a tool was run"))
    found = detect(machine(tmp_path, driver=False))
    assert found.devices == ()
    assert found.reason == "no MetaX driver: /dev/mxcd does not exist, so mx-smi and macainfo cannot be asked"


def test_a_driver_without_tools_says_what_was_looked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("MACA_PATH", str(tmp_path / "nowhere"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert detect(machine(tmp_path, driver=True)).reason == "/dev/mxcd exists; mx-smi not found; macainfo not found"


def test_what_is_missing_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("MACA_PATH", str(tmp_path / "nowhere"))
    findings = {finding.code: finding for finding in plugin.tilehal_diagnose(load_chips("backends.metax")[0])}
    assert set(findings) == {"metax-mxcc-missing", "metax-no-device"}
    assert set(findings["metax-mxcc-missing"].blocks) == {"build", "run"}
    assert findings["metax-mxcc-missing"].severity == "info"  # there is no device to build for
    assert findings["metax-no-device"].blocks == ("run",)


def test_without_a_cpp_compiler_nothing_is_simulated(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    findings = {finding.code: finding for finding in plugin.tilehal_diagnose(load_chips("backends.metax")[0])}
    assert findings["metax-simulator-compiler-missing"].blocks == ("simulate",)
    assert "no-such-compiler" in findings["metax-simulator-compiler-missing"].message


def test_a_chip_whose_waves_are_unknown_can_do_nothing():
    n260 = next(chip for chip in load_chips("backends.metax") if chip.name == "n260")
    unknown = next(f for f in plugin.tilehal_diagnose(n260) if f.code == "metax-wave-unknown")
    assert set(unknown.blocks) == {"compile", "build", "run", "simulate"}


def test_a_device_without_its_runtime_library_says_every_place_looked_at(tmp_path, monkeypatch):
    found = Detection((DetectedDevice("c500", 0, "as planted"),), "as planted")
    monkeypatch.setattr("backends.metax.diagnose.detection", lambda: found)
    monkeypatch.setenv("MACA_PATH", str(tmp_path))
    findings = {finding.code: finding for finding in plugin.tilehal_diagnose(load_chips("backends.metax")[0])}
    missing = findings["metax-runtime-missing"]
    assert missing.blocks == ("run",)
    for folder in ("lib", "lib64"):
        assert str(tmp_path / folder / "libmcruntime.so") in missing.message


def test_a_device_with_its_runtime_library_is_not_said_to_lack_it(sdk, monkeypatch):
    found = Detection((DetectedDevice("c500", 0, "as planted"),), "as planted")
    monkeypatch.setattr("backends.metax.diagnose.detection", lambda: found)
    codes = {finding.code for finding in plugin.tilehal_diagnose(load_chips("backends.metax")[0])}
    assert "metax-device" in codes
    assert "metax-runtime-missing" not in codes
