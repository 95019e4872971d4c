"""How well the cost model orders measured candidates: its first choice against the best, shape by shape.

    python scripts/score_ranking.py tests/tiling/data/sweep-cuda-h200.json.gz [--cases gemm] [--list 5]

The rows are those of `scripts/gpu_sweep.py`. Every candidate that ran is predicted from its profile and the chip's
descriptor; nothing is compiled and no device is asked. Profiles are read off traces of the operators, the same way as
ranking does it, and kept in a file beside the sweep (`--profiles`), so that a change in the model is scored in a
second; `--trace` makes them anew after a change in an operator or in what a profile holds.
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import hashlib
import json
import math
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import core  # noqa: E402
import core.tiling.profile.records  # noqa: E402
from core.tiling.cost import predict  # noqa: E402
from core.tiling.prediction import Prediction  # noqa: E402
from core.tiling.profile.family import ProfileFamily  # noqa: E402
from core.tiling.profile.flat import flatten, structure_from_json, structure_to_json, unflatten  # noqa: E402

Row = dict[str, Any]


@dataclass(frozen=True)
class Score:
    """One shape.

    Attributes:
        first_over_best: measured time of the model's first choice over the best measured time.
        best_of_20: the same for the best of the model's first twenty, which a tuner would measure.
        correlation: Spearman's rank correlation of predicted and measured times.
        bias: geometric mean of predicted over measured time.
    """

    label: str
    rows: list[Row]
    predictions: list[Prediction]

    @property
    def order(self) -> list[int]:
        return sorted(range(len(self.rows)), key=lambda i: self.predictions[i].seconds)

    @property
    def best(self) -> float:
        return float(min(row["ms"] for row in self.rows))

    @property
    def first_over_best(self) -> float:
        return float(self.rows[self.order[0]]["ms"] / self.best)

    @property
    def best_of_20(self) -> float:
        return float(min(self.rows[i]["ms"] for i in self.order[:20]) / self.best)

    @property
    def correlation(self) -> float:
        return rank_correlation([p.seconds for p in self.predictions], [row["ms"] for row in self.rows])

    @property
    def bias(self) -> float:
        return geometric_mean(p.seconds * 1e3 / row["ms"] for p, row in zip(self.predictions, self.rows, strict=True))


def geometric_mean(values: Iterable[float]) -> float:
    """Of positive numbers."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else 1.0


def rank_correlation(a: list[float], b: list[float]) -> float:
    """Spearman's: 1 for the same order, -1 for the opposite, 0 for none; ties share a rank."""
    x, y = _ranks(a), _ranks(b)
    mean = (len(x) - 1) / 2
    covariance = sum((i - mean) * (j - mean) for i, j in zip(x, y, strict=True))
    spread = math.sqrt(sum((i - mean) ** 2 for i in x) * sum((j - mean) ** 2 for j in y))
    return covariance / spread if spread else 1.0


def _ranks(values: list[float]) -> list[float]:
    order = sorted(range(len(values)), key=lambda i: values[i])
    ranks = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and values[order[end]] == values[order[start]]:
            end += 1
        for position in range(start, end):
            ranks[order[position]] = (start + end - 1) / 2
        start = end
    return ranks


# ------------------------------------------------------------------------------------------------------------- reading


def label(row: Row) -> str:
    """The row's operator and shape."""
    return f"{row['operator']} " + " ".join(f"{name}={value}" for name, value in row["shape"].items())


def load(path: Path) -> dict[str, Any]:
    """A sweep: its header and `rows`."""
    opener: Any = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt") as file:
        data = json.load(file)
    return data if isinstance(data, dict) else {"rows": data}


def measured(sweep: Mapping[str, Any]) -> dict[str, list[Row]]:
    """The rows that ran, by shape."""
    groups: dict[str, list[Row]] = {}
    for row in sweep["rows"]:
        if row.get("status") == "ok":
            groups.setdefault(label(row), []).append(row)
    return groups


# ------------------------------------------------------------------------------------------------------------ profiles


def traced_profiles(rows: list[Row]) -> dict[str, Any]:
    """The profiles of one shape's rows as plain data: structures, and each row's structure and numbers."""
    from core.errors import TileHALError
    from core.program import Program
    from scripts.gpu_sweep import Case, factory_and_arguments

    factory, given = factory_and_arguments(Case(rows[0]["operator"], rows[0]["shape"]))
    arguments = factory.arguments((), given)
    # A parameter that came after the sweep stands at what leaves the kernel as it was.
    defaults = {
        name: parameter.choices[0] if parameter.choices else max(parameter.minimum or 0, int(parameter.role == "split"))
        for name, parameter in factory.parameters.items()
    }

    def trace(tiles: Mapping[str, Any]) -> Program:
        return Program(factory.trace(arguments, tiles).prim_func)

    tiles = [{**defaults, **row["tiles"]} for row in rows]
    family = ProfileFamily.fit(trace, factory.parameters, tiles)
    structures: list[Any] = []
    entries: list[Any] = []
    for own in tiles:
        try:
            flat = flatten(family.profile(own))
        except TileHALError:
            entries.append(None)
            continue
        if flat.structure not in structures:
            structures.append(flat.structure)
        entries.append([structures.index(flat.structure), list(flat.numbers)])
    return {"structures": [structure_to_json(s) for s in structures], "rows": entries}


