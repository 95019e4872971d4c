"""What ranking says: a verdict on every candidate of one kernel on one chip, the best first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
    """

    tiles: Mapping[str, Value]
    chosen_by: Mapping[str, str]
    status: Status
    reason: str
    prediction: Prediction | None = None
    rules: tuple[str, ...] = ()
    weight: float = 1.0

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
        if self.prediction is not None:
            data["prediction"] = prediction_json(self.prediction)
        return data


@dataclass(frozen=True, slots=True)
class Ranking:
    """Every candidate of one kernel on one chip.

    Attributes:
        kernel: the factory's name.
        target: the chip, `vendor:chip`.
        shape: what the rules were told of the kernel.
        verdicts: the ranked candidates, best first, then the refused ones.
        reasons: each rule's own reason, by name, in order of priority.
        replaced: rules that took no part, and which rule stands for each.
        notes: what was done about the candidates as a whole, one sentence each.
    """

    kernel: str
    target: str
    shape: KernelShape
    verdicts: tuple[Verdict, ...]
    reasons: Mapping[str, str] = field(default_factory=dict)
    replaced: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def candidates(self) -> tuple[Verdict, ...]:
        """The ranked ones, as the driver tries them."""
        return tuple(verdict for verdict in self.verdicts if verdict.status == "ranked")

    @property
    def refused(self) -> tuple[Verdict, ...]:
        """The refused ones, each with its reason."""
        return tuple(verdict for verdict in self.verdicts if verdict.status == "refused")


def prediction_json(prediction: Prediction) -> dict[str, Any]:
    """A prediction as plain data."""
    return {
        "seconds": prediction.seconds,
        "bound": prediction.bound,
        "terms": dict(prediction.terms),
        "memory_bytes": dict(prediction.memory_bytes),
        "blocks": prediction.blocks,
        "blocks_per_unit": prediction.blocks_per_unit,
        "waves": prediction.waves,
        "assumptions": list(prediction.assumptions),
    }
