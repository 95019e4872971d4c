#!/usr/bin/env python3
"""Convolutions on a GPU: the tiles that are ranked first, right and in turn with torch's (cuDNN, channels last).

    python scripts/explore_conv2d.py --json conv2d.json            # about two minutes on 16 cores and an H200
    python scripts/explore_conv2d.py --shapes 96 --first 20
    python scripts/explore_conv2d.py --dry                         # no device: registers and spills

Kernels are compiled in parallel first; nothing is compiled while anything is timed. Each is compared with torch's
result in float32 from an output filled with NaN, then all of a shape are timed in turn: CUDA graphs of 20 calls,
medians of the rounds, operands in the cache where they fit. cuDNN picks its algorithm by trial
(`torch.backends.cudnn.benchmark`). A tile whose depth divides the channels is copied in whole rows (`whole`), any other
is gathered by element (`gather`).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from core.runtime.kernel import Kernel

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

CALLS, ROUNDS = 20, 21
#: By the channels first: (batch, height, width, channels, filters, size of the window) and how the window moves.
SHAPES: list[tuple[tuple[int, ...], dict[str, int]]] = [
    ((8, 56, 56, 64, 128, 3), {}),
    ((16, 112, 112, 64, 64, 3), {}),
    ((32, 28, 28, 128, 256, 3), {"padding": 1}),
    ((4, 14, 14, 512, 512, 3), {"padding": 1}),
    ((64, 56, 56, 64, 64, 1), {}),
    ((64, 28, 28, 256, 512, 1), {}),
    ((8, 224, 224, 3, 64, 7), {"stride": 2, "padding": 3}),
    ((16, 56, 56, 24, 64, 3), {}),
    ((16, 56, 56, 48, 64, 3), {"padding": 1}),
    ((16, 56, 56, 48, 20, 3), {}),
    ((16, 28, 28, 96, 128, 3), {"padding": 1}),
    ((16, 28, 28, 96, 384, 3), {}),
]


@dataclass
class Row:
    """One kernel on one shape; seconds are those of a call."""

    shape: tuple[int, ...]
    geometry: Mapping[str, int]
    tiles: Mapping[str, Any]
    kind: str
    predicted_s: float
    seconds: float = math.nan
    error: float = math.nan
    failed: str = ""
    registers: int | None = None
    spilled_bytes: int | None = None


@dataclass
class Group:
    """A shape, torch's time on it, and its kernels, the first choice first."""

    shape: tuple[int, ...]
    geometry: Mapping[str, int]
    torch_s: float = math.nan
    rows: list[Row] = field(default_factory=list)


def ranked(shape: tuple[int, ...], geometry: Mapping[str, int], first: int, target: str) -> Iterator[Row]:
    """The tiles ranked first for a shape and a chip, not yet measured."""
    from core.ops._convolution import output_extents
    from core.ops.conv2d import conv2d

    batch, height, width, channels, filters, size = shape
    moved = {"stride": 1, "padding": 0, "dilation": 1, **geometry}
    rows, columns = output_extents(height, width, size, **moved)
    sizes = {"M": batch * rows * columns, "N": filters, "K": size * size * channels}
    candidates = conv2d.rank(*shape, **geometry, **sizes, dtype="float16", target=target).candidates
    for candidate in candidates[:first]:
        kind = "gather" if channels % candidate.tiles["block_K"] else "whole"
        yield Row(shape, geometry, dict(candidate.tiles), kind, candidate.prediction.seconds)


def build(row: Row, target: str) -> Kernel | None:
    """The row's kernel, compiled; None where that fails, which the row then says."""
    from core.errors import TileHALError
    from core.ops.conv2d import conv2d

    try:
        kernel: Kernel = conv2d.compile(*row.shape, **row.geometry, dtype="float16", target=target, **row.tiles)
        kernel.build()
    except TileHALError as error:
        row.failed = error.message
        return None
    actual = kernel.resources.actual
    if actual is not None:
        row.registers, row.spilled_bytes = actual.registers_per_thread, actual.spill_store_bytes
    return kernel


def graph_of(call: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """A CUDA graph of `CALLS` calls."""
    import torch

    for _ in range(3):
        call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()
    return graph


def seconds_of(graph: torch.cuda.CUDAGraph) -> float:
    """Seconds of one call of a graph."""
    import torch

    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    graph.replay()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) / CALLS * 1e-3


