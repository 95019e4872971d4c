"""The host CPU as a chip: read from the machine, each figure with the file it was read from.

Caches serve no TileLang scope: tiles live in main memory, and the caches decide how fast they are, not whether they
fit. Peak rates are unknown: the number of FMA ports is in no file of the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

from backends.cpu.machine import Machine, read_machine
from core.hardware import Chip, ComputeUnit, ExecutionLimits, MemoryPath, MemorySpace, Source
from core.plugins import hookimpl

_REFERENCES = {
    "CPUINFO": "/proc/cpuinfo",
    "TOPOLOGY": "/sys/devices/system/cpu/cpu*/topology, sched_getaffinity and the control group's CPU quota",
    "CACHE": "/sys/devices/system/cpu/cpu*/cache/index*",
    "CPUFREQ": "/sys/devices/system/cpu/cpu*/cpufreq/cpuinfo_max_freq",
    "MEMINFO": "/proc/meminfo, MemTotal",
}
_CORE = "CPU core"


@hookimpl
def tilehal_chips() -> Sequence[Chip]:
    """The one chip there is: this machine's CPU."""
    return (host_chip(),)


@lru_cache(maxsize=1)
def host_chip() -> Chip:
    """The CPU of this machine, read once per process."""
    return chip_of(read_machine())


def chip_of(machine: Machine) -> Chip:
    """The chip that describes a machine."""
    sources: dict[str, str] = {}

    def sourced(path: str, value: Any, key: str) -> Any:
        """`value`, with its source noted when it is known."""
        if value is not None:
            sources[path] = key
        return value

    core = ComputeUnit(
        kind=_CORE,
        count=sourced("units.cpu_core.count", machine.cores, "TOPOLOGY"),
        max_threads=sourced("units.cpu_core.max_threads", machine.threads_per_core, "TOPOLOGY"),
        lanes_per_wave=sourced(
            "units.cpu_core.lanes_per_wave", machine.simd_bits and machine.simd_bits // 32, "CPUINFO"
        ),
        clock_hz=sourced("units.cpu_core.clock_hz", machine.clock_hz, "CPUFREQ"),
    )
    memories = [
        MemorySpace(
            name="global",
            scopes=("global", "shared", "fragment", "local", "var", "reducer"),
            owner="device",
            capacity_bytes=sourced("memories.global.capacity_bytes", machine.memory_bytes, "MEMINFO"),
        )
    ]
    notes = []
    for cache in machine.caches:
        name = f"l{cache.level}"
        memories.append(
            MemorySpace(
                name=name,
                owner="unit" if cache.private else "device",
                unit=_CORE if cache.private else None,
                capacity_bytes=sourced(f"memories.{name}.capacity_bytes", cache.size_bytes, "CACHE"),
                alignment_bytes=sourced(f"memories.{name}.alignment_bytes", cache.line_bytes, "CACHE"),
            )
        )
        if cache.instances > 1 and not cache.private:
            notes.append(f"{cache.instances} L{cache.level} caches of that size, each shared by some of the cores.")
    if machine.quota is not None:
        notes.append(f"The control group allows {machine.quota:g} CPUs' worth of time on {len(machine.cpus)} CPUs.")
    for feature in machine.features:
        sources[f"features.{feature}"] = "CPUINFO"
    bits = f", {machine.simd_bits}-bit SIMD" if machine.simd_bits else ""
    sources["architecture"] = "CPUINFO"
    return Chip(
        vendor="cpu",
        name="host",
        title=machine.model,
        aliases=("native",),
        architecture=f"{machine.architecture}{bits}",
        codegen={
            "march": "native",
            "isa": machine.architecture,
            "tvm_kind": "llvm",
            "triple": f"{machine.architecture}-linux-gnu",
        },
        units=(core,),
        memories=tuple(memories),
        paths=_paths([memory.name for memory in memories], sources),
        limits=ExecutionLimits(),
        features=machine.features,
        notes=tuple(notes),
        sources=sources,
        references={
            key: Source(title=title, trust="measured")
            for key, title in _REFERENCES.items()
            if key in set(sources.values())
        },
    )


def _paths(names: list[str], sources: dict[str, str]) -> tuple[MemoryPath, ...]:
    """Main memory to the outermost cache and on to the innermost; the hardware moves lines by itself."""
    order = ["global", *sorted((name for name in names if name != "global"), reverse=True)]
    paths = tuple(MemoryPath(source=a, destination=b) for a, b in pairwise(order))
    for path in paths:
        sources[f"paths.{path.key}"] = "CACHE"
    return paths
