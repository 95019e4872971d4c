"""Finding Ascend devices, without one: the tables of `npu-smi` are those found in public logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.ascend import plugin
from backends.ascend.detect import chip_by_name, detect, parse_npu_smi, soc_name
from core.hardware import load_chips

A2 = """\
+------------------------------------------------------------------------------------------------+
| npu-smi 24.1.rc1                 Version: 24.1.rc1                                             |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     910B3               | OK            | 86.8        35                0    / 0             |
| 0                         | 0000:66:00.0  | 0           0    / 0          59356/ 65536         |
+===========================+===============+====================================================+
| 5     910B4               | OK            | 89.9        39                0    / 0             |
| 0                         | 0000:41:00.0  | 0           0    / 0          2922 / 32768         |
+===========================+===============+====================================================+
+---------------------------+---------------+----------------------------------------------------+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
| 0       0                 | 1712733       | python                   | 120                     |
"""
A3 = """\
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip  Phy-ID              | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     Ascend910           | OK            | 172.0       36                0    / 0             |
| 0     0                   | 0000:9D:00.0  | 0           0    / 0          3148 / 65536         |
+------------------------------------------------------------------------------------------------+
| 0     Ascend910           | OK            | -           36                0    / 0             |
| 1     1                   | 0000:9F:00.0  | 0           0    / 0          2890 / 65536         |
+===========================+===============+====================================================+
"""
A5 = """\
| 0      | Ascend950PR      | OK            | 195.6       56                0     / 0             |
|        |                  | 0000:61:00.0  | 0           0    / 0          5239  / 131072        |
"""
A2_BOARD = "\tChip Type                      : Ascend\n\tChip Name                      : 910B4\n"
A3_BOARD = "\tNPU Name                       : 9392\n\tChip Name                      : Ascend910\n"
A5_BOARD = "NPU Name                       : 9579\nChip Name                      : Ascend950PR\n"


def never(npu: str) -> str:
    pytest.fail(f"the board of NPU {npu} was asked for")


def test_a2_names_are_in_the_table():
    devices, _ = parse_npu_smi(A2, never)
    assert [(device.chip, device.index, device.torch_device) for device in devices] == [
        ("910b3", 0, "npu:0"),
        ("910b4", 1, "npu:1"),
    ]
    assert [device.facts["memories.global.capacity_bytes"] for device in devices] == [65536 * 2**20, 32768 * 2**20]


def test_a3_names_are_on_the_board():
    devices, _ = parse_npu_smi(A3, lambda npu: A3_BOARD)
    assert [(device.chip, device.evidence) for device in devices] == [("910_9392", "npu-smi: Ascend910_9392")] * 2


def test_a5_names_are_on_the_board():
    devices, _ = parse_npu_smi(A5, lambda npu: A5_BOARD)
    assert [(device.chip, device.facts["memories.global.capacity_bytes"]) for device in devices] == [
        ("950pr_9579", 131072 * 2**20)
    ]


def test_a_family_name_alone_is_not_guessed_at():
    devices, reason = parse_npu_smi(A5, lambda npu: "")
    assert devices == []
    assert reason == "no chip is described as Ascend950PR"


@pytest.mark.parametrize(
    ("board", "name"),
    [(A2_BOARD, "Ascend910B4"), (A3_BOARD, "Ascend910_9392"), (A5_BOARD, "Ascend950PR_9579"), ("", None)],
)
def test_the_soc_name_from_the_board(board, name):
    assert soc_name(board) == name


@pytest.mark.parametrize(
    ("name", "chip"),
    [("Ascend910B4_1", "910b4-1"), ("910B2C", "910b2c"), ("Ascend950DT_95A1", "950dt_95a1"), ("Ascend910", None)],
)
def test_chips_by_soc_name(name, chip):
    found = chip_by_name(name)
    assert (found.name if found else None) == chip


def test_a_machine_with_the_driver_and_its_tool(tmp_path, monkeypatch):
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/davinci_manager").touch()
    (tmp_path / "table.txt").write_text(A2)
    script = tmp_path / "npu-smi"
    script.write_text(f'#!/bin/sh\ncat "{tmp_path}/table.txt"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert [device.chip for device in detect(tmp_path).devices] == ["910b3", "910b4"]


def test_without_the_driver_nothing_is_run(tmp_path: Path):
    assert (
        detect(tmp_path).reason == "no Ascend driver: /dev/davinci_manager does not exist, so npu-smi cannot be asked"
    )


def test_what_the_machine_lacks_is_said_with_the_stages_it_blocks(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("ASCEND_HOME_PATH", raising=False)
    findings = {finding.code: finding for finding in plugin.tilehal_diagnose(load_chips("backends.ascend")[0])}
    assert findings["ascend-cann-missing"].blocks == ("run",)
    assert "set_env.sh" in findings["ascend-cann-missing"].hint
    assert not any("compile" in finding.blocks for finding in findings.values())


def test_a5_needs_another_compiler_than_a2():
    """The A2/A3 compiler lists 950 targets and fails on them; the A5 one aborts on 910B."""
    tools = {chip.codegen["arch"]: chip.codegen["tool"] for chip in load_chips("backends.ascend")}
    assert tools == {"dav-c220": "bishengir-compile", "dav-c310": "bishengir-compile-a5"}