def measure(group: Group, kernels: list[Kernel | None]) -> None:
    """Checks and times a shape's kernels and torch in turn."""
    import torch

    batch, height, width, channels, filters, size = group.shape
    x = torch.randn(batch, height, width, channels, device="cuda").half()
    w = torch.randn(size, size, channels, filters, device="cuda").half() / math.sqrt(size * size * channels)
    images, weights = x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)
    moved: dict[str, Any] = dict(group.geometry)
    expected = torch.nn.functional.conv2d(images.float(), weights.float(), **moved).permute(0, 2, 3, 1)
    graphs = [graph_of(lambda: torch.nn.functional.conv2d(images, weights, **moved))]
    timed, kept = [], []  # a graph does not hold the memory that its calls write to
    for row, kernel in zip(group.rows, kernels, strict=True):
        if kernel is None:
            continue
        y = torch.full(expected.shape, math.nan, dtype=torch.float16, device="cuda")
        kernel(x, w, y)
        row.error = float((y.float() - expected).abs().max())
        graphs.append(graph_of(lambda kernel=kernel, y=y: kernel(x, w, y)))  # type: ignore[misc]
        timed.append(row)
        kept.append(y)
    found: list[list[float]] = [[] for _ in graphs]
    for _ in range(ROUNDS):
        for graph, times in zip(graphs, found, strict=True):
            times.append(seconds_of(graph))
    group.torch_s = median(found[0])
    for row, times in zip(timed, found[1:], strict=True):
        row.seconds = median(times)


def words(group: Group) -> str:
    """A line a kernel, behind the shape's own."""
    compared = "" if math.isnan(group.torch_s) else f": torch {group.torch_s * 1e6:.1f} us"
    lines = [f"{group.shape} {dict(group.geometry)}{compared}"]
    for row in group.rows:
        tiles = "x".join(str(value) for value in row.tiles.values())
        if row.failed:
            lines.append(f"  {row.kind:6} {tiles:20} {row.failed}")
            continue
        measured = ""
        if not math.isnan(row.seconds):
            measured = f"{row.seconds * 1e6:7.1f} us, {group.torch_s / row.seconds:5.2f} times as fast; "
            measured += f"largest error {row.error:.2g}; "
        lines.append(
            f"  {row.kind:6} {tiles:20} {measured}predicted {row.predicted_s * 1e6:7.1f} us; "
            f"{row.registers} registers, {row.spilled_bytes} bytes spilled"
        )
    return "\n".join(lines)


def summary(groups: list[Group]) -> str:
    """The first choices as a table for a page."""
    lines = [
        "| images | window, filters | tiles | us | torch, us | times as fast | best of those ranked first, us |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for group in groups:
        timed = [row for row in group.rows if not math.isnan(row.seconds)]
        if not timed:
            continue
        first, best = timed[0], min(row.seconds for row in timed)
        batch, height, width, channels, filters, size = group.shape
        moved = "".join(f", {name} {value}" for name, value in group.geometry.items())
        tiles = "x".join(str(value) for value in first.tiles.values())
        lines.append(
            f"| {batch}x{height}x{width}x{channels} | {size}x{size}, {filters}{moved} | {tiles}, {first.kind}"
            f" | {first.seconds * 1e6:.1f} | {group.torch_s * 1e6:.1f} | {group.torch_s / first.seconds:.2f}"
            f" | {best * 1e6:.1f} |"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default="", help="only shapes with this number of channels")
    parser.add_argument("--first", type=int, default=8, help="how many of those ranked first are measured")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="kernels compiled at once")
    parser.add_argument("--dry", action="store_true", help="no device: compile for an H200, and show what came out")
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    options = parser.parse_args()
    chosen = [one for one in SHAPES if options.shapes in ("", str(one[0][3]))]
    if not chosen:
        parser.error(f"no shape has {options.shapes} channels")
    target = "cuda:h200" if options.dry else "auto"
    groups = [Group(shape, moved, rows=list(ranked(shape, moved, options.first, target))) for shape, moved in chosen]
    rows = [row for group in groups for row in group.rows]
    with ThreadPoolExecutor(options.jobs) as executor:
        kernels = iter(list(executor.map(partial(build, target=target), rows)))
    if options.dry:
        print("\n".join(map(words, groups)))
        return 0

    import torch

    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = False  # of what results are compared with
    for group in groups:
        measure(group, [next(kernels) for _ in group.rows])
        print(words(group), flush=True)
    print(f"\n{torch.cuda.get_device_name()}, torch {torch.__version__}\n\n{summary(groups)}")
    if options.json:
        options.json.write_text(json.dumps([asdict(group) for group in groups], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
