"""What the operators are held to, and whether a benchmark's document shows it.

Ratios are times of the alternative over ours: 1.05 is 5% faster. A goal is judged with cold caches, where nothing of a
call's tensors is in the caches before it; with warm ones the figure is told as well. What was not measured is not met.

The goals are for GPUs: a document of the CPU, whose library products are not what anybody compares with, has none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from core.bench.contenders import (
    COPY,
    CUBLAS,
    CUDNN,
    FLASHMLA,
    RAW,
    RULE,
    TRITON,
    TRITON_OVERLAPPED,
    TUNED,
    title,
)
from core.bench.launch import ALLOCATED, PASSED

Row = Mapping[str, Any]

#: A row where raw tilelang is shown to be faster by more than this counts as device time that we add.
SAME_TIME = 0.01
_MIB = 2**20


@dataclass(frozen=True, slots=True)
class Goal:
    """One goal.

    Attributes:
        text: what is held to.
        verdict: `met`, `not met` or `not measured`; `no goal` of a figure that is told beside the goals, not judged.
        value: what came out, in words, with cold caches.
        warm: the same with warm caches; empty where that says nothing.
        short: rows that are below it, each with its figure.
    """

    text: str
    verdict: Literal["met", "not met", "not measured", "no goal"]
    value: str = ""
    warm: str = ""
    short: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As JSON-able data."""
        return {**asdict(self), "short": list(self.short)}


def judge(document: Mapping[str, Any]) -> list[Goal]:
    """Every goal of the operators that a document has rows of, in order; once more for tuned tiles where there are."""
    rows: Sequence[Row] = document["rows"]
    if document["environment"]["device_type"] == "cpu":
        return []
    found = _of_operators(rows)
    if any("cold" in row["contenders"].get(TUNED, {}) for row in rows):
        found += [replace(goal, text=f"tuned, {goal.text}") for goal in _of_operators([_as_tuned(row) for row in rows])]
    if any(RAW in row["contenders"] for row in rows):
        found.append(_no_device_time_added(rows))
    if document.get("launch"):
        found += [_host_time(document["launch"], PASSED, 4.0), _host_time(document["launch"], ALLOCATED, 7.0)]
    return found


def _of_operators(rows: Sequence[Row]) -> list[Goal]:
    """The goals that are about speed."""
    present = {row["operator"] for row in rows}
    found: list[Goal] = []
    if "gemm" in present:
        found.append(_mean(rows, "gemm", CUBLAS, 1.00, 0.93, "products"))
    for operator in ("softmax", "layernorm", "rmsnorm"):
        if operator in present:
            found.append(_each(rows, operator, TRITON, 1.00, lambda row: True, f"{operator}: every shape"))
            found += _beside(rows, operator, TRITON_OVERLAPPED)
            what = f"{operator}: every shape that moves 64 MiB or more"
            found.append(_each(rows, operator, COPY, 0.90, lambda row: row["bytes_moved"] >= 64 * _MIB, what))
    if "attention" in present:
        found.append(_mean(rows, "attention", CUDNN, 1.00, 0.95, "attention forward"))
    if "mla" in present:
        found += _decoding([row for row in rows if row["operator"] == "mla"])
    return found


def _as_tuned(row: Row) -> Row:
    """The row as a user has it who has tuned: the tuned tiles where there are some, else the rule's."""
    if "cold" not in row["contenders"].get(TUNED, {}):
        return row
    return {
        **row,
        "contenders": {**row["contenders"], RULE: row["contenders"][TUNED]},
        "ratios": {RULE: row["ratios"][TUNED]},
    }


def ratio(row: Row, other: str, l2: str = "cold", ours: str = RULE) -> float | None:
    """How many times as fast ours is in a row; None where one of the two was not measured."""
    found = row["ratios"].get(ours, {}).get(other, {}).get(l2)
    return float(found["value"]) if found is not None else None


def _ratios(rows: Sequence[Row], other: str, l2: str = "cold") -> list[float]:
    """Of the rows in which both were measured."""
    return [found for row in rows if (found := ratio(row, other, l2)) is not None]


def _below(rows: Sequence[Row], other: str, least: float) -> list[str]:
    """The rows under a limit with cold caches, each with its figure."""
    return [_told(row, other) for row in rows if (found := ratio(row, other)) is not None and found < least]


def geometric_mean(values: Iterable[float]) -> float:
    """Of at least one positive value."""
    logs = [math.log(value) for value in values]
    return math.exp(math.fsum(logs) / len(logs))


def _mean(rows: Sequence[Row], operator: str, other: str, mean: float, least: float, what: str) -> Goal:
    """The geometric mean over all rows, and no row below a limit."""
    chosen = [row for row in rows if row["operator"] == operator]
    text = f"{what}: geometric mean at least {mean:.2f}x {title(other)}, none under {least:.2f}x"
    cold, warm = _ratios(chosen, other), _ratios(chosen, other, "warm")
    missing = _missing(chosen, other)
    if not cold:
        return Goal(text, "not measured", short=missing)
    below = _below(chosen, other, least)
    met = geometric_mean(cold) >= mean and not below and not missing
    return Goal(text, "met" if met else "not met", _spread(cold), _spread(warm), (*below, *missing))


def _spread(values: Sequence[float]) -> str:
    """Geometric mean and least of ratios, in words; empty where there are none."""
    return f"{geometric_mean(values):.3f}x over {_counted(values)}, least {min(values):.3f}x" if values else ""


