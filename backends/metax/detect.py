"""Which MetaX devices this machine has: its driver's files first, then `mx-smi`, then `macainfo`. No context is made.

On such a machine torch calls the devices `cuda:N`; that is the name of the tensors' device, not of the target.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from backends.metax.chips import tilehal_chips
from core.hardware import chip_by_device_name
from core.plugins import DetectedDevice, Detection, hookimpl

#: The control device of MetaX's kernel driver.
DRIVER_FILE = "/dev/mxcd"
#: Where the SDK lives unless `MACA_PATH` says otherwise.
DEFAULT_MACA_PATH = "/opt/maca"
#: Per tool, so that both together stay within the two seconds a detector has.
TIMEOUT_S = 0.9

_GPU_ROW = re.compile(r"^\|\s*(?P<index>\d+)\s+(?P<name>[A-Za-z][\w ./-]*?)(?:\s+(?:Off|On))?\s*\|")
_MEMORY_ROW = re.compile(r"\|\s*\d+\s*/\s*(?P<total>\d+)\s*MiB")
_DRIVER = re.compile(r"Kernel Mode Driver Version:\s*(?P<version>\d\S*)")
_ISA = re.compile(r"Name:\s+\S*?(XCORE\d+[a-zA-Z]*)", re.IGNORECASE)


@hookimpl
def tilehal_detect() -> Sequence[DetectedDevice]:
    """The MetaX devices of this machine, in the order of `mx-smi`."""
    return detection().devices


@lru_cache(maxsize=1)
def detection() -> Detection:
    """What `detect` finds on this machine, asked once per process."""
    return detect()


def detect(root: Path = Path("/")) -> Detection:
    """The MetaX devices, and what was asked and answered; `root` is where the driver's file is looked for."""
    if not (root / DRIVER_FILE.lstrip("/")).exists():
        return Detection((), f"no MetaX driver: {DRIVER_FILE} does not exist, so mx-smi and macainfo cannot be asked")
    reasons = [f"{DRIVER_FILE} exists"]
    for tool, parse in (("mx-smi", parse_mx_smi), ("macainfo", parse_macainfo)):
        program = find_tool(tool)
        if program is None:
            reasons.append(f"{tool} not found")
            continue
        try:
            done = subprocess.run(
                [program], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            reasons.append(f"{tool}: {error}")
            continue
        devices, reason = parse(done.stdout)
        if devices:
            return Detection(tuple(devices), devices[0].evidence)
        reasons.append(f"{tool}: {reason}")
    return Detection((), "; ".join(reasons))


def find_tool(name: str) -> str | None:
    """A tool on PATH or in the SDK's `bin`."""
    return shutil.which(name) or shutil.which(name, path=str(maca_path() / "bin"))


def maca_path() -> Path:
    """Root of the MACA SDK: `MACA_PATH`, else `MACA_HOME`, else its usual place. It need not exist."""
    return Path(os.environ.get("MACA_PATH") or os.environ.get("MACA_HOME") or DEFAULT_MACA_PATH)


def parse_mx_smi(text: str) -> tuple[list[DetectedDevice], str]:
    """Devices from the table `mx-smi` prints (two rows a device), and why there are none when there are none."""
    rows: list[tuple[int, str, int | None]] = []
    for line in text.splitlines():
        if "Process" in line:
            break
        if row := _GPU_ROW.match(line):
            rows.append((int(row["index"]), row["name"].strip(), None))
        elif rows and (row := _MEMORY_ROW.search(line)):
            rows[-1] = (*rows[-1][:2], int(row["total"]) * 1024**2)
    version = _DRIVER.search(text)
    driver = version["version"] if version else ""
    devices, undescribed = [], []
    for index, name, memory in rows:
        chip = chip_by_device_name(tilehal_chips(), name)
        if chip is None:
            undescribed.append(name)
            continue
        facts = {"memories.global.capacity_bytes": memory} if memory else {}
        found = DetectedDevice(
            chip.name, index, f"mx-smi: {name}", torch_device=f"cuda:{index}", facts=facts, driver=driver
        )
        devices.append(found)
    return devices, f"no chip is described as {', '.join(undescribed)}" if undescribed else "no device listed"


def architectures(text: str) -> list[str]:
    """Instruction sets that `macainfo` lists, one for each device, in lower case: `xcore1000`."""
    return [name.lower() for name in _ISA.findall(text)]


def parse_macainfo(text: str) -> tuple[list[DetectedDevice], str]:
    """Devices from the instruction sets `macainfo` lists, and why there are none when there are none."""
    devices, undescribed = [], []
    for index, isa in enumerate(architectures(text)):
        chip = chip_by_device_name(tilehal_chips(), isa)
        if chip is None:
            undescribed.append(isa)
            continue
        facts = {"architecture": isa}
        devices.append(DetectedDevice(chip.name, index, f"macainfo: {isa}", torch_device=f"cuda:{index}", facts=facts))
    return devices, f"no chip is described as {', '.join(undescribed)}" if undescribed else "no device listed"
