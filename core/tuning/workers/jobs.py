"""What is asked of a process that compiles or measures, and what it answers: plain data that travels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from core import errors
from core.compiler.artifacts import BuiltKernel, CompileOptions, LoweredKernel
from core.errors import TileHALError, TuningError
from core.tiling import Value
from core.tuning.results.records import Status

if TYPE_CHECKING:
    from core.hardware import Chip
    from core.tuning.environment import Environment
    from core.tuning.workers.shipping import Parcel

#: What an answer says: a candidate's status, or that the candidate has nothing to do with it (no compiler, no device,
#: no room on a disk).
ReplyVerdict = Status | Literal["impossible"]


@dataclass(frozen=True, slots=True)
class Symbol:
    """Stands for a symbolic dimension (`T.dynamic`) among a factory's arguments."""

    name: str
    dtype: str


@dataclass(frozen=True, slots=True)
class Subject:
    """A kernel with its arguments, for a chip.

    Attributes:
        factory: the factory, on its way.
        arguments: every argument but the tile parameters, symbolic dimensions as :class:`Symbol`.
        chip: the chip itself, so that every process compiles for the same one.
        options: how it is compiled.
    """

    factory: Parcel
    arguments: Mapping[str, Any]
    chip: Chip
    options: CompileOptions = field(default_factory=CompileOptions)


@dataclass(frozen=True, slots=True)
class Artifact:
    """A compiled kernel on its way to a process that does not see the cache it lies in.

    Attributes:
        key: of the lowered kernel in the cache.
        built: the built kernel, whose directory means nothing to the receiver; None where there was no compiler.
        files: content of that directory, by name.
        machine: kind of processor that its host code is for.
    """

    key: str
    lowered: LoweredKernel
    built: BuiltKernel | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)
    machine: str = ""


@dataclass(frozen=True, slots=True)
class Conditions:
    """How a candidate is run: where, with what, against what, for how long.

    Attributes:
        problem: identifies arguments and reference: what was made for one candidate serves the next.
        device: torch device.
        symbols: extents of symbolic dimensions.
        values: a parcel of a mapping or function that gives inputs, see :func:`core.tuning.inputs.make_arguments`.
        reference: a parcel of a function that gives the right outputs; without one, `trusted` does.
        trusted: tiles of the candidate whose outputs are right; None while that is being found out.
        trusted_artifact: what it was compiled to, where that lies in no cache here.
        tolerance: share by which an element may be off; None for the usual of its type.
        cold_l2, warmup_ms, repeat_ms, seed: as for :func:`core.tuning.measure.measure`.
        best_s: the fastest so far: what is clearly slower is not measured to the end.
    """

    problem: str
    device: str
    symbols: Mapping[str, int] = field(default_factory=dict)
    values: Parcel | None = None
    reference: Parcel | None = None
    trusted: Mapping[str, Value] | None = None
    trusted_artifact: Artifact | None = None
    tolerance: float | None = None
    cold_l2: bool = True
    warmup_ms: float = 25.0
    repeat_ms: float = 100.0
    seed: int = 0
    best_s: float | None = None


@dataclass(frozen=True, slots=True)
class CompileJob:
    """Compile one candidate into the cache; with `ship`, hand it over too."""

    subject: Subject
    tiles: Mapping[str, Value]
    timeout_s: float
    ship: bool = False


@dataclass(frozen=True, slots=True)
class CrossCheckJob:
    """Hold one candidate against the CPU backend, at these arguments or, where that would take long, at smaller ones.

    Attributes:
        smaller: the subject with smaller arguments; None where there is no such thing.
    """

    subject: Subject
    smaller: Subject | None
    tiles: Mapping[str, Value]
    conditions: Conditions
    timeout_s: float


@dataclass(frozen=True, slots=True)
class MeasureJob:
    """Run one candidate, hold it against the reference and time it.

    Attributes:
        artifact: what was compiled elsewhere; None where it lies in the cache.
    """

    subject: Subject
    tiles: Mapping[str, Value]
    conditions: Conditions
    timeout_s: float
    artifact: Artifact | None = None


@dataclass(frozen=True, slots=True)
class FinalJob:
    """Time several candidates in turn, so that they can be compared.

    Attributes:
        artifacts: of each, what it was compiled to elsewhere, or None.
    """

    subject: Subject
    tiles: Sequence[Mapping[str, Value]]
    conditions: Conditions
    timeout_s: float
    artifacts: Sequence[Artifact | None]


Job = CompileJob | CrossCheckJob | MeasureJob | FinalJob


@dataclass(frozen=True, slots=True)
class Timing:
    """A candidate's time: median and interval in seconds, number of samples, how it was taken."""

    median_s: float
    low_s: float
    high_s: float
    samples: int
    method: str

    def of_outcome(self) -> dict[str, Any]:
        """The fields of an :class:`core.tuning.results.records.Outcome` that say it."""
        return {
            "median_s": self.median_s,
            "low_s": self.low_s,
            "high_s": self.high_s,
            "samples": self.samples,
            "reason": self.method,
        }


@dataclass(frozen=True, slots=True)
class Reply:
    """What became of a job.

    Attributes:
        verdict: `ok`, what the candidate failed with, or `impossible`.
        reason: one line for people.
        details: JSON-able facts; of an impossible job, the error.
        compile_s: seconds of lowering and building, where it did not come from the cache.
        timings: of a measuring job, one per candidate.
        artifact: of a compile job that was asked to ship.
        environment: where a measuring job ran.
        restart: the process that answered may be spoilt: give it no other job.
    """

    verdict: ReplyVerdict
    reason: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    compile_s: float | None = None
    timings: tuple[Timing, ...] = ()
    artifact: Artifact | None = None
    environment: Environment | None = None
    restart: bool = False

    @classmethod
    def impossible(cls, error: TileHALError) -> Reply:
        """The answer when something other than the candidate is in the way."""
        return cls("impossible", error.message, {"error": error.to_json()})

    @property
    def error(self) -> TileHALError:
        """What is in the way, of an impossible job: as the class it was where the job ran, else as a TuningError."""
        said: Mapping[str, Any] = self.details.get("error", {})
        known = (v for v in vars(errors).values() if isinstance(v, type) and issubclass(v, TileHALError))
        kind = next((kind for kind in known if kind.code == said.get("code")), TuningError)
        return kind(said.get("message", self.reason), hint=said.get("hint", ""), details=dict(said.get("details", {})))
