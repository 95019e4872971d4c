"""Where a snapshot was taken: the host, and each target's device, driver, toolchain, versions and clocks."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

#: What changes between two recordings on one machine without making them incomparable.
VOLATILE = ("date", "load_average", "revision", "clocks")


def describe_host() -> dict[str, Any]:
    """The machine, its system and what runs on it; plain data, what is unknown left out."""
    import torch

    import core

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    facts = {
        "cpu": _cpu_model(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory / 2**30),
        "governor": _text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "tilehal": core.__version__,
        "revision": _revision(Path(core.__file__).parent),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "load_average": round(os.getloadavg()[0], 1),
    }
    return {name: value for name, value in facts.items() if value is not None}


def describe_target(target: str) -> dict[str, Any]:
    """What a target's times depend on: device, driver, toolchain, TileLang, plugins, and its clocks as they are now.

    Raises as :func:`core.target.resolve`.
    """
    from core.plugins.registry import manager
    from core.target import resolve
    from core.tuning.environment import current

    found = resolve(target)
    facts = current(found, manager().backend(found.vendor)).to_json()
    device = found.find_device()
    facts["clocks"] = _clocks(device.torch_device if device is not None else None)
    return facts


def comparable(environment: Mapping[str, Any]) -> dict[str, Any]:
    """The part of an environment that two recordings must share for one to go on where the other stopped."""

    def stable(facts: Any) -> Any:
        if not isinstance(facts, Mapping):
            return facts
        return {name: stable(value) for name, value in facts.items() if name not in VOLATILE}

    found = stable(environment)
    return found if isinstance(found, dict) else {}


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What differs between two environments, one line each (`cuda:h200 driver: 570.1, now 580.2`), dates left out."""
    one, other = _flat(comparable(old)), _flat(comparable(new))
    lines = []
    for name in sorted(one.keys() | other.keys()):
        if name.startswith("settings."):
            continue
        if one.get(name) != other.get(name):
            shown = name.removeprefix("targets.").replace(".", " ")
            lines.append(f"{shown}: {one.get(name, 'unknown')}, now {other.get(name, 'unknown')}")
    return lines


def _flat(facts: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in facts.items():
        if isinstance(value, Mapping):
            found.update(_flat(value, f"{prefix}{name}."))
        else:
            found[f"{prefix}{name}"] = ", ".join(map(str, value)) if isinstance(value, list) else value
    return found


def _clocks(torch_device: str | None) -> dict[str, int]:
    """Clock rates in MHz where something says: torch (NVML) for a device, Linux for the CPU; else empty."""
    if torch_device is None:
        return {}
    if torch_device == "cpu":
        return _cpu_clocks()
    import torch

    where = torch.device(torch_device)
    rate = getattr(getattr(torch, where.type), "clock_rate", None)
    found: dict[str, int] = {}
    if rate is not None:
        with contextlib.suppress(Exception):  # needs NVML's Python package, which nothing else here does
            found["device_mhz"] = int(rate(where))
    return found


def _cpu_clocks() -> dict[str, int]:
    rates = []
    for line in (_text("/proc/cpuinfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "cpu MHz":
            with contextlib.suppress(ValueError):
                rates.append(float(value))
    return {"slowest_cpu_mhz": round(min(rates)), "fastest_cpu_mhz": round(max(rates))} if rates else {}


def _cpu_model() -> str:
    for line in (_text("/proc/cpuinfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Processor"):
            return " ".join(value.split())
    return platform.processor() or platform.machine()


def _revision(folder: Path) -> str | None:
    """The commit that the running code was checked out from, with a `+` when files have changed; None outside git."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        if not (folder.parent / ".git").exists():
            return None
        command = ["git", "-C", str(folder.parent), "describe", "--always", "--dirty=+", "--exclude=*"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
        return done.stdout.strip() or None
    return None


def _text(path: str) -> str | None:
    with contextlib.suppress(OSError):
        return Path(path).read_text(encoding="utf-8", errors="replace").strip() or None
    return None
