"""What Linux says about this machine's CPU, read from its files. Nothing is computed that a file does not give."""

from __future__ import annotations

import ctypes
import os
import platform
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from backends.cpu.features import compiler_features, simd_bits


@dataclass(frozen=True, slots=True)
class Cache:
    """One level of data cache: bytes of one instance, line size, instances, and whether a core has one of its own."""

    level: int
    size_bytes: int
    line_bytes: int | None
    instances: int
    private: bool


@dataclass(frozen=True, slots=True)
class Machine:
    """The CPU as this process may use it. None is what no file says.

    Attributes:
        cpus: logical CPUs this process may run on.
        cores: physical cores behind them, at most what the control group's quota allows.
        quota: CPUs' worth of time the control group allows, when it limits it.
        features: instruction-set features in the compilers' spelling.
    """

    model: str
    architecture: str
    cpus: tuple[int, ...]
    cores: int | None
    quota: float | None
    threads_per_core: int | None
    features: tuple[str, ...]
    simd_bits: int | None
    clock_hz: float | None
    caches: tuple[Cache, ...]
    memory_bytes: int | None


def read_machine(
    root: Path = Path("/"), *, cpus: Iterable[int] | None = None, architecture: str | None = None
) -> Machine:
    """Reads the machine. `root`, `cpus` and `architecture` are for tests; the defaults are this machine's."""
    usable = tuple(sorted(os.sched_getaffinity(0) if cpus is None else cpus))
    machine = architecture or platform.machine()
    info = _cpuinfo(root)
    flags = (info.get("flags") or info.get("Features") or "").split()
    features = compiler_features(flags, machine)
    groups = _core_groups(root, usable)
    quota = _quota(root)
    cores = len(groups) or None
    if quota is not None and cores is not None:
        cores = min(cores, max(1, int(quota)))
    clock = _text(root, f"sys/devices/system/cpu/cpu{usable[0]}/cpufreq/cpuinfo_max_freq")
    return Machine(
        model=info.get("model name") or info.get("Processor") or f"{machine} CPU",
        architecture=machine,
        cpus=usable,
        cores=cores,
        quota=quota,
        threads_per_core=max(map(len, groups.values())) if groups else None,
        features=features,
        simd_bits=simd_bits(features, _sve_bytes() if "sve" in features else None),
        clock_hz=float(clock) * 1000 if clock else None,
        caches=tuple(_caches(root, usable)),
        memory_bytes=_memory(root),
    )


def _text(root: Path, path: str) -> str | None:
    try:
        return (root / path).read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None


def _cpuinfo(root: Path) -> dict[str, str]:
    """Key -> value of the first CPU that has the key (on Arm some stand only at the end)."""
    found: dict[str, str] = {}
    for line in (_text(root, "proc/cpuinfo") or "").splitlines():
        key, colon, value = line.partition(":")
        if colon:
            found.setdefault(key.strip(), value.strip())
    return found


def _core_groups(root: Path, cpus: tuple[int, ...]) -> dict[tuple[str, str], list[int]]:
    """(package, core) -> its logical CPUs among `cpus`; empty when the topology is not exported."""
    groups: dict[tuple[str, str], list[int]] = {}
    for cpu in cpus:
        folder = f"sys/devices/system/cpu/cpu{cpu}/topology"
        package, core = _text(root, f"{folder}/physical_package_id"), _text(root, f"{folder}/core_id")
        if package is None or core is None:
            return {}
        groups.setdefault((package, core), []).append(cpu)
    return groups


def _quota(root: Path) -> float | None:
    """CPUs' worth of time that the control groups around this process allow, the tightest of them."""
    quotas: list[float] = []
    for line in (_text(root, "proc/self/cgroup") or "").splitlines():
        hierarchy, controllers, group = line.split(":", 2)
        if hierarchy == "0":
            for folder in _and_parents(group):
                limit, _, period = (_text(root, f"sys/fs/cgroup{folder}/cpu.max") or "").partition(" ")
                if limit.isdigit() and period.isdigit():
                    quotas.append(int(limit) / int(period))
        elif "cpu" in controllers.split(","):
            for folder in _and_parents(group):
                limit = _text(root, f"sys/fs/cgroup/cpu{folder}/cpu.cfs_quota_us") or ""
                period = _text(root, f"sys/fs/cgroup/cpu{folder}/cpu.cfs_period_us") or ""
                if limit.isdigit() and period.isdigit():
                    quotas.append(int(limit) / int(period))
    return min(quotas, default=None)


def _and_parents(group: str) -> Iterator[str]:
    parts = [part for part in group.split("/") if part and part != ".."]
    for count in range(len(parts), -1, -1):
        yield "".join(f"/{part}" for part in parts[:count])


def _caches(root: Path, cpus: tuple[int, ...]) -> Iterator[Cache]:
    base = f"sys/devices/system/cpu/cpu{cpus[0]}/cache"
    try:
        indices = sorted(path.name for path in (root / base).glob("index*"))
    except OSError:
        return
    for index in indices:
        folder = f"{base}/{index}"
        level, kind, size = (_text(root, f"{folder}/{name}") for name in ("level", "type", "size"))
        match = re.fullmatch(r"(\d+)([KMG]?)", size or "")
        if level is None or kind == "Instruction" or not match:
            continue
        shared = {_text(root, f"sys/devices/system/cpu/cpu{cpu}/cache/{index}/shared_cpu_list") for cpu in cpus}
        siblings = _text(root, f"sys/devices/system/cpu/cpu{cpus[0]}/topology/thread_siblings_list")
        line = _text(root, f"{folder}/coherency_line_size")
        yield Cache(
            level=int(level),
            size_bytes=int(match[1]) * {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}[match[2]],
            line_bytes=int(line) if line and line.isdigit() else None,
            instances=len(shared),
            private=_text(root, f"{folder}/shared_cpu_list") == siblings,
        )


def _memory(root: Path) -> int | None:
    match = re.search(r"^MemTotal:\s+(\d+) kB", _text(root, "proc/meminfo") or "", re.MULTILINE)
    return int(match[1]) * 1024 if match else None


def _sve_bytes() -> int | None:
    """Vector length of SVE registers, from the kernel (prctl PR_SVE_GET_VL)."""
    pr_sve_get_vl, length_mask = 51, 0xFFFF
    try:
        answer = int(ctypes.CDLL(None).prctl(pr_sve_get_vl, 0, 0, 0, 0))
    except (OSError, AttributeError):
        return None
    return answer & length_mask if answer > 0 else None
