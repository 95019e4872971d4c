"""Compiles, runs and judges one case and says what happened, as a record: for scripts that go on after faults."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import torch

from tests.kernels.case import Case
from tests.kernels.silent import Silent

#: Errors that decline a kernel before anything runs. Others (a failed build, a missing device) are faults.
REFUSALS = ("UnsupportedOp", "ShapeMismatch", "ResourceExceeded")

Status = Literal["ok", "wrong", "refused", "error", "crashed"]


@dataclass(slots=True)
class Outcome:
    """What became of a case.

    Attributes:
        status: `ok`; `wrong` values; `refused` with one of :data:`REFUSALS`; any other `error`; `crashed` (the process
            died).
        expected: whether that is as it should be. A refusal is, where the case says so or is a silent difference.
        error_type, message: of the exception, if any.
        largest_error: largest absolute difference from the reference over all runs, if any was right.
        compile_s, run_s: seconds for compiling (build included) and for the first call.
        runs: what was run (`default stream`, `other stream`).
        seed: of the first run's data, to repeat it.
    """

    name: str
    status: Status = "ok"
    expected: bool = True
    error_type: str = ""
    message: str = ""
    largest_error: float | None = None
    compile_s: float | None = None
    run_s: float | None = None
    runs: list[str] = field(default_factory=list)
    seed: int | None = None

    def to_json(self) -> dict[str, Any]:
        """JSON-able fields by name."""
        return asdict(self)


def _streams(device: str) -> list[tuple[str, Callable[[], AbstractContextManager[Any]]]]:
    if not device.startswith("cuda"):
        return [("default stream", nullcontext)]
    return [
        ("default stream", nullcontext),
        ("other stream", lambda: torch.cuda.stream(torch.cuda.Stream(device))),  # type: ignore[no-untyped-call] # torch's
    ]


def evaluate(entry: Case | Silent, target: str, device: str = "cpu", **options: Any) -> Outcome:
    """Compiles the case for `target` and runs it on `device` with fresh data, on the default and on another stream.

    Never raises for what the case does; a dead device shows as an `error` whose type is torch's.
    """
    from core.errors import TileHALError

    case = entry.case if isinstance(entry, Silent) else entry
    refusal = entry.refusal if isinstance(entry, Silent) else ""
    may_refuse = isinstance(entry, Silent) or bool(case.stock_refusal)
    gen = torch.Generator()
    outcome = Outcome(case.name, seed=gen.seed())
    try:
        start = time.perf_counter()
        kernel = case.compile(target, **options)
        outcome.compile_s = time.perf_counter() - start
        for name, stream in _streams(device):
            inputs = case.inputs(gen)
            start = time.perf_counter()
            with stream():
                outputs = [output.cpu() for output in case.run(kernel, inputs, device)]
            if outcome.run_s is None:
                outcome.run_s = time.perf_counter() - start
            if refusal:
                raise AssertionError(f"ran, but should have been refused with {refusal}")
            outcome.largest_error = max(outcome.largest_error or 0.0, case.check(outputs, inputs))
            outcome.runs.append(name)
    except AssertionError as error:
        outcome.status, outcome.expected = "wrong", False
        outcome.error_type, outcome.message = "AssertionError", str(error)
    except TileHALError as error:
        kind = type(error).__name__
        outcome.status = "refused" if kind in REFUSALS and not outcome.runs else "error"
        outcome.expected = outcome.status == "refused" and may_refuse and kind == (refusal or kind)
        outcome.error_type, outcome.message = kind, str(error)
    except Exception as error:
        outcome.status, outcome.expected = "error", False
        outcome.error_type, outcome.message = type(error).__name__, str(error)
    return outcome
