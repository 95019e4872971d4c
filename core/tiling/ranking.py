"""What ranking says: a verdict on every candidate of one kernel on one chip, the best first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from core.tiling.parameters import Value
from core.tiling.prediction import Prediction
from core.tiling.rules import KernelShape

Status = Literal["ranked", "refused"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one candidate.

    Attributes:
        tiles: value of each tile parameter by name. A value that no candidate may have stands alone: it was refused
            before the other parameters were looked at.
        chosen_by: who proposed each value: `user`, `rule:<name>` or `default`.
        status: `ranked` candidates can be compiled as far as is known before lowering, `refused` ones cannot.
        reason: why it stands where it stands, or why it was refused.
        prediction: what the cost model says; None for refused candidates and where the model cannot say.
        rules: the rules that proposed, weighed or forbade it.
        weight: product of the factors of the rules that weighed it; the order is by predicted time times this.
        preferred: place in the rules' lists of preferred configurations, which go first; None for the others.
        excess_bytes: how much it is too large for the memory that refused it; None when something else did.
    """

    tiles: Mapping[str, Value]
    chosen_by: Mapping[str, str]
    status: Status
    reason: str
    prediction: Prediction | None = None
    rules: tuple[str, ...] = ()
    weight: float = 1.0
    preferred: int | None = None
    excess_bytes: int | None = None

    @property
    def seconds(self) -> float | None:
        """Predicted device time with the weights of the rules, or None without a prediction."""
        return None if self.prediction is None else self.prediction.seconds * self.weight

    def to_json(self) -> dict[str, Any]:
        """Plain data, without what it has not got."""
        data: dict[str, Any] = {
            "tiles": dict(self.tiles),
            "chosen_by": dict(self.chosen_by),
            "status": self.status,
            "reason": self.reason,
            "rules": list(self.rules),
        }
        if self.weight != 1.0:
            data["weight"] = self.weight
        if self.preferred is not None:
            data["preferred"] = self.preferred
        if self.excess_bytes is not None:
            data["excess_bytes"] = self.excess_bytes
        if self.prediction is not None:
            data["prediction"] = asdict(self.prediction)
        return data


@dataclass(frozen=True, slots=True)
class Effort:
    """What a ranking cost.

    Attributes:
        seconds: wall time, traces included.
        traces: times the kernel was traced.
        predictions: candidates the cost model was asked about.
        recalled: `process` or `disk` when the ranking was remembered there and nothing of this was spent again.
    """

    seconds: float = 0.0
    traces: int = 0
    predictions: int = 0
    recalled: Literal["", "process", "disk"] = ""


@dataclass(frozen=True, slots=True)
class Ranking:
    """Every candidate of one kernel on one chip.

    Attributes:
        kernel: the factory's name.
        target: the chip, `vendor:chip`.
        shape: what the rules were told of the kernel.
        candidates: the ranked ones, best first, as the driver tries them.
        refused: the others, each with its reason.
        passed_over: of the refused ones, the configurations that a rule prefers by name.
        reasons: each rule's own reason, by name, in order of priority.
        replaced: rules that took no part, and which rule stands for each.
        notes: what was done about the candidates as a whole, one sentence each.
        fingerprint: of the program that the first candidate makes.
        effort: what it cost.
    """

    kernel: str
    target: str
    shape: KernelShape
    candidates: tuple[Verdict, ...]
    refused: Sequence[Verdict]
    reasons: Mapping[str, str] = field(default_factory=dict)
    replaced: Mapping[str, str] = field(default_factory=dict)
    passed_over: tuple[Verdict, ...] = ()
    notes: tuple[str, ...] = ()
    fingerprint: str = ""
    effort: Effort = Effort()

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """All of them: best first, then the refused ones."""
        return (*self.candidates, *self.refused)

    def to_json(self) -> dict[str, Any]:
        """Plain data: what `tilehal tile --json` prints."""
        return {
            "kernel": self.kernel,
            "target": self.target,
            "operator": self.shape.operator,
            "dimensions": dict(self.shape.dimensions),
            "dtypes": list(self.shape.dtypes),
            "rules": dict(self.reasons),
            "replaced": dict(self.replaced),
            "notes": list(self.notes),
            "effort": asdict(self.effort),
            "candidates": [verdict.to_json() for verdict in self.candidates],
            "refused": [verdict.to_json() for verdict in self.refused],
        }
