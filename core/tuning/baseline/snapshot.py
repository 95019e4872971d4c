"""A snapshot: rows of figures and where they were taken, as a file that lives well in git.

The file is JSON with one row per line, sorted by what the row measures, figures rounded to what they are worth, and
dates and clocks in the header only, so that a diff shows which kernels changed and nothing else.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from core.errors import BaselineError
from core.tuning.baseline.suite import Case
from core.tuning.measure.statistics import median, t_quantile

FORMAT = "tilehal-baseline"
VERSION = 1

L2 = Literal["cold", "warm"]
STATES: tuple[L2, L2] = ("cold", "warm")
#: Digits of a pass's time: half of the last one is 0.05% at most, which no machine repeats.
PASS_DIGITS = 4
#: Of the interval that is shown beside a row's time.
_SHOWN_CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Timing:
    """The time of one call in several passes, each in a process of its own with tensors of its own.

    Attributes:
        passes_s: each pass's median, seconds.
        method: how it was taken, see :class:`core.tuning.measure.Measurement`.
    """

    passes_s: tuple[float, ...]
    method: str

    @classmethod
    def of(cls, passes_s: Sequence[float], method: str) -> Timing:
        """From measured medians, rounded as a file keeps them, so that reading it back changes nothing."""
        return cls(tuple(rounded(value * 1e6, PASS_DIGITS) / 1e6 for value in passes_s), method)

    @property
    def median_s(self) -> float:
        """The median of the passes."""
        return median(self.passes_s)

    @property
    def interval_s(self) -> tuple[float, float]:
        """The interval that holds the kernel's time with 95%, from how the passes differ (Student's t on logarithms).

        With a single pass it has no width, because nothing is known of how passes differ.
        """
        count = len(self.passes_s)
        if count < 2:
            return self.median_s, self.median_s
        logs = [math.log(value) for value in self.passes_s]
        middle = math.fsum(logs) / count
        deviation = math.sqrt(math.fsum((value - middle) ** 2 for value in logs) / (count - 1))
        half = t_quantile((1 - _SHOWN_CONFIDENCE) / 2, count - 1) * deviation / math.sqrt(count)
        return math.exp(middle - half), math.exp(middle + half)

    def to_json(self) -> dict[str, Any]:
        """As JSON-able data, in microseconds; all but the passes is for people and computed again when read."""
        low, high = self.interval_s
        half = (high - low) / 2
        return {
            "median_us": to_significance(self.median_s * 1e6, half * 1e6),
            "low_us": to_significance(low * 1e6, half * 1e6),
            "high_us": to_significance(high * 1e6, half * 1e6),
            "passes_us": [rounded(value * 1e6, PASS_DIGITS) for value in self.passes_s],
            "method": self.method,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Timing:
        """The inverse of :meth:`to_json`."""
        return cls(tuple(value / 1e6 for value in data["passes_us"]), data["method"])


@dataclass(frozen=True, slots=True)
class Row:
    """What was found for one case.

    Attributes:
        case: what was measured.
        status: `ok`; `wrong` when the output was not the reference's; `failed` when it did not compile or run.
        reason: why, when it is not `ok`.
        cold, warm: times with cold and warm caches.
        flops: operations of a call; None when unknown.
        bytes_moved: the least traffic of a call.
        error: the root mean square of the difference from the reference over that of the reference, the largest of all
            outputs; None without a reference.
        compile_s: seconds to compile and build with nothing cached.
        memory: bytes a block uses per memory space of the chip; `registers_per_thread`, `spill_store_bytes`,
            `workspace_bytes` and `tensor_bytes` (of all arguments) where known.
        tiles: tile parameters used.
    """

    case: Case
    status: Literal["ok", "wrong", "failed"] = "ok"
    reason: str = ""
    cold: Timing | None = None
    warm: Timing | None = None
    flops: float | None = None
    bytes_moved: int | None = None
    error: float | None = None
    compile_s: float | None = None
    memory: Mapping[str, int] = field(default_factory=dict)
    tiles: Mapping[str, Any] = field(default_factory=dict)

    def timing(self, l2: L2) -> Timing | None:
        """The times with caches in this state."""
        return self.cold if l2 == "cold" else self.warm

    def tflops(self, l2: L2 = "cold") -> float | None:
        """10¹² operations per second at the median."""
        timing = self.timing(l2)
        return self.flops / timing.median_s / 1e12 if self.flops and timing else None

    def gb_per_s(self, l2: L2 = "cold") -> float | None:
        """10⁹ bytes per second of the least traffic, at the median."""
        timing = self.timing(l2)
        return self.bytes_moved / timing.median_s / 1e9 if self.bytes_moved and timing else None

    def to_json(self) -> dict[str, Any]:
        """As JSON-able data, without what is unknown."""
        tflops, gb_per_s = self.tflops(), self.gb_per_s()
        data = {
            **self.case.to_json(),
            "status": self.status,
            "reason": self.reason,
            "cold": self.cold.to_json() if self.cold else None,
            "warm": self.warm.to_json() if self.warm else None,
            "tflops": rounded(tflops, 3) if tflops is not None else None,
            "gb_per_s": rounded(gb_per_s, 3) if gb_per_s is not None else None,
            "flops": rounded(self.flops, 15) if self.flops is not None else None,
            "bytes_moved": self.bytes_moved,
            "error": rounded(self.error, 2) if self.error is not None else None,
            "compile_s": rounded(self.compile_s, 2) if self.compile_s is not None else None,
            "memory": dict(sorted(self.memory.items())) or None,
            "tiles": dict(sorted(self.tiles.items())) or None,
        }
        return {name: value for name, value in data.items() if value is not None and value != ""}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Row:
        """The inverse of :meth:`to_json`."""
        plain = ("status", "reason", "flops", "bytes_moved", "error", "compile_s", "memory", "tiles")
        return cls(
            case=Case.from_json(data),
            cold=Timing.from_json(data["cold"]) if "cold" in data else None,
            warm=Timing.from_json(data["warm"]) if "warm" in data else None,
            **{name: data[name] for name in plain if name in data},
        )


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A set of rows and where they were taken.

    Attributes:
        environment: `host` (CPU, system, versions, date), `settings` (passes, times), and `targets`: by target, its
            device, driver, toolchain, plugins and clocks.
        rows: sorted by case.
        yardsticks: by target and name, the times of work that is no kernel of ours, in the same passes: they tell a
            slower machine from a slower kernel.
    """

    environment: Mapping[str, Any]
    rows: tuple[Row, ...]
    yardsticks: Mapping[str, Mapping[str, Timing]] = field(default_factory=dict)

    @property
    def targets(self) -> tuple[str, ...]:
        """The chips that were measured."""
        return tuple(sorted({row.case.target for row in self.rows}))

    def device(self, target: str) -> str:
        """What was measured as this target, as its detector said it; empty when that is not recorded."""
        return str(self.environment.get("targets", {}).get(target, {}).get("device", ""))

    def to_text(self) -> str:
        """The file's content."""
        yardsticks = {
            target: {name: timing.to_json() for name, timing in sorted(of_target.items())}
            for target, of_target in sorted(self.yardsticks.items())
        }
        rows = sorted(self.rows, key=lambda row: row.case.key)
        return "\n".join(
            [
                "{",
                f'"format": "{FORMAT}",',
                f'"version": {VERSION},',
                f'"environment": {_lines(self.environment)},',
                f'"yardsticks": {_lines(yardsticks)},',
                '"rows": [',
                ",\n".join(_line(row.to_json()) for row in rows),
                "]",
                "}\n",
            ]
        )

    def save(self, path: Path) -> None:
        """Writes the file whole, or not at all.

        Raises:
            TileHALError: it cannot be written.
        """
        from core.cli._output import write_file

        write_file(path, self.to_text(), "snapshot")

    @classmethod
    def from_text(cls, text: str, name: str = "the snapshot") -> Snapshot:
        """The inverse of :meth:`to_text`. Raises BaselineError when it is something else."""
        try:
            data = json.loads(text)
            if data["format"] != FORMAT:
                raise ValueError(f"its format is {data['format']!r}")
            if data["version"] != VERSION:
                raise BaselineError(
                    f"{name} is version {data['version']} of the format, this is version {VERSION}",
                    hint="record it again, or compare it with the TileHAL that wrote it",
                )
            return cls(
                environment=data["environment"],
                rows=tuple(Row.from_json(row) for row in data["rows"]),
                yardsticks={
                    target: {key: Timing.from_json(timing) for key, timing in of_target.items()}
                    for target, of_target in data["yardsticks"].items()
                },
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BaselineError(
                f"{name} is no snapshot: {type(error).__name__}: {error}", hint="`tilehal baseline record` writes one"
            ) from error

    @classmethod
    def read(cls, path: Path) -> Snapshot:
        """Reads a file. Raises BaselineError when it cannot be read or is no snapshot."""
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BaselineError(
                f"{path} cannot be read: {getattr(error, 'strerror', None) or error}",
                hint="`tilehal baseline record -o FILE` writes one",
            ) from error
        return cls.from_text(text, str(path))


def rounded(value: float, digits: int) -> float:
    """Rounded to so many significant digits; a whole number where nothing is lost."""
    if value == 0 or not math.isfinite(value):
        return value
    result = round(value, digits - 1 - math.floor(math.log10(abs(value))))
    return int(result) if float(result).is_integer() and abs(result) < 1e15 else result


def to_significance(value: float, uncertainty: float) -> float:
    """Rounded to a tenth of its uncertainty, within two and five digits."""
    if value == 0 or uncertainty <= 0:
        return rounded(value, PASS_DIGITS)
    digits = math.floor(math.log10(abs(value))) - math.floor(math.log10(uncertainty)) + 2
    return rounded(value, max(2, min(5, digits)))


def _line(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False, allow_nan=False)


def _lines(data: Mapping[str, Any]) -> str:
    """A mapping of mappings with one entry per line."""
    entries: Sequence[str] = [f"  {_line(name)}: {_entries(value)}" for name, value in data.items()]
    return "{\n" + ",\n".join(entries) + "\n}" if entries else "{}"


def _entries(value: Any) -> str:
    if not isinstance(value, Mapping) or not value:
        return _line(value)
    return "{\n" + ",\n".join(f"    {_line(name)}: {_line(item)}" for name, item in value.items()) + "\n  }"
