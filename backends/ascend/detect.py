"""Which Ascend devices this machine has: the driver's device files first, then `npu-smi`. No context is created."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

from backends.ascend.chips import tilehal_chips
from core.hardware import Chip
from core.plugins import DetectedDevice, Detection, hookimpl

#: The driver's control device, and the folder where `npu-smi` lives when PATH does not have it.
DRIVER_FILE = "/dev/davinci_manager"
TOOL_FOLDER = "/usr/local/sbin"
#: `npu-smi` is asked twice at most, so that both together stay within the two seconds a detector has.
TIMEOUT_S = 0.95

_NPU_ROW = re.compile(r"^\|\s*(?P<npu>\d+)\s+(?:\|\s*)?(?P<name>(?:Ascend)?\d{3}[\w-]*)\s*\|")
_MEMORY_ROW = re.compile(r"\|\s*[0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:.*/\s*(?P<total>\d+)\s*\|\s*$")
_BOARD_FIELD = re.compile(r"^\s*(?P<key>Chip Type|Chip Name|NPU Name)\s*:\s*(?P<value>\S+)", re.MULTILINE)


@hookimpl
def tilehal_detect() -> Sequence[DetectedDevice]:
    """The Ascend devices of this machine, in the order of `npu-smi`."""
    return detection().devices


@lru_cache(maxsize=1)
def detection() -> Detection:
    """What `detect` finds on this machine, asked once per process."""
    return detect()


def detect(root: Path = Path("/")) -> Detection:
    """The Ascend devices, and what was asked and answered; `root` is where the driver's file is looked for."""
    if not (root / DRIVER_FILE.lstrip("/")).exists():
        return Detection((), f"no Ascend driver: {DRIVER_FILE} does not exist, so npu-smi cannot be asked")
    tool = shutil.which("npu-smi") or shutil.which("npu-smi", path=TOOL_FOLDER)
    if tool is None:
        return Detection((), f"{DRIVER_FILE} exists, but npu-smi was found neither on PATH nor in {TOOL_FOLDER}")

    def ask(*arguments: str) -> str:
        done = subprocess.run(
            [tool, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        return done.stdout

    try:
        devices, reason = parse_npu_smi(ask("info"), lambda npu: ask("info", "-t", "board", "-i", npu, "-c", "0"))
    except (OSError, subprocess.TimeoutExpired) as error:
        return Detection((), f"npu-smi: {error}")
    return Detection(tuple(devices), devices[0].evidence if devices else f"npu-smi: {reason}")


def parse_npu_smi(text: str, ask_board: Callable[[str], str]) -> tuple[list[DetectedDevice], str]:
    """Devices from the table of `npu-smi info`, and why there are none when there are none.

    Where the table gives only the family (`Ascend910`, `Ascend950PR`) the board of the first NPU is asked for its full
    name and stands for all: the boards of one machine are alike.

    Args:
        text: what `npu-smi info` printed.
        ask_board: returns what `npu-smi info -t board` prints for an NPU id.
    """
    rows: list[tuple[str, str]] = []
    memories: list[int] = []
    for line in text.splitlines():
        if "Process" in line:
            break
        if row := _NPU_ROW.match(line):
            rows.append((row["npu"], row["name"]))
        elif rows and (row := _MEMORY_ROW.search(line)):
            memories.append(int(row["total"]) * 1024**2)
    devices: list[DetectedDevice] = []
    board_name: str | None = None
    for index, (npu, name) in enumerate(rows):
        chip = chip_by_name(name)
        full = name
        if chip is None:
            board_name = board_name or soc_name(ask_board(npu)) or name
            full, chip = board_name, chip_by_name(board_name)
        if chip is None:
            return [], f"no chip is described as {full}"
        facts = {"memories.global.capacity_bytes": memories[index]} if index < len(memories) else {}
        devices.append(DetectedDevice(chip.name, index, f"npu-smi: {full}", torch_device=f"npu:{index}", facts=facts))
    return devices, "no device listed"


def soc_name(board: str) -> str | None:
    """The SoC name from `npu-smi info -t board`: Chip Type + Chip Name on A2, Chip Name + NPU Name from A3 on."""
    fields = {match["key"]: match["value"] for match in _BOARD_FIELD.finditer(board)}
    if "Chip Name" not in fields:
        return None
    if "NPU Name" in fields:
        return f"{fields['Chip Name']}_{fields['NPU Name']}"
    return fields.get("Chip Type", "") + fields["Chip Name"]


def chip_by_name(name: str) -> Chip | None:
    """The chip of a full SoC name, `Ascend` in front or not. Aliases are families (`950PR`), which say too little."""
    wanted = name.removeprefix("Ascend").casefold().replace("_", "-")
    return next((chip for chip in tilehal_chips() if chip.name.replace("_", "-") == wanted), None)
