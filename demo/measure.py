"""Compiles one case for one target, runs it on the chip or its simulator where possible, compares with torch."""

from __future__ import annotations

import statistics
import time
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

import core
from core.target import resolve
from demo.cases import Case, shape_text

#: Largest error allowed, relative to the largest value of the reference: fp16 has eleven bits.
TOLERANCE = 1e-2
REPEATS = 5


@dataclass
class Row:
    """One kernel on one target.

    Attributes:
        evidence: how far this run proves the kernel: `device`, `vendor compiler` or `source only`.
        tiles: the tile parameters used; resources: figures known before building.
        simulated: the smaller shape that was run on the chip's simulator, when the chip is not here.
        error: largest absolute difference from torch in float32, divided by the largest value; None when not run.
        compile_s: from the call to the kernel object; run_s: median of a few launches after the first.
        failure: what went wrong, when something did.
    """

    kernel: str
    shape: str
    target: str
    route: str = ""
    evidence: str = "source only"
    tiles: dict[str, Any] = field(default_factory=dict)
    resources: dict[str, Any] = field(default_factory=dict)
    simulated: str = ""
    error: float | None = None
    compile_s: float | None = None
    run_s: float | None = None
    failure: str = ""

    @property
    def passed(self) -> bool:
        return not self.failure and (self.error is None or self.error <= TOLERANCE)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "passed": self.passed}


def measure(case: Case, target: str, *, runs_here: bool, simulates_here: bool = False) -> Row:
    """Compiles `case` for `target`; runs it too when the machine can. A failure is in the row, not raised.

    Where only a simulator is here, the kernel is compiled once more for a smaller shape and run on that.
    """
    row = Row(case.name, case.shape, target)
    try:
        start = time.perf_counter()
        kernel = case.factory.compile(*case.arguments, target=target)
        row.compile_s = time.perf_counter() - start
        row.route = kernel.provenance.route
        row.tiles = dict(kernel.config.tiles)
        row.resources = {name: value for name, value in asdict(kernel.resources.predicted).items() if value}
        if runs_here:
            arguments = _check(case, case.arguments, kernel, row)
            row.run_s = statistics.median(_launch_s(kernel, arguments) for _ in range(REPEATS))
        elif simulates_here:
            row.simulated = shape_text(case.simulated)
            kernel = case.factory.compile(*case.simulated, target=target, simulate=True)
            _check(case, case.simulated, kernel, row)
        row.evidence = kernel.provenance.evidence
    except core.TileHALError as error:
        row.failure = str(error)
    return row


def _check(case: Case, shape: tuple[int, ...], kernel: core.Kernel, row: Row) -> list[torch.Tensor]:
    """Runs the kernel on fresh random data and notes its error; returns the tensors it was called with."""
    inputs = case.inputs(torch.Generator().manual_seed(torch.seed() % 2**31), *shape)
    expected = case.reference(*inputs)
    device = "cpu" if kernel.simulated else resolve(kernel.target).require_device().torch_device or "cpu"
    arguments = [tensor.to(device) for tensor in inputs]
    result = kernel(*arguments).float().cpu()
    row.error = ((result - expected).abs().max() / expected.abs().max()).item()
    return arguments


def _launch_s(kernel: core.Kernel, arguments: list[torch.Tensor]) -> float:
    start = time.perf_counter()
    kernel(*arguments)
    if arguments[0].device.type != "cpu":
        torch.accelerator.synchronize()
    return time.perf_counter() - start
