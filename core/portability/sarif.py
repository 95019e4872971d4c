"""A report as SARIF 2.1.0, which editors and code hosts show beside the lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from core.errors import Location
from core.portability.model import RULES, Remark, Report

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def to_sarif(report: Report) -> dict[str, Any]:
    """One run with one result for each thing said, whichever chips it is said of.

    Files below the current folder are relative URIs, as code hosts want them. A chip a line is native on has nothing to
    say about it and adds no result.
    """
    import core

    rules = list(RULES)
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "TileHAL",
                        "version": core.__version__,
                        "rules": [{"id": rule, "shortDescription": {"text": text}} for rule, text in RULES.items()],
                    }
                },
                "results": [
                    _result(remark, location, targets, rules.index(remark.rule))
                    for (remark, location), targets in _collected(report).items()
                ],
            }
        ],
    }


def _collected(report: Report) -> dict[tuple[Remark, Location], list[str]]:
    """Each remark once, with the targets it is made for."""
    collected: dict[tuple[Remark, Location], list[str]] = {}
    for chip in report.chips:
        for line in chip.lines:
            for remark in line.remarks:
                collected.setdefault((remark, line.location), []).append(chip.target)
    return collected


def _result(remark: Remark, location: Location, targets: list[str], rule_index: int) -> dict[str, Any]:
    text = f"{', '.join(targets)}: {remark.message}" + (f"\nTo change: {remark.hint}" if remark.hint else "")
    return {
        "ruleId": remark.rule,
        "ruleIndex": rule_index,
        "level": remark.level,
        "message": {"text": text},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": _uri(location.file)},
                    "region": {"startLine": max(1, location.line)},
                }
            }
        ],
        "properties": {"targets": targets, "status": remark.status.value},
    }


def _uri(file: str) -> str:
    from urllib.parse import quote

    path = Path(file).resolve()
    try:
        return quote(path.relative_to(Path.cwd()).as_posix())
    except ValueError:
        return path.as_uri()
