"""Documents of benchmarks that nobody ran."""

from __future__ import annotations

from typing import Any

from core.bench.bounds import bounded
from core.bench.case import Case, suite
from core.bench.workloads import workload

CEILINGS = {
    "bytes_per_s": 4e12,
    "read_bytes_per_s": 4.2e12,
    "ops_per_s": {"float16": 7e14, "bfloat16": 7e14},
}


def timed(seconds: float) -> dict[str, Any]:
    return {"median_s": seconds, "low_s": seconds, "high_s": seconds, "spread": 0.0, "samples": 50}


def interval(value: float, half: float = 0.002) -> dict[str, Any]:
    return {"value": value, "low": value - half, "high": value + half, "confidence": 0.95}


def row(case: Case, speedups: dict[str, float], share: float = 0.9, **more: dict[str, Any]) -> dict[str, Any]:
    """A row whose time is at a share of its bound, and the others' so many times as long."""
    work = workload(case)
    found: dict[str, Any] = {
        **case.to_json(),
        "label": case.label,
        "name": case.name,
        "flops": work.flops,
        "bytes_moved": work.bytes_moved,
        "status": "ok",
        "reason": "",
        "contenders": {"tilehal": {"status": "ok"}},
        "ratios": {"tilehal": {}},
    }
    seconds = bounded(found, CEILINGS)["bound"]["seconds"] / share
    found["contenders"]["tilehal"] = {"status": "ok", "tiles": {}, "cold": timed(seconds), "warm": timed(seconds)}
    for name, speedup in speedups.items():
        times = timed(seconds * speedup)
        found["contenders"][name] = {"status": "ok", "cold": times, "warm": dict(times)}
        found["ratios"]["tilehal"][name] = {"cold": interval(speedup), "warm": interval(speedup)}
    for name, entry in more.items():
        found["contenders"][name] = entry
    return bounded(found, CEILINGS)


def document(rows: list[dict[str, Any]], launch: dict[str, Any] | None = None) -> dict[str, Any]:
    target = {
        "name": "cuda:h200",
        "device": "driver: NVIDIA H200; 132 x SM",
        "driver": "570",
        "toolchain": "nvcc 12.8",
        "plugins": ["tilehal 0.1.0"],
    }
    return {
        "format": 1,
        "command": "tilehal bench",
        "environment": {
            "device_type": "cuda",
            "host": {"cpu": "A CPU", "cpus": 16, "python": "3.11", "torch": "2.11", "date": "2026-01-01"},
            "target": target,
            "libraries": {"triton": "3.6"},
        },
        "settings": {"seed": 1},
        "device": {
            "clock_mhz": [1700.0, 1980.0],
            "power_w": 650.0,
            "temperature_c": 60.0,
            "slowed_by": {"power limit": 0.2},
        },
        "ceilings": CEILINGS,
        "rows": rows,
        "launch": launch,
        "seconds": {"compiling": 30.0, "total": 100.0},
        "goals": [],
    }


def all_rows(speedup: float = 1.02) -> list[dict[str, Any]]:
    """Every row of the standard suite, all as fast."""
    others = {
        "gemm": ("cublas",),
        "softmax": ("triton", "triton overlapped", "copy"),
        "layernorm": ("triton", "triton overlapped", "copy"),
        "rmsnorm": ("triton", "triton overlapped", "copy"),
        "attention": ("cudnn", "flash"),
        "mla": (),
    }
    return [row(case, dict.fromkeys(others[case.operator], speedup)) for case in suite("standard")]
