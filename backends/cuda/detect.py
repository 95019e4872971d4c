"""Which NVIDIA devices this machine has. Neither torch nor CUDA is imported, and no context is created.

NVIDIA's own evidence comes first: other vendors ship libraries that answer to CUDA's names (on a MetaX machine
`torch.cuda` works), so a device counts only where NVIDIA's kernel driver is present.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from backends.cuda.chips import tilehal_chips
from core.hardware import chip_by_device_name
from core.plugins import DetectedDevice, Detection, hookimpl

#: Files of NVIDIA's kernel driver; the last is its stand-in under WSL.
DRIVER_FILES = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg")
DRIVER_LIBRARY = "libcuda.so.1"
#: It answers within a third of a second on an H200; a broken driver hangs.
TIMEOUT_S = 10.0

#: Figure of the descriptor -> what the probe calls it, and the factor to the descriptor's unit.
_FACTS = {
    "units.sm.count": ("sm_count", 1),
    "units.sm.lanes_per_wave": ("warp_size", 1),
    "units.sm.max_threads": ("threads_per_sm", 1),
    "units.sm.max_blocks": ("blocks_per_sm", 1),
    "units.sm.clock_hz": ("clock_khz", 1000),
    "units.sm.registers.per_unit": ("registers_per_sm", 1),
    "units.sm.registers.per_block": ("registers_per_block", 1),
    "limits.threads_per_block": ("threads_per_block", 1),
    "memories.global.capacity_bytes": ("memory_bytes", 1),
    "memories.global.bus_width_bits": ("bus_width_bits", 1),
    "memories.l2.capacity_bytes": ("l2_bytes", 1),
    "memories.shared.capacity_bytes": ("shared_per_sm", 1),
    "memories.shared.per_block_bytes": ("shared_per_block_optin", 1),
    "memories.shared.static_per_block_bytes": ("shared_per_block", 1),
    "memories.shared.reserved_per_block_bytes": ("shared_reserved_per_block", 1),
}


@hookimpl
def tilehal_detect() -> Sequence[DetectedDevice]:
    """The NVIDIA devices visible to this process, in the driver's order."""
    return detection().devices


@lru_cache(maxsize=1)
def detection() -> Detection:
    """What `detect` finds on this machine, asked once per process."""
    return detect()


def detect(root: Path = Path("/")) -> Detection:
    """The NVIDIA devices, and what was asked and answered; `root` is where driver files are looked for."""
    present = [name for name in DRIVER_FILES if (root / name.lstrip("/")).exists()]
    if not present:
        return Detection((), f"no NVIDIA driver: none of {', '.join(DRIVER_FILES)} exists")
    try:
        answers = ask_driver()
    except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
        return Detection((), f"{present[0]} exists, but the driver does not answer: {error}")
    devices = tuple(
        replace(device, driver=driver_version(facts, root))
        for index, facts in enumerate(answers)
        if (device := device_from_facts(index, facts)) is not None
    )
    if devices:
        return Detection(devices, devices[0].evidence)
    names = ", ".join(str(facts.get("name")) for facts in answers)
    return Detection((), f"the driver lists no device this backend can target ({names or 'none at all'})")


def ask_driver() -> list[dict[str, Any]]:
    """The probe's answers, one mapping per device.

    Raises:
        RuntimeError: the probe ended with a message of the driver's, or crashed.
        subprocess.TimeoutExpired: it did not end in time.
    """
    script = Path(__file__).with_name("probe.py")
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(script), DRIVER_LIBRARY],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip() or f"the probe ended with status {done.returncode}")
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    return answers


def device_from_facts(index: int, facts: Mapping[str, Any]) -> DetectedDevice | None:
    """A device from the probe's answers; None when its compute capability is described by no chip.

    A product this backend does not describe is compiled for as its compute capability (`sm_89`): limits are those of
    the capability, counts and rates those of the chip that stands for it. The evidence says so.
    """
    name = str(facts["name"])
    chips = tilehal_chips()
    capability = f"sm_{facts['compute_capability_major']}{facts['compute_capability_minor']}"
    chip = chip_by_device_name(chips, name)
    evidence = f"CUDA driver: {name}"
    if chip is None:
        chip = chip_by_device_name(chips, capability)
        if chip is None:
            return None
        evidence += f", not described here; its compute capability stands for it ({capability}, figures of {chip.name})"
    figures: dict[str, Any] = {figure: facts[key] * factor for figure, (key, factor) in _FACTS.items() if key in facts}
    for limit, prefix in (("limits.block_dim", "block_dim"), ("limits.grid_dim", "grid_dim")):
        if all(f"{prefix}_{axis}" in facts for axis in "xyz"):
            figures[limit] = tuple(facts[f"{prefix}_{axis}"] for axis in "xyz")
    # Hopper and later need the suffix for what the descriptor lists (wgmma, tcgen05).
    figures["codegen.arch"] = capability + ("a" if int(facts["compute_capability_major"]) >= 9 else "")
    return DetectedDevice(chip=chip.name, index=index, evidence=evidence, torch_device=f"cuda:{index}", facts=figures)


def driver_version(facts: Mapping[str, Any], root: Path = Path("/")) -> str:
    """Version of the kernel driver (`570.86.15`); of the CUDA it supports where there is no such file (WSL)."""
    try:
        text = (root / DRIVER_FILES[0].lstrip("/")).read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    found = re.search(r"\s(\d{3,}\.\d+(?:\.\d+)?)\s", text)
    if found is not None:
        return found[1]
    version = int(facts.get("cuda_version", 0))
    return f"CUDA {version // 1000}.{version % 1000 // 10}" if version else ""
