"""`tilehal tile FILE:FUNCTION`: which tiles a chip's rules consider for a kernel, in what order, and why."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from core.cli._durations import time_text
from core.cli._kernels import Dynamic, dynamic_arguments, load_kernel, parse_dynamic, parse_parameters
from core.cli._output import console, print_json
from core.errors import KernelError
from core.tiling.rules import tiles_in_words

if TYPE_CHECKING:
    from rich.console import Console

    from core.tiling.problem import TileProblem
    from core.tiling.ranking import Ranking
    from core.tiling.verdict import Verdict
    from core.tuning.results.lookup import Tuned

#: Candidates, kinds of refusals and assumptions that are shown without `--all`.
_SHOWN = 10
_REFUSALS = 8
_ASSUMPTIONS = 4


def tile(
    kernel: Annotated[str, typer.Argument(metavar="FILE:FUNCTION", help="Python file and the kernel's name in it.")],
    target: Annotated[str, typer.Option(help="Chip to choose tiles for: cuda:h200, metax, cpu, auto, ...")] = "auto",
    param: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Argument of the factory, or a tile parameter; repeat it for each."),
    ] = None,
    dynamic: Dynamic = None,
    everything: Annotated[bool, typer.Option("--all", help="Show every candidate and every refusal.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON: every candidate and every refusal.")] = False,
) -> None:
    """Show the tiles a chip's rules consider for a kernel: predicted time, what bounds it, what was refused and why.

    Nothing is compiled and no device is needed.
    """
    from core.tiling.factory import KernelFactory
    from core.tiling.problem import TileProblem

    factory = load_kernel(kernel)
    if not isinstance(factory, KernelFactory):
        raise KernelError(
            f"{kernel} is no @core.kernel factory: its tiles are fixed, and there is nothing to choose",
            hint="`tilehal compile` compiles it as it is; docs/tiling.md shows how a factory names its tile parameters",
        )
    sizes = parse_dynamic(dynamic or (), measured=False)
    problem = TileProblem.of(factory, (), dynamic_arguments(factory, parse_parameters(param or ()), sizes), target)
    measured, ranking = problem.measured(), problem.ranking()
    if as_json:
        tuned = None
        if measured is not None:
            tuned = {
                "tiles": dict(measured.tiles),
                "where": measured.where,
                "median_s": measured.outcome.median_s,
            }
        print_json({**ranking.to_json(), "given": dict(problem.overrides), "measured": tuned})
    else:
        _show(problem, ranking, measured, everything, console())


def _show(problem: TileProblem, ranking: Ranking, measured: Tuned | None, everything: bool, out: Console) -> None:
    from rich.markup import escape

    arguments = ", ".join(f"{name}={value}" for name, value in problem.arguments.items())
    chip = problem.chip
    out.print(
        f"[bold]{ranking.kernel}[/bold]({escape(arguments)}) for [bold]{chip.target}[/bold] ({escape(chip.title)})"
    )
    dtypes = ", ".join(dict.fromkeys(ranking.shape.dtypes))
    out.print(f"[dim]{ranking.shape.operator} of {dtypes}; {_effort(ranking)}[/dim]")
    if measured is not None:
        took = "" if measured.outcome.median_s is None else f" in {time_text(measured.outcome.median_s)}"
        out.print(
            f"[green]measured[/green] {tiles_in_words(measured.tiles)}{took} ({escape(measured.where)}): compiling"
            " takes this, whatever is predicted"
        )
    shown = ranking.candidates if everything else ranking.candidates[:_SHOWN]
    if shown:
        _candidates(ranking, shown, out)
        _first(ranking, everything, out)
    else:
        out.print("[bold red]no tile can be had[/bold red]")
    _rules(ranking, out)
    _refused(ranking, everything, out)


def _effort(ranking: Ranking) -> str:
    counts = f"{len(ranking.candidates)} ranked, {len(ranking.refused)} refused"
    effort = ranking.effort
    if effort.recalled:
        return f"{counts}; remembered ({effort.recalled})"
    return f"{counts}; {effort.seconds:.2f} s, {effort.traces} traces"


def _candidates(ranking: Ranking, shown: Sequence[Verdict], out: Console) -> None:
    """The candidates, a column for each parameter in which any two of all candidates differ."""
    from rich import box
    from rich.markup import escape
    from rich.measure import Measurement
    from rich.table import Table

    names = list(ranking.shape.parameters)
    varied = [name for name in names if len({verdict.tiles[name] for verdict in ranking.candidates}) > 1]
    same = {name: shown[0].tiles[name] for name in names if name not in varied}
    if same:
        out.print(f"[dim]in all of them: {escape(tiles_in_words(same))}[/dim]", soft_wrap=True)
    headings = _headings(varied, ranking)
    short = [(heading, name) for name, heading in headings.items() if name != heading]
    if short:
        legend = ", ".join(f"[bold]{escape(heading)}[/bold] is {escape(name)}" for heading, name in short)
        out.print(f"[dim]{legend}[/dim]")
    memories = list(dict.fromkeys(name for verdict in shown for name in _memory(verdict)))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("", justify="right", style="dim", no_wrap=True)
    for name in varied:
        table.add_column(escape(headings[name]), justify="right", no_wrap=True, style="bold")
    table.add_column("time", justify="right", no_wrap=True)
    table.add_column("bound", no_wrap=True)
    for heading in ("blocks", "blocks\na unit", "waves", *(f"{name}\nKiB" for name in memories)):
        table.add_column(escape(heading), justify="right", overflow="fold")
    table.add_column("why", no_wrap=True)
    notes: dict[str, int] = {}
    for place, verdict in enumerate(shown, 1):
        memory = _memory(verdict)
        row = [str(place), *(str(verdict.tiles[name]) for name in varied), *_prediction(verdict)]
        row += [f"{memory[name] / 1024:.3g}" if name in memory else "" for name in memories]
        note = _note(verdict)
        table.add_row(*row, str(notes.setdefault(note, len(notes) + 1)) if note else "")
    if not notes:
        table.columns.pop()
    if Measurement.get(out, out.options.update(max_width=1000), table).maximum > out.width:
        table.padding = 0
    out.print(table)
    if len(shown) < len(ranking.candidates):
        out.print(f"[dim]... {len(ranking.candidates) - len(shown)} more: --all[/dim]")
    for note, number in notes.items():
        out.print(f"[bold]{number}[/bold] {escape(note)}")


#: Headings by role, where names of parameters would make the table too wide.
_SHORT = {
    "stages": "st",
    "threads": "thr",
    "unroll": "unr",
    "swizzle": "swz",
    "warp_policy": "pol",
    "buffers": "buf",
    "workers": "wrk",
}
#: Characters that headings may take before they are shortened.
_HEADINGS = 24


def _headings(names: Sequence[str], ranking: Ranking) -> dict[str, str]:
    """A heading for each parameter: its name, or a short one that is nobody else's where the names take much room."""
    if sum(map(len, names)) <= _HEADINGS:
        return {name: name for name in names}
    found: dict[str, str] = {}
    for name in names:
        parameter = ranking.shape.parameters[name]
        short = _SHORT.get(parameter.role)
        if short is None:
            key = parameter.key if parameter.role != "split" else f"s{parameter.dimension}"
            short = key if len(key) <= 4 else key[:3]
        found[name] = short if short not in found.values() else name
    return found


