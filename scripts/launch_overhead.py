"""Host time per launch: TileHAL's ways to launch beside raw tilelang, Triton and torch, in one process.

    python scripts/launch_overhead.py --target cuda --out launch.json

What is timed is how long a call holds the host, not how long the device works: a round queues `--calls` launches, fewer
than the driver's queue takes, and the device is waited for between rounds, outside the timer. Rounds of all candidates
are interleaved. A candidate that is not installed, or fails, is listed with its reason.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tilelang
import tilelang.language as T
import torch

import core
from core.runtime import load_exported

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

ROWS, COLUMNS = 128, 1024


def scale(rows: int | None = ROWS) -> Any:
    """y = 2 x: two tensors, one launch."""
    M = T.dynamic("M") if rows is None else rows

    @T.prim_func
    def main(X: T.Tensor((M, COLUMNS), "float16"), Y: T.Tensor((M, COLUMNS), "float16")):
        with T.Kernel(M, threads=128) as row:
            for j in T.Parallel(COLUMNS):
                Y[row, j] = X[row, j] * T.float16(2)

    return main


def matmul(n: int = 512) -> Any:
    """Three tensors, and on Hopper a tensor map for each operand."""

    @T.prim_func
    def main(A: T.Tensor((n, n), "float16"), B: T.Tensor((n, n), "float16"), C: T.Tensor((n, n), "float16")):
        with T.Kernel(T.ceildiv(n, 128), T.ceildiv(n, 128), threads=128) as (bx, by):
            a = T.alloc_shared((128, 64), "float16")
            b = T.alloc_shared((64, 128), "float16")
            c = T.alloc_fragment((128, 128), "float32")
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(n, 64), num_stages=3):
                T.copy(A[by * 128, k * 64], a)
                T.copy(B[k * 64, bx * 128], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * 128, bx * 128])

    return main


def tilehal_candidates(target: str, device: str, folder: Path) -> dict[str, Callable[[], Any]]:
    """Every way TileHAL launches the same kernel; each is checked once."""
    x = torch.randn(ROWS, COLUMNS, device=device).half()
    y = torch.empty_like(x)
    kernel = core.compile(scale(), target=target, out_idx=[1])
    symbolic = core.compile(scale(None), target=target, out_idx=[1])
    op = kernel.as_torch_op("tilehal_launch_overhead::scale")
    given = core.compile(scale(), target=target, out_idx=[1]).as_torch_op(
        "tilehal_launch_overhead::scale_into", outputs="given"
    )
    exported = load_exported(kernel.export(folder / "scale"))
    a, b = (torch.randn(512, 512, device=device).half() for _ in range(2))
    products = [torch.empty_like(a) for _ in range(8)]
    lefts = [a.clone() for _ in range(8)]
    gemm = core.compile(matmul(), target=target, out_idx=[2])
    turn = iter(range(1 << 62))

    def moving() -> None:
        i = next(turn) % 8
        gemm(lefts[i], b, products[i])

    found: dict[str, Callable[[], Any]] = {
        "tilehal, output passed": lambda: kernel(x, y),
        "tilehal, output allocated": lambda: kernel(x),
        "tilehal, symbolic rows, output passed": lambda: symbolic(x, y),
        "tilehal, output passed by name": lambda: kernel(x, Y=y),
        "tilehal, exported, output passed": lambda: exported(x, y),
        "tilehal, torch operator, output allocated": lambda: op(x),
        "tilehal, torch operator, output passed": lambda: given(x, y),
        "tilehal, three tensors, product passed": lambda: gemm(a, b, products[0]),
        "tilehal, three tensors, addresses change": moving,
    }
    for name, call in found.items():
        y.zero_()
        result = call()
        if "three" not in name:
            assert torch.equal(result if isinstance(result, torch.Tensor) else y, x * 2), name
    torch.testing.assert_close(gemm(a, b).float(), a.float() @ b.float(), rtol=2e-2, atol=2e-1)
    # The compiled check and launch without the kernel object around it: what is left is the driver's own time.
    compiled = getattr(kernel, "_call", None)
    if compiled is not None:
        found["tilehal, compiled call alone"] = lambda: compiled(x, y)
    print(f"launched by: {kernel.provenance.launch}", file=sys.stderr)
    return found


def other_candidates(device: str) -> dict[str, Callable[[], Any] | str]:
    """What else launches a kernel of two tensors here; a text says why one cannot."""
    x = torch.randn(ROWS, COLUMNS, device=device).half()
    y = torch.empty_like(x)
    found: dict[str, Callable[[], Any] | str] = {
        "torch, softmax": lambda: torch.softmax(x, -1),
        "torch, add into": lambda: torch.add(x, x, out=y),
        "torch, empty_like": lambda: torch.empty_like(x),
        "python, an empty call": lambda: None,
    }
    if device == "cpu":
        return found
    try:
        raw = tilelang.compile(scale(), target="cuda")
        raw_allocates = tilelang.compile(scale(), target="cuda", out_idx=[1])
        found["tilelang, output passed"] = lambda: raw(x, y)
        found["tilelang, output allocated"] = lambda: raw_allocates(x)
    except Exception as error:
        found["tilelang"] = f"{type(error).__name__}: {error}"
    try:
        found["triton, output passed"] = triton_scale(x, y)
    except Exception as error:
        found["triton"] = f"{type(error).__name__}: {error}"
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.add(x, x, out=y)
    found["torch, a graph of one kernel"] = graph.replay
    return found


if triton is not None:

    @triton.jit
    def scale_rows(source, target, columns: tl.constexpr):
        offsets = tl.program_id(0) * columns + tl.arange(0, columns)
        tl.store(target + offsets, tl.load(source + offsets) * 2.0)


def triton_scale(x: torch.Tensor, y: torch.Tensor) -> Callable[[], Any]:
    """The same kernel in Triton."""
    if triton is None:
        raise ImportError("triton is not installed")
    grid = (ROWS,)
    scale_rows[grid](x, y, COLUMNS)
    assert torch.equal(y, x * 2)
    return lambda: scale_rows[grid](x, y, COLUMNS)


def measure(calls: dict[str, Callable[[], Any]], rounds: int, count: int, wait: Callable[[], None]) -> dict[str, Any]:
    """Microseconds per call of each candidate, rounds interleaved."""
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(count):
            call()
        wait()
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter_ns()
            for _ in range(count):
                call()
            samples[name].append((time.perf_counter_ns() - start) / count / 1e3)
            wait()
    return {name: summary(values) for name, values in samples.items()}


def summary(values: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return {
        "median_us": round(statistics.median(values), 3),
        "p10_us": round(cuts[9], 3),
        "p90_us": round(cuts[89], 3),
        "p99_us": round(cuts[98], 3),
        "least_us": round(min(values), 3),
    }


def environment(target: str, device: str) -> dict[str, Any]:
    """What the numbers belong to."""
    model = platform.processor()
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else ():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {
        "target": core.chip(target).target,
        "device": torch.cuda.get_device_name(0) if device == "cuda" else "cpu",
        "host": model,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "tilelang": tilelang.__version__,
        "tilehal": core.__version__,
        "triton": triton.__version__ if triton is not None else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="cuda", help="cuda (default) or cpu")
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--calls", type=int, default=50, help="launches per round; fewer than a driver queues (1024)")
    parser.add_argument("--out", type=Path, help="write JSON here as well")
    options = parser.parse_args()
    device = "cpu" if options.target.startswith("cpu") else "cuda"
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    with tempfile.TemporaryDirectory() as folder:
        calls: dict[str, Any] = {
            **tilehal_candidates(options.target, device, Path(folder)),
            **other_candidates(device),
        }
        missing = {name: call for name, call in calls.items() if isinstance(call, str)}
        runnable = {name: call for name, call in calls.items() if not isinstance(call, str)}
        results = measure(runnable, options.rounds, options.calls, wait)
    document = {
        "environment": environment(options.target, device),
        "rounds": options.rounds,
        "calls_per_round": options.calls,
        "host_time_per_call": results,
        "not_measured": missing,
    }
    text = json.dumps(document, indent=2)
    if options.out is not None:
        options.out.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
