"""Tuned results as JSON: what a team keeps in git, hands on, or ships inside a plugin package.

One outcome a line, in a fixed order, so that a new measurement is a small change in a diff. A file that does not read
is refused with the place that is wrong; nothing of it is taken.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NoReturn

from core.errors import TuningError
from core.tuning.environment import Environment
from core.tuning.results.records import STATUSES, Key, Outcome, Result, in_order

FORMAT = "tilehal-tuned"
#: Changes when a reader of the version before would misunderstand a file.
SCHEMA = 1

_NUMBERS = ("median_s", "low_s", "high_s", "compile_s", "predicted_s")
_UNSAID = {"samples": 0, "reason": "", "details": {}, "source": ""}


def to_text(results: Iterable[Result], *, fastest: int | None = None) -> str:
    """Results as the text of a file.

    Args:
        fastest: only so many of the fastest outcomes of each result, and no failures: what a shipped table needs.
    """
    kept = [result if fastest is None else replace(result, outcomes=result.measured[:fastest]) for result in results]
    kept = sorted((result for result in kept if result.outcomes), key=_order)
    environments = {result.key.environment.digest: result.key.environment.to_json() for result in kept}
    rows = [_line(dict(sorted(environments.items())))] if environments else ["{}"]
    body = ",\n".join(_result_text(result) for result in kept)
    return (
        f'{{"format": {_line(FORMAT)}, "schema": {SCHEMA},\n"environments": {rows[0]},\n"results": [{body and chr(10)}'
        f"{body}\n]}}\n"
    )


def from_text(text: str, name: str) -> list[Result]:
    """The results in a file's text; `name` is what it is called in errors, and where the outcomes come from.

    Raises:
        TuningError: it is not such a file, or of another schema; says where.
    """
    reader = _Reader(name)
    try:
        data = json.loads(text)
    except ValueError as error:
        reader.refuse("the file", f"it is not JSON: {error}")
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        reader.refuse("the file", f'it has no "format": "{FORMAT}"')
    if data.get("schema") != SCHEMA:
        reader.refuse("schema", f"it is {data.get('schema')!r}, this TileHAL reads {SCHEMA}")
    return reader.results(data)


def read_file(path: Path) -> list[Result]:
    """The results in a file. Raises TuningError: it cannot be read, or is none."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TuningError(
            f"{path} cannot be read: {getattr(error, 'strerror', None) or error}",
            hint="name a file that `tilehal tune --export` wrote",
        ) from error
    return from_text(text, path.name)


class _Reader:
    def __init__(self, name: str) -> None:
        self.name = name

    def refuse(self, place: str, why: str) -> NoReturn:
        raise TuningError(
            f"{self.name} holds no tuned results that can be used: {place}: {why}",
            hint="export it again with `tilehal tune --export`",
            details={"file": self.name, "place": place},
        )

    def results(self, data: Mapping[str, Any]) -> list[Result]:
        environments: dict[str, Environment] = {}
        for digest, facts in self._mapping(data, "environments", "the file").items():
            try:
                environments[digest] = Environment.from_json(facts)
            except (KeyError, TypeError) as error:
                self.refuse(f"environments.{digest}", f"{error}")
        rows = data.get("results")
        if not isinstance(rows, list):
            self.refuse("results", "it is no list")
        return [self._result(row, f"results[{index}]", environments) for index, row in enumerate(rows)]

    def _result(self, row: Any, place: str, environments: Mapping[str, Environment]) -> Result:
        if not isinstance(row, dict):
            self.refuse(place, "it is no object")
        environment = environments.get(self._text(row, "environment", place))
        if environment is None:
            self.refuse(f"{place}.environment", f"there is no environment {row['environment']!r}")
        options = self._mapping(row, "options", place) if row.get("options") else {}
        key = Key(
            kernel=self._text(row, "kernel", place),
            fingerprint=self._text(row, "fingerprint", place),
            arguments=_canonical(self._mapping(row, "arguments", place)),
            dtypes=self._texts(row, "dtypes", place),
            chip=self._text(row, "chip", place),
            environment=environment,
            options=_canonical(options) if options else "",
        )
        outcomes = row.get("outcomes")
        if not isinstance(outcomes, list):
            self.refuse(f"{place}.outcomes", "it is no list")
        read = [self._outcome(item, f"{place}.outcomes[{index}]") for index, item in enumerate(outcomes)]
        return Result(key, in_order(read), self._texts(row, "structural", place))

    def _outcome(self, row: Any, place: str) -> Outcome:
        if not isinstance(row, dict):
            self.refuse(place, "it is no object")
        tiles = self._mapping(row, "tiles", place)
        for name, value in tiles.items():
            if isinstance(value, bool) or not isinstance(value, (int, str)):
                self.refuse(f"{place}.tiles.{name}", f"{value!r} is no whole number and no name")
        status = row.get("status", "ok")
        if status not in STATUSES:
            self.refuse(f"{place}.status", f"{status!r} is none of {', '.join(STATUSES)}")
        numbers = {name: row.get(name) for name in _NUMBERS}
        for name, value in numbers.items():
            if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0):
                self.refuse(f"{place}.{name}", f"{value!r} is no time in seconds")
        if status == "ok" and numbers["median_s"] is None:
            self.refuse(f"{place}.median_s", "a measured candidate has one")
        return Outcome(
            tiles=tiles,
            status=status,
            samples=int(row.get("samples", 0)),
            reason=str(row.get("reason", "")),
            details=dict(row.get("details") or {}),
            place=row.get("place"),
            measured_at=float(row.get("measured_at", 0.0)),
            source=self.name,
            **numbers,
        )

    def _text(self, row: Mapping[str, Any], name: str, place: str) -> str:
        value = row.get(name)
        if not isinstance(value, str):
            self.refuse(f"{place}.{name}", "it is not there" if value is None else f"{value!r} is no text")
        return value

    def _texts(self, row: Mapping[str, Any], name: str, place: str) -> tuple[str, ...]:
        value = row.get(name, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.refuse(f"{place}.{name}", f"{value!r} is no list of texts")
        return tuple(value)

    def _mapping(self, row: Mapping[str, Any], name: str, place: str) -> dict[str, Any]:
        value = row.get(name)
        if not isinstance(value, dict):
            self.refuse(f"{place}.{name}", "it is not there" if value is None else f"{value!r} is no object")
        return value


def _order(result: Result) -> tuple[str, ...]:
    key = result.key
    return (key.kernel, key.chip, key.fingerprint, key.options, key.arguments, key.environment.digest)


def _result_text(result: Result) -> str:
    key = result.key
    heading = {
        "kernel": key.kernel,
        "chip": key.chip,
        "arguments": key.values,
        "dtypes": list(key.dtypes),
        "options": json.loads(key.options) if key.options else {},
        "structural": list(result.structural),
        "fingerprint": key.fingerprint,
        "environment": key.environment.digest,
    }
    outcomes = ",\n".join(f"  {_line(_outcome_row(outcome))}" for outcome in result.outcomes)
    return f'{_line(heading)[:-1]}, "outcomes": [\n{outcomes}\n]}}'


def _outcome_row(outcome: Outcome) -> dict[str, Any]:
    row = asdict(outcome)
    row["tiles"] = dict(sorted(outcome.tiles.items()))
    return {name: value for name, value in row.items() if value is not None and _UNSAID.get(name, ...) != value}


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _canonical(value: Mapping[str, Any]) -> str:
    # As `core.compiler.keys.canonical` writes it: what was exported is already in its plain form.
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