def _prediction(verdict: Verdict) -> list[str]:
    found = verdict.prediction
    if found is None:
        return ["unknown", "", "", "", ""]
    counts = [_count(found.blocks), _count(found.blocks_per_unit), _count(found.waves)]
    return [time_text(found.seconds), found.bound, *counts]


def _memory(verdict: Verdict) -> Mapping[str, int]:
    return verdict.prediction.memory_bytes if verdict.prediction is not None else {}


def _note(verdict: Verdict) -> str:
    """What the columns do not say of its place."""
    bound = f"bound by {verdict.prediction.bound}" if verdict.prediction is not None else ""
    return "; ".join(part for part in verdict.reason.split("; ") if part != bound)


def _first(ranking: Ranking, everything: bool, out: Console) -> None:
    """The first choice in full: who chose each number, what the time is made of, what was assumed."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    verdict = ranking.candidates[0]
    choosers: dict[str, list[str]] = {}
    for name, who in verdict.chosen_by.items():
        choosers.setdefault(who, []).append(f"{name}={verdict.tiles[name]}")
    for index, (who, values) in enumerate(choosers.items()):
        table.add_row("" if index else "first choice", f"{', '.join(values)}  [dim]{escape(who)}[/dim]")
    if verdict.prediction is not None:
        terms = sorted(verdict.prediction.terms.items(), key=lambda term: -term[1])
        table.add_row("time", ", ".join(f"{name} {time_text(seconds)}" for name, seconds in terms if seconds))
        assumed = verdict.prediction.assumptions
        shown = list(assumed if everything else assumed[:_ASSUMPTIONS])
        if len(shown) < len(assumed):
            shown.append(f"... {len(assumed) - len(shown)} more: --all")
        for index, text in enumerate(shown):
            table.add_row("" if index else "assumed", f"[dim]{escape(text)}[/dim]")
    for index, text in enumerate(ranking.notes):
        table.add_row("" if index else "note", escape(text))
    out.print(table)


def _rules(ranking: Ranking, out: Console) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", style="dim")
    rows = [(name, reason) for name, reason in ranking.reasons.items()]
    rows += [(name, f"replaced by {by}") for name, by in ranking.replaced.items()]
    for index, (name, text) in enumerate(rows):
        table.add_row("" if index else "rules", escape(name), escape(text))
    if rows:
        out.print(table)


def _refused(ranking: Ranking, everything: bool, out: Console) -> None:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    if not len(ranking.refused):
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    if not everything:
        table.add_column("refused", justify="right")
    table.add_column("refused" if everything else "for example", overflow="fold", ratio=2)
    table.add_column("why", overflow="fold", ratio=3)
    groups = list(_grouped(ranking.refused)) if not everything else [(1, verdict) for verdict in ranking.refused]
    shown = groups if everything else groups[:_REFUSALS]
    for count, verdict in shown:
        row = [escape(tiles_in_words(verdict.tiles)), escape(verdict.reason)]
        table.add_row(*row if everything else [str(count), *row])
    out.print(table)
    if len(shown) < len(groups):
        out.print(f"[dim]... {sum(count for count, _ in groups[_REFUSALS:])} more for other reasons: --all[/dim]")


def _grouped(refused: Sequence[Verdict]) -> Iterator[tuple[int, Verdict]]:
    """How many were refused for one reason, whatever its numbers, with the first of them; the most frequent first."""
    groups: dict[str, list[Verdict]] = {}
    for verdict in refused:
        groups.setdefault(re.sub(r"[\d,]+", "#", verdict.reason), []).append(verdict)
    for group in sorted(groups.values(), key=len, reverse=True):
        yield len(group), group[0]


def _count(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.4g}" if isinstance(value, float) else f"{value:,}"