def _each(
    rows: Sequence[Row], operator: str, other: str, least: float, counts: Callable[[Row], bool], what: str
) -> Goal:
    """Every row at a limit or above."""
    chosen = [row for row in rows if row["operator"] == operator and counts(row)]
    beside = "a copy's bandwidth" if other == COPY else title(other)
    text = f"{what} at least {least:.2f}x {beside}"
    missing = _missing(chosen, other)
    cold, warm = _ratios(chosen, other), _ratios(chosen, other, "warm")
    if not cold:
        return Goal(text, "not measured", short=missing)
    below = _below(chosen, other, least)
    return Goal(
        text,
        "met" if not below and not missing else "not met",
        f"least {min(cold):.3f}x of {_counted(cold)}",
        f"least {min(warm):.3f}x" if warm else "",
        (*below, *missing),
    )


def _beside(rows: Sequence[Row], operator: str, other: str) -> list[Goal]:
    """A figure without a goal: how ours stands beside another, over the rows that have both; none where none has."""
    chosen = [row for row in rows if row["operator"] == operator]
    cold, warm = _ratios(chosen, other), _ratios(chosen, other, "warm")
    if not cold:
        return []
    lacking = f"; {len(chosen) - len(cold)} not measured" if len(cold) < len(chosen) else ""
    text = f"{operator}: geometric mean beside {title(other)}"
    return [Goal(text, "no goal", _spread(cold) + lacking, _spread(warm))]


def _decoding(rows: Sequence[Row]) -> list[Goal]:
    """Few heads are held to the bandwidth; many to FlashMLA where it is installed, else to the compute bound."""
    few = [row for row in rows if row["shape"]["M"] <= 64]
    many = [row for row in rows if row["shape"]["M"] > 64]
    found = []
    if few:
        found.append(_share(few, "memory_s", 0.85, "latent decode, 64 heads or fewer: at least 0.85 of the bandwidth"))
    if many:
        rivalled = [row for row in many if ratio(row, FLASHMLA) is not None]
        if rivalled:
            found.append(_each(many, "mla", FLASHMLA, 0.95, lambda row: True, "latent decode, 128 heads:"))
        else:
            text = "latent decode, 128 heads: at least 0.60 of the compute bound (FlashMLA was not measured)"
            found.append(_share(many, "compute_s", 0.60, text))
    return found


def _share(rows: Sequence[Row], bound: str, least: float, text: str) -> Goal:
    """Every row at a share of one of its bounds."""
    shares: dict[str, dict[str, float]] = {"cold": {}, "warm": {}}
    for row in rows:
        for l2 in ("cold", "warm"):
            timed = row["contenders"].get(RULE, {}).get(l2)
            if timed is not None:
                shares[l2][row["label"]] = row["bound"][bound] / timed["median_s"]
    missing = _missing(rows)
    if not shares["cold"]:
        return Goal(text, "not measured", short=missing)
    below = [f"{label}: {share:.3f}" for label, share in shares["cold"].items() if share < least]
    return Goal(
        text,
        "met" if not below and not missing else "not met",
        f"least {min(shares['cold'].values()):.3f}",
        f"least {min(shares['warm'].values()):.3f}" if shares["warm"] else "",
        (*below, *missing),
    )


def _no_device_time_added(rows: Sequence[Row]) -> Goal:
    """No row where the same kernel through raw tilelang is shown to be faster."""
    text = f"device time of the same kernel through raw tilelang: none shown to be more than {SAME_TIME:.0%} faster"
    found = [
        (row, row["ratios"][RULE][RAW]["cold"], row["ratios"][RULE][RAW]["warm"])
        for row in rows
        if ratio(row, RAW) is not None
    ]
    asked = [row for row in rows if RAW in row["contenders"]]
    missing = _missing(asked, RAW)
    if not found:
        return Goal(text, "not measured", short=missing)
    slower = [_told(row, RAW) for row, cold, _ in found if cold["high"] < 1 - SAME_TIME]
    cold_mean, warm_mean = (geometric_mean(one[place]["value"] for one in found) for place in (1, 2))
    return Goal(
        text,
        "not met" if slower or missing else "met",
        f"geometric mean {cold_mean:.4f}x over {_counted(found)}",
        f"{warm_mean:.4f}x",
        (*slower, *missing),
    )


def _host_time(launch: Mapping[str, Any], name: str, most_us: float) -> Goal:
    text = f"host time per launch, {name.removeprefix('tilehal, ')}: at most {most_us:g} us median"
    found = launch.get("host_time_per_call", {}).get(name)
    if found is None:
        return Goal(text, "not measured", short=(launch.get("reason", "it is not in the document"),))
    said = f"{found['median_us']:.2f} us ({found['low_us']:.2f} to {found['high_us']:.2f})"
    return Goal(text, "met" if found["median_us"] <= most_us else "not met", said)


def _counted(rows: Sequence[object]) -> str:
    return f"{len(rows)} row{'' if len(rows) == 1 else 's'}"


def _told(row: Row, other: str) -> str:
    one = row["ratios"][RULE][other]["cold"]
    return f"{row['name']}: {one['value']:.3f}x ({one['low']:.3f} to {one['high']:.3f})"


def _missing(rows: Sequence[Row], other: str = RULE) -> tuple[str, ...]:
    """Rows in which ours or the other was not measured, each with why."""
    found = []
    for row in rows:
        lacking = [name for name in (RULE, other) if "cold" not in row["contenders"].get(name, {})]
        if lacking:
            entry = row["contenders"].get(lacking[0], {})
            why = entry.get("reason") or row["reason"] or "it did not take part"
            found.append(f"{row['name']}: {title(lacking[0])} not measured: {why}")
    return tuple(found)
