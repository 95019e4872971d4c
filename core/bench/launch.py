"""Host time per launch: TileHAL's ways to launch beside raw tilelang, Triton and torch, in one process.

What is timed is how long a call holds the host, not how long the device works: a round queues some launches, fewer than
the driver's queue takes, and the device is waited for between rounds, outside the timer. Rounds of all candidates are
interleaved, each on a CPU that is quiet when it begins. A candidate that is not installed, or fails, is listed with
its reason.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from core.bench.quiet_cpu import quiet_cpu
from core.errors import KernelError, TileHALError

#: Names of the two ways that the goals are about, and of the one that holds least besides the driver.
PASSED, ALLOCATED, FROM_C = "tilehal, output passed", "tilehal, output allocated", "tilehal, exported, called from C"

#: What :func:`compile_part` compiles, each by itself.
PARTS = ("scale", "symbolic", "matmul", "tilelang", "tilelang, allocating")

#: Folder of the export that calls are made of.
_EXPORTED = "scale"

Calls = dict[str, Callable[[], Any]]
#: Called with how many launches there shall be.
Loops = dict[str, Callable[[int], None]]


def launch_overhead(target: str, rounds: int = 300, calls: int = 50, most_s: float | None = None) -> dict[str, Any]:
    """Host time per call of every way to launch, in microseconds.

    Args:
        target: what TileHAL's kernels are compiled for; its device must be here.
        rounds, calls: of each candidate, and of each round; 50 is far below a driver's queue of 1024.
        most_s: when the sampling is over at the latest, after 7 rounds at least.

    Raises:
        KernelError: one of TileHAL's ways gives a wrong result.
        DeviceUnavailable: there is no device of the target here that torch can address; or as :func:`core.compile`.
    """
    import torch

    from core.target import resolve

    device = torch.device(resolve(target).require_torch_device())
    wait = (lambda: None) if device.type == "cpu" else getattr(torch, device.type).synchronize
    with tempfile.TemporaryDirectory() as folder:
        ours, how = tilehal_calls(target, device, Path(folder))
        others, missing = other_calls(device)
        loops, impossible = calls_from_c(Path(folder), device)
        # A call on the CPU is the kernel itself, which runs on all of them.
        with nullcontext() if device.type == "cpu" else quiet_cpu() as cpu:
            settle = None if cpu is None else cpu.settle
            python = {name: repeated(call) for name, call in {**ours, **others}.items()}
            results = host_time(python | loops, rounds, calls, wait, most_s, settle)
    return {
        "launched_by": how,
        "cpu": None if cpu is None else cpu.to_json(),
        "rounds": rounds,
        "calls_per_round": calls,
        "host_time_per_call": results,
        "not_measured": missing | impossible,
    }


def compile_part(part: str, target: str) -> None:
    """Compiles one of the kernels whose launches are timed into the caches; one of `PARTS`."""
    import core
    from core._tilelang import import_tilelang
    from core.bench.kernels import matmul, scale

    if part.startswith("tilelang"):
        if core.chip(target).vendor == "cuda":
            import_tilelang().compile(scale(), target="cuda", out_idx=[1] if "allocating" in part else None)
        return
    sources: dict[str, Callable[[], Any]] = {"scale": scale, "symbolic": partial(scale, None), "matmul": matmul}
    core.compile(sources[part](), target=target, out_idx=[-1]).build()


def tilehal_calls(target: str, device: Any, folder: Path) -> tuple[Calls, str | None]:
    """Every way TileHAL launches the same kernel, each checked once; and how its launches reach the device."""
    import torch

    import core
    from core.bench.kernels import COLUMNS, ROWS, matmul, scale
    from core.runtime import load_exported

    x = torch.randn(ROWS, COLUMNS, device=device).half()
    y = torch.empty_like(x)
    kernel = core.compile(scale(), target=target, out_idx=[1])
    symbolic = core.compile(scale(None), target=target, out_idx=[1])
    op = kernel.as_torch_op("tilehal_launch_overhead::scale")
    given = core.compile(scale(), target=target, out_idx=[1]).as_torch_op(
        "tilehal_launch_overhead::scale_into", outputs="given"
    )
    exported = load_exported(kernel.export(folder / _EXPORTED))
    a, b = (torch.randn(512, 512, device=device).half() for _ in range(2))
    products = [torch.empty_like(a) for _ in range(8)]
    lefts = [a.clone() for _ in range(8)]
    gemm = core.compile(matmul(), target=target, out_idx=[2])
    turn = iter(range(1 << 62))

    def moving() -> None:
        i = next(turn) % 8
        gemm(lefts[i], b, products[i])

    found: Calls = {
        PASSED: lambda: kernel(x, y),
        ALLOCATED: lambda: kernel(x),
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
        right = "three" in name or torch.equal(result if isinstance(result, torch.Tensor) else y, x * 2)
        if not right:
            raise _wrong(name)
    torch.testing.assert_close(gemm(a, b).float(), a.float() @ b.float(), rtol=2e-2, atol=2e-1)
    # The compiled check and launch without the kernel object around it.
    compiled = getattr(kernel, "_call", None)
    if compiled is not None:
        found["tilehal, compiled call alone"] = lambda: compiled(x, y)
    return found, kernel.provenance.launch


def calls_from_c(folder: Path, device: Any) -> tuple[Loops, dict[str, str]]:
    """Calls of the kernel that :func:`tilehal_calls` exported, in a loop of C; and why there are none."""
    import torch

    from core.bench.from_c import loop_in_c
    from core.bench.kernels import COLUMNS, ROWS

    x = torch.randn(ROWS, COLUMNS, device=device).half()
    y = torch.empty_like(x)
    try:
        run = loop_in_c(folder / _EXPORTED, "main", x, y)
    except TileHALError as error:
        return {}, {FROM_C: error.message}
    run(1)
    if not torch.equal(y, x * 2):
        raise _wrong(FROM_C)
    return {FROM_C: run}, {}


def _wrong(name: str) -> KernelError:
    return KernelError(
        f"{name}: the kernel that doubles its input did not",
        hint="nothing timed with it would mean anything: `tilehal doctor` looks at the installation",
    )


def other_calls(device: Any) -> tuple[Calls, dict[str, str]]:
    """What else launches a kernel of two tensors here; and why something cannot."""
    import torch

    from core.bench.kernels import COLUMNS, ROWS

    x = torch.randn(ROWS, COLUMNS, device=device).half()
    y = torch.empty_like(x)
    found: Calls = {
        "torch, softmax": lambda: torch.softmax(x, -1),
        "torch, add into": lambda: torch.add(x, x, out=y),
        "torch, empty_like": lambda: torch.empty_like(x),
        "python, an empty call": lambda: None,
    }
    missing: dict[str, str] = {}
    if device.type == "cpu":
        return found, missing
    for name, make in {"tilelang": _tilelang_calls, "triton": _triton_calls, "torch": _graph_calls}.items():
        try:
            found |= make(x, y)
        except Exception as error:  # whatever another library does must not cost the other rows
            missing[name] = f"{type(error).__name__}: {error}"
    return found, missing


def host_time(
    loops: Mapping[str, Callable[[int], None]],
    rounds: int,
    count: int,
    wait: Callable[[], Any],
    most_s: float | None = None,
    settle: Callable[[], None] | None = None,
) -> dict[str, Any]:
    """Microseconds per call of each candidate, rounds interleaved.

    Args:
        loops: the candidates; each makes as many calls as it is told (:func:`repeated` makes one of a call).
        rounds: samples of each candidate.
        count: calls of a sample.
        wait: waits for the device; called between samples.
        most_s: as for :func:`launch_overhead`.
        settle: called before each round, outside the timer.
    """
    from core.tuning.measure import LEAST_SAMPLES

    samples: dict[str, list[float]] = {name: [] for name in loops}
    for sample in loops.values():
        sample(count)
        wait()
    until = None if most_s is None else time.monotonic() + most_s
    for done in range(rounds):
        if until is not None and done >= LEAST_SAMPLES and time.monotonic() > until:
            break
        if settle is not None:
            settle()
        for name, sample in loops.items():
            start = time.perf_counter_ns()
            sample(count)
            samples[name].append((time.perf_counter_ns() - start) / count / 1e3)
            wait()
    return {name: _summary(values) for name, values in samples.items()}


def repeated(call: Callable[[], Any]) -> Callable[[int], None]:
    """A candidate for :func:`host_time` that makes its calls in a loop of Python."""

    def loop(count: int) -> None:
        for _ in range(count):
            call()

    return loop


def _summary(values: list[float]) -> dict[str, float]:
    from core.tuning.measure.statistics import median_interval, quantile

    interval = median_interval(values)
    return {
        "median_us": round(interval.value, 3),
        "low_us": round(interval.low, 3),
        "high_us": round(interval.high, 3),
        "p10_us": round(quantile(values, 0.10), 3),
        "p90_us": round(quantile(values, 0.90), 3),
        "p99_us": round(quantile(values, 0.99), 3),
        "least_us": round(min(values), 3),
    }


def _tilelang_calls(x: Any, y: Any) -> Calls:
    from core._tilelang import import_tilelang
    from core.bench.kernels import scale

    tilelang = import_tilelang()
    raw = tilelang.compile(scale(), target="cuda")
    allocating = tilelang.compile(scale(), target="cuda", out_idx=[1])
    found: Calls = {"tilelang, output passed": lambda: raw(x, y), "tilelang, output allocated": lambda: allocating(x)}
    for call in found.values():
        call()
    return found


def _triton_calls(x: Any, y: Any) -> Calls:
    from core.bench.triton_kernels import scale_rows

    grid, columns = (x.shape[0],), x.shape[1]
    scale_rows[grid](x, y, columns)
    return {"triton, output passed": lambda: scale_rows[grid](x, y, columns)}


def _graph_calls(x: Any, y: Any) -> Calls:
    import torch

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.add(x, x, out=y)
    return {"torch, a graph of one kernel": graph.replay}
