"""A candidate, the values of its tile parameters, and the verdict on it: ranked, or refused with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from core.tiling.parameters import Value
from core.tiling.prediction import Prediction
from core.tiling.rules import Tiles

Status = Literal["ranked", "refused"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """Values for every tile parameter, and who proposed each.

    Attributes:
        tiles: by parameter name.
        chosen_by: `user`, `rule:<name>` or `default`, by parameter name.
        preferred: place in the rules' lists of preferred configurations; None for what the cost model ranks.
    """

    tiles: Tiles
    chosen_by: Mapping[str, str]
    preferred: int | None = None

    @property
    def rules(self) -> tuple[str, ...]:
        """Names of the rules that proposed a value."""
        found = (who.removeprefix("rule:") for who in self.chosen_by.values() if who.startswith("rule:"))
        return tuple(dict.fromkeys(found))

    def ranked(self, reason: str) -> Verdict:
        """The verdict that it can be compiled as far as is known, and why it stands where it stands."""
        if self.preferred is not None:
            reason = f"a rule prefers it; {reason}"
        return Verdict(self.tiles, self.chosen_by, "ranked", reason, rules=self.rules, preferred=self.preferred)

    def refused(self, reason: str, *, rule: str = "", excess_bytes: int | None = None) -> Verdict:
        """The verdict that it cannot be had.

        Args:
            rule: the rule that refuses it; empty when the chip does.
            excess_bytes: how much it is too large, where a memory is what is too small.
        """
        return Verdict(
            self.tiles,
            self.chosen_by,
            "refused",
            f"{rule}: {reason}" if rule else reason,
            rules=tuple(dict.fromkeys((*self.rules, *filter(None, (rule,))))),
            preferred=self.preferred,
            excess_bytes=excess_bytes,
        )


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