def record_format() -> str:
    """Identifies what a profile's records hold: stored profiles of another format mean something else."""
    names = [
        [cls.__name__, *(field.name for field in dataclasses.fields(cls))]
        for cls in vars(core.tiling.profile.records).values()
        if dataclasses.is_dataclass(cls) and isinstance(cls, type)
    ]
    return hashlib.sha256(json.dumps(names).encode()).hexdigest()[:12]


def read_profiles(path: Path) -> dict[str, Any]:
    """The stored profiles by shape; none when there is no file, or one of another format."""
    data = load(path) if path.exists() else {}
    return dict(data["shapes"]) if data.get("format") == record_format() else {}


def profiles(path: Path, groups: Mapping[str, list[Row]], anew: bool = False) -> dict[str, Any]:
    """The stored profiles, completed by tracing what is missing."""
    stored = {} if anew else read_profiles(path)
    changed = False
    for name, rows in groups.items():
        if name not in stored or len(stored[name]["rows"]) != len(rows):
            began = time.perf_counter()
            stored[name] = traced_profiles(rows)
            changed = True
            print(f"traced {name}: {time.perf_counter() - began:.1f} s", file=sys.stderr, flush=True)
    if changed:
        with gzip.open(path, "wt", compresslevel=9) as file:
            json.dump({"format": record_format(), "shapes": stored}, file, separators=(",", ":"))
    return stored


def scores(groups: Mapping[str, list[Row]], stored: Mapping[str, Any], target: str) -> list[Score]:
    """Every shape's score."""
    chip = core.chip(target)
    found = []
    for name, rows in groups.items():
        structures = [structure_from_json(s) for s in stored[name]["structures"]]
        kept, predictions = [], []
        for row, entry in zip(rows, stored[name]["rows"], strict=True):
            if entry is None:
                continue
            kept.append(row)
            predictions.append(predict(unflatten(structures[entry[0]], tuple(entry[1])), chip))
        found.append(Score(name, kept, predictions))
    return found


# ------------------------------------------------------------------------------------------------------------ printing


def table(found: list[Score]) -> str:
    """One line per shape, then the geometric mean and the worst."""
    width = max((len(score.label) for score in found), default=5)
    lines = [f"{'shape':{width}}  rows  first/best  best20/best  rank corr.  predicted/measured  best ms"]
    for s in found:
        lines.append(
            f"{s.label:{width}}  {len(s.rows):4d}  {s.first_over_best:10.3f}  {s.best_of_20:11.3f}  "
            f"{s.correlation:10.3f}  {s.bias:18.2f}  {s.best:7.4f}"
        )
    firsts = [s.first_over_best for s in found]
    lines.append(
        f"geometric mean {geometric_mean(firsts):.3f}, worst {max(firsts, default=1):.3f}; "
        f"best of 20: geometric mean {geometric_mean(s.best_of_20 for s in found):.3f}"
    )
    return "\n".join(lines)


def details(score: Score, count: int) -> str:
    """The best measured rows and the model's first ones, with what the model thinks of each."""
    by_time = sorted(range(len(score.rows)), key=lambda i: score.rows[i]["ms"])
    lines = [score.label]
    for title, picked in (("  measured best", by_time[:count]), ("  model's first", score.order[:count])):
        lines.append(title)
        for i in picked:
            row, p = score.rows[i], score.predictions[i]
            terms = " ".join(f"{k}={v * 1e3:.4f}" for k, v in p.terms.items())
            tiles = " ".join(f"{k}={v}" for k, v in row["tiles"].items())
            lines.append(
                f"    {row['ms']:8.4f} ms, predicted {p.seconds * 1e3:8.4f} ({p.bound}) regs {row.get('registers')} "
                f"spill {row.get('spill')} x{p.blocks_per_unit} waves {p.waves} | {tiles} | {terms}"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sweep", type=Path, help="file of scripts/gpu_sweep.py")
    parser.add_argument("--profiles", type=Path, default=None, help="file of the profiles; default: beside the sweep")
    parser.add_argument("--trace", action="store_true", help="read the profiles anew")
    parser.add_argument(
        "--target", default=None, help="chip to predict for; default: the one that the sweep was measured on"
    )
    parser.add_argument("--cases", nargs="*", default=[], help="words of the shapes to score")
    parser.add_argument("--list", type=int, default=0, help="rows to show of each shape")
    arguments = parser.parse_args()
    sweep = load(arguments.sweep)
    groups = measured(sweep)
    path = arguments.profiles or arguments.sweep.with_name(arguments.sweep.name.replace("sweep", "profiles"))
    if path == arguments.sweep or path.suffix != ".gz":
        path = arguments.sweep.with_name(f"profiles-{arguments.sweep.stem}.gz")
    chosen = {n: r for n, r in groups.items() if not arguments.cases or any(word in n for word in arguments.cases)}
    if not chosen:
        parser.error(f"no shape has any of these words: {' '.join(arguments.cases)}")
    stored = profiles(path, groups, arguments.trace)
    header = sweep.get("environment") or sweep.get("header") or sweep
    found = scores(chosen, stored, arguments.target or header.get("target", "cuda:h200"))
    for score in found:
        if arguments.list:
            print(details(score, arguments.list))
    print(table(found))


if __name__ == "__main__":
    main()
