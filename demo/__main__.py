"""`make demo`, `python -m demo`: compile three kernels for every target, run them here, compare with torch."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from itertools import product
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from core.target import TargetInfo


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    parser.add_argument("--target", action="append", help="a target to compile for; may be repeated")
    parser.add_argument("--all", action="store_true", help="every chip, instead of one per vendor")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    return parser.parse_args()


def main() -> int:
    """Returns 0 when everything compiled, ran where it could, and agreed with torch."""
    given = options()
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with progress:
        task = progress.add_task("loading torch and tilelang", total=None)
        # Here, so that the bar is up while they load.
        import core
        from demo.cases import cases
        from demo.measure import measure

        known = {info.target: info for info in core.targets()}
        jobs = list(product(cases(), chosen(given, known.values())))
        progress.update(task, total=len(jobs))
        rows = []
        for case, target in jobs:
            progress.update(task, description=f"{case.name} for {target}")
            info = known.get(target)
            rows.append(
                measure(
                    case,
                    target,
                    runs_here=info is not None and bool(info.run),
                    simulates_here=info is not None and bool(info.simulate),
                )
            )
            progress.advance(task)
    from demo.table import summary, table

    missing = left_out(known.values())
    if given.json:
        print(json.dumps({"rows": [row.to_json() for row in rows], "left_out": missing}, indent=2))
    else:
        console = Console()
        # Piped output has no width of its own, and 80 columns fold every cell.
        console = console if console.is_terminal else Console(width=120)
        console.print(table(rows))
        console.print(summary(rows, missing), markup=False, highlight=False)
    # Asked for everything, a demo that ran nothing has shown nothing.
    ran = bool(given.target) or any(row.error is not None for row in rows)
    return 0 if ran and all(row.passed for row in rows) else 1


def chosen(given: argparse.Namespace, known: Iterable[TargetInfo]) -> list[str]:
    """The chips to compile for: those asked for, every one, or of each vendor the one here, else its default."""
    from core.target import resolve

    if given.target:
        return [resolve(target).chip.target for target in given.target]
    able = [info.target for info in known if info.compile]
    return able if given.all else [resolve(vendor).chip.target for vendor in dict.fromkeys(map(vendor_of, able))]


def left_out(known: Iterable[TargetInfo]) -> dict[str, str]:
    """Why, by vendor, nothing is compiled for it."""
    infos = list(known)
    able = {vendor_of(info.target) for info in infos if info.compile}
    reasons: dict[str, str] = {}
    for info in infos:
        if vendor_of(info.target) not in able:
            # The default chip comes first and speaks for its vendor.
            reasons.setdefault(vendor_of(info.target), info.compile.reason)
    return reasons


def vendor_of(target: str) -> str:
    """`cuda` of `cuda:h200`."""
    return target.partition(":")[0]


if __name__ == "__main__":
    raise SystemExit(main())
