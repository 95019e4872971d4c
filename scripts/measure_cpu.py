#!/usr/bin/env python3
"""The CPU backend's time for a few kernels, beside torch's: processor time of all threads, the least of several calls.

    python scripts/measure_cpu.py                 # the table of docs/cpu.md

Processor time counts no waiting, so that other work on the machine disturbs it little. It does not say how evenly the
work is spread over threads.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

#: Calls of which the fastest counts.
CALLS = 15


def processor_time(call: Callable[[], object], calls: int) -> float:
    """Least processor time of a call, seconds, after one that is not counted."""
    call()
    times = []
    for _ in range(calls):
        started = time.process_time()
        call()
        times.append(time.process_time() - started)
    return min(times)


def rows(size: int) -> dict[str, tuple[Callable[[], object], Callable[[], object]]]:
    """By name: ours and torch's, both writing into memory that is there already. All float16 but one."""
    from core.ops import functional

    x, y = torch.randn(size, size).half(), torch.randn(size, size).half()
    out = torch.empty_like(x)
    a, b = (torch.randn(1024, 1024) for _ in range(2))
    c = torch.empty_like(a)
    return {
        f"softmax, float16, {size} x {size}": (
            lambda: functional.softmax(x, out=out),
            lambda: torch._softmax(x, -1, False, out=out),
        ),
        f"GELU, float16, {size} x {size}": (
            lambda: functional.gelu(x, out=out),
            lambda: torch.ops.aten.gelu.out(x, out=out),
        ),
        f"rmsnorm, float16, {size} x {size}": (
            lambda: functional.rmsnorm(x, y[0], out=out),
            lambda: out.copy_(F.rms_norm(x, (size,), y[0])),
        ),
        "gemm, float32, 1024 x 1024 x 1024": (
            lambda: functional.gemm(a, b, out=c),
            lambda: torch.matmul(a, b, out=c),
        ),
    }


def main() -> int:
    """Parses the command line and measures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", type=int, default=4096, help="rows, and columns, of what is no product")
    parser.add_argument("--calls", type=int, default=CALLS, help="calls of which the least time counts (%(default)s)")
    options = parser.parse_args()
    print("| | TileHAL, ms | torch, ms |\n| --- | --: | --: |")
    for name, (ours, theirs) in rows(options.size).items():
        times = [processor_time(call, options.calls) * 1e3 for call in (ours, theirs)]
        print(f"| {name} | {times[0]:.1f} | {times[1]:.1f} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
