"""A ranking as files: short rows over a table of texts, so that thousands of verdicts load in milliseconds.

The refused candidates, usually most of them, lie in a file of their own, taken apart when somebody asks for them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, overload

from core.tiling.parameters import TileParameter
from core.tiling.prediction import Prediction
from core.tiling.ranking import Effort, Ranking
from core.tiling.rules import KernelShape
from core.tiling.verdict import Verdict

_RANKED = "ranked.json"
_REFUSED = "refused.json"


class UnreadableRanking(Exception):
    """A folder does not hold what :func:`write_ranking` writes; the cause says what is wrong with it."""


def write_ranking(ranking: Ranking, folder: Path) -> None:
    """Writes a ranking into a folder.

    Raises:
        OSError: it cannot be written.
    """
    names = list(ranking.shape.parameters)
    shape = ranking.shape
    head = {
        "kernel": ranking.kernel,
        "target": ranking.target,
        "shape": [shape.name, shape.operator, dict(shape.dimensions), list(shape.dtypes), shape.gathers],
        "reasons": dict(ranking.reasons),
        "replaced": dict(ranking.replaced),
        "notes": list(ranking.notes),
        "fingerprint": ranking.fingerprint,
        "refused": len(ranking.refused),
        "passed_over": _packed(ranking.passed_over, names),
        "verdicts": _packed(ranking.candidates, names),
    }
    (folder / _RANKED).write_text(json.dumps(head), encoding="utf-8")
    (folder / _REFUSED).write_text(json.dumps(_packed(ranking.refused, names)), encoding="utf-8")


def read_ranking(folder: Path, parameters: Mapping[str, TileParameter]) -> Ranking:
    """Reads what :func:`write_ranking` wrote for a factory with these parameters.

    Raises:
        UnreadableRanking: the files are not what it wrote.
    """
    try:
        return _read(folder, parameters)
    except (OSError, KeyError, IndexError, TypeError, ValueError) as error:
        raise UnreadableRanking(f"{folder}: {type(error).__name__}: {error}") from error


def _read(folder: Path, parameters: Mapping[str, TileParameter]) -> Ranking:
    head = json.loads((folder / _RANKED).read_bytes())
    name, operator, dimensions, dtypes, gathers = head["shape"]
    names = list(parameters)
    return Ranking(
        kernel=head["kernel"],
        target=head["target"],
        shape=KernelShape(name, operator, dimensions, tuple(dtypes), parameters, gathers=gathers),
        candidates=tuple(_unpacked(head["verdicts"], names)),
        refused=_Refused((folder / _REFUSED).read_bytes(), names, head["refused"]),
        passed_over=tuple(_unpacked(head["passed_over"], names)),
        reasons=head["reasons"],
        replaced=head["replaced"],
        notes=tuple(head["notes"]),
        fingerprint=head["fingerprint"],
        effort=Effort(recalled="disk"),
    )


class _Refused(Sequence[Verdict]):
    """The refused verdicts in a file, taken apart when the first of them is asked for; their number is known before."""

    def __init__(self, content: bytes, names: list[str], count: int) -> None:
        self._content = content
        self._names = names
        self._count = count
        self._verdicts: list[Verdict] | None = None

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Verdict: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Verdict]: ...
    def __getitem__(self, index: int | slice) -> Verdict | Sequence[Verdict]:
        if self._verdicts is None:
            self._verdicts = _unpacked(json.loads(self._content), self._names)
        return self._verdicts[index]


def _packed(verdicts: Iterable[Verdict], names: list[str]) -> dict[str, Any]:
    """Rows of numbers; texts, which repeat themselves, are places in a table. None stands for a value not there."""
    texts: dict[str, int] = {}

    def place(text: str) -> int:
        return texts.setdefault(text, len(texts))

    rows = []
    for verdict in verdicts:
        prediction = None
        if verdict.prediction is not None:
            prediction = asdict(verdict.prediction)
            prediction["assumptions"] = [place(text) for text in verdict.prediction.assumptions]
        rows.append(
            [
                [verdict.tiles.get(name) for name in names],
                [place(verdict.chosen_by.get(name, "")) for name in names],
                verdict.status,
                place(verdict.reason),
                [place(rule) for rule in verdict.rules],
                verdict.weight,
                verdict.preferred,
                verdict.excess_bytes,
                prediction,
            ]
        )
    return {"texts": list(texts), "rows": rows}


def _unpacked(packed: Mapping[str, Any], names: list[str]) -> list[Verdict]:
    texts = packed["texts"]
    found = []
    for values, choosers, status, reason, rules, weight, preferred, excess, predicted in packed["rows"]:
        tiles = {name: value for name, value in zip(names, values, strict=True) if value is not None}
        chosen_by = {name: texts[who] for name, who in zip(names, choosers, strict=True) if name in tiles}
        prediction = None
        if predicted is not None:
            assumptions = tuple(texts[text] for text in predicted.pop("assumptions"))
            prediction = Prediction(**predicted, assumptions=assumptions)
        found.append(
            Verdict(
                tiles,
                chosen_by,
                status,
                texts[reason],
                prediction,
                tuple(texts[rule] for rule in rules),
                weight,
                preferred,
                excess,
            )
        )
    return found
