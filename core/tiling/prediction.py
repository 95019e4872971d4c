"""What the cost model says of one candidate on one chip."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Prediction:
    """Predicted time of one launch, and what it is made of.

    Attributes:
        seconds: predicted device time of one call.
        bound: the term that decides it: `matrix`, `vector`, `memory`, `l2`, `shared`, `latency` or `launch`.
        terms: seconds each term would take alone, by the same names.
        memory_bytes: bytes per block in each memory space of the chip, by the space's name.
        blocks: blocks of the grid.
        blocks_per_unit: blocks one compute unit holds at once (occupancy), None where a figure it needs is unknown.
        waves: passes over the compute units that the grid needs, whole ones.
        assumptions: what was assumed where the descriptor has no figure, one sentence each.
    """

    seconds: float
    bound: str
    terms: Mapping[str, float]
    memory_bytes: Mapping[str, int] = field(default_factory=dict)
    blocks: int | None = None
    blocks_per_unit: int | None = None
    waves: float | None = None
    assumptions: tuple[str, ...] = ()
