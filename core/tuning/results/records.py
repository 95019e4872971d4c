"""What the store holds: keys, outcomes of candidates, and the results they add up to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from core.tiling import Value
from core.tuning.environment import Environment

#: What became of a candidate: it was measured, or it failed to compile (`build`), to start (`launch`), gave other
#: values than the reference (`wrong`), took longer than it may (`timeout`) or ended its process (`crash`).
Status = Literal["ok", "build", "launch", "wrong", "timeout", "crash"]
STATUSES: tuple[str, ...] = get_args(Status)


def identity_of(tiles: Mapping[str, Value]) -> str:
    """What tells a candidate from the others of its shape: its tiles as canonical JSON."""
    return json.dumps(dict(tiles), sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Key:
    """What a result was measured for. Results under different keys say nothing of each other.

    Attributes:
        kernel: name of the factory.
        fingerprint: of its source, see :func:`core.tiling.fingerprint.source_fingerprint`.
        arguments: every argument but the tile parameters, as canonical JSON (:func:`core.compiler.keys.canonical`).
        dtypes: of the tensor parameters, in order; empty where nothing was traced.
        options: compile options that differ from the defaults, as canonical JSON; empty for none.
        chip: the target, `cuda:h200`.
        environment: driver, toolchain, TileLang and plugins.
    """

    kernel: str
    fingerprint: str
    arguments: str
    dtypes: tuple[str, ...]
    chip: str
    environment: Environment
    options: str = ""

    @property
    def values(self) -> dict[str, Any]:
        """The arguments by name, as plain data."""
        found: dict[str, Any] = json.loads(self.arguments)
        return found

    @property
    def shape(self) -> str:
        """The arguments for people: `M=4096, N=4096, K=4096, dtype=float16`."""
        return ", ".join(f"{name}={value}" for name, value in self.values.items())


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one candidate.

    Attributes:
        tiles: its tile parameters by name.
        status: see `STATUSES`.
        median_s, low_s, high_s: time of one call and its interval, seconds; None when it was not measured.
        samples: how many samples the median is of.
        reason: why it failed, one line; of a measured one, how it was timed.
        details: facts about a failure, as JSON-able data.
        compile_s: seconds to lower and build it, where it did not come from the cache.
        place: its place in the untuned ranking, from 0.
        predicted_s: what the cost model said.
        measured_at: seconds since 1970.
        source: empty when it was measured into this store, else where it was imported from.
    """

    tiles: Mapping[str, Value]
    status: Status
    median_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    samples: int = 0
    reason: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    compile_s: float | None = None
    place: int | None = None
    predicted_s: float | None = None
    measured_at: float = 0.0
    source: str = ""

    @property
    def ok(self) -> bool:
        """Whether it was measured, with right values."""
        return self.status == "ok"

    @property
    def identity(self) -> str:
        """What tells the candidate from the others of its key."""
        return identity_of(self.tiles)


@dataclass(frozen=True, slots=True)
class Result:
    """Everything known of one key.

    Attributes:
        outcomes: fastest first, then the failures in the order of the ranking.
        structural: arguments that change what a block does, not only how many there are (a row length held whole, a
            head dimension); a result moves to another value of them less readily.
    """

    key: Key
    outcomes: tuple[Outcome, ...]
    structural: tuple[str, ...] = ()

    @property
    def measured(self) -> tuple[Outcome, ...]:
        """The outcomes with a time, fastest first."""
        return tuple(outcome for outcome in self.outcomes if outcome.ok)

    @property
    def failures(self) -> tuple[Outcome, ...]:
        """The outcomes without one."""
        return tuple(outcome for outcome in self.outcomes if not outcome.ok)

    @property
    def best(self) -> Outcome | None:
        """The fastest, or None when none was measured."""
        return next(iter(self.measured), None)


def in_order(outcomes: list[Outcome]) -> tuple[Outcome, ...]:
    """Fastest first, then failures as they were ranked."""
    late = float("inf")

    def order(outcome: Outcome) -> tuple[bool, float, float, str]:
        time = outcome.median_s if outcome.median_s is not None else late
        place = late if outcome.place is None else outcome.place
        return (not outcome.ok, time if outcome.ok else late, place, outcome.identity)

    return tuple(sorted(outcomes, key=order))
