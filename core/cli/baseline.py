"""`tilehal baseline`: record what kernels cost as a file for git, show it, and say what got slower since."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from core.cli._durations import METAVAR, seconds_of, time_text
from core.cli._kernels import parse_parameters
from core.cli._options import refuse_idle_options
from core.cli._output import check_drawable, check_writable, console, print_json
from core.errors import BaselineError

if TYPE_CHECKING:
    from core.tuning.baseline.measuring import Settings
    from core.tuning.baseline.process import Build
    from core.tuning.baseline.recording import Step
    from core.tuning.baseline.snapshot import Snapshot
    from core.tuning.baseline.suite import Case

#: Exit status when something regressed.
REGRESSED_STATUS = 1
#: How a build is named in place of a snapshot: `live`, or `live:PATH`.
LIVE = "live"

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Record what kernels cost as a file for git, show it, and say what got slower since.",
)


class HostClock(StrEnum):
    """Clocks of targets that run on the host."""

    wall = "wall"
    processor = "processor"


Suite = Annotated[Path | None, typer.Option(help="TOML or JSON file that lists kernels, shapes and references.")]
Target = Annotated[str, typer.Option(help="Chip of the kernels that name none: cuda:h200, cpu, auto, ...")]
Param = Annotated[
    list[str] | None, typer.Option(metavar="NAME=VALUE", help="Argument of the kernels named here; repeat it for each.")
]
Passes = Annotated[
    int | None, typer.Option(min=1, metavar="COUNT", help="Times everything is measured, each in a new process. [5]")
]
RepeatMs = Annotated[
    float | None, typer.Option(min=0.1, metavar="MS", help="Milliseconds to sample one time for. [50]")
]
ClockOption = Annotated[HostClock | None, typer.Option(help="Clock of kernels that run on the CPU. [wall]")]
Timeout = Annotated[
    str | None, typer.Option(metavar=METAVAR, help="What a kernel may take in a pass, compiling too. [300s]")
]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable.")]


@app.command()
def record(
    kernels: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE:FUNCTION]...", help="Kernels; without any and without --suite, the operators."),
    ] = None,
    suite: Suite = None,
    target: Target = "auto",
    param: Param = None,
    reference: Annotated[str, typer.Option(metavar="FILE:FUNCTION", help="What the outputs must equal.")] = "",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The snapshot to write.")] = None,
    passes: Passes = None,
    repeat_ms: RepeatMs = None,
    clock: ClockOption = None,
    timeout: Timeout = None,
    fresh: Annotated[bool, typer.Option(help="Do not go on where an interrupted recording stopped.")] = False,
    as_json: Json = False,
) -> None:
    """Measure kernels and write a snapshot.

    A recording that is interrupted goes on where it stopped when it is started again with the same output.
    """
    from core.tuning.baseline import record as record_baseline

    if output is None and not as_json:
        raise typer.BadParameter("give --output FILE, or --json to print the snapshot")
    check_writable(output, "--output")
    cases = _cases(kernels or [], suite, target, param, reference)
    partial = output.with_name(f".{output.name}.partial") if output is not None else None
    if partial is not None and fresh:
        partial.unlink(missing_ok=True)
    with _progress() as progress:
        snapshot = record_baseline(
            cases, _settings({}, passes, repeat_ms, clock, timeout), partial=partial, progress=progress
        )
    if output is not None:
        snapshot.save(output)
    if as_json:
        print(snapshot.to_text(), end="")
    else:
        _show(snapshot)
        console().print(f"written to {output}", soft_wrap=True)
    if snapshot.rows and not any(row.status == "ok" for row in snapshot.rows):
        raise typer.Exit(1)


@app.command()
def show(
    snapshot: Annotated[Path, typer.Argument(help="A file that `record` wrote.")],
    as_json: Json = False,
) -> None:
    """Show a snapshot."""
    from core.tuning.baseline import Snapshot

    read = Snapshot.read(snapshot)
    if as_json:
        print(read.to_text(), end="")
    else:
        _show(read)


@app.command()
def compare(
    context: typer.Context,
    old: Annotated[str, typer.Argument(help="A snapshot, or live:PATH: the build in a source tree or of a Python.")],
    new: Annotated[str, typer.Argument(help="The same; `live` is this build.")] = LIVE,
    kernel: Annotated[
        list[str] | None, typer.Option(metavar="FILE:FUNCTION", help="Two builds: what to measure.")
    ] = None,
    suite: Suite = None,
    target: Target = "auto",
    param: Param = None,
    confidence: Annotated[
        float,
        typer.Option(min=0.5, max=0.9999, metavar="SHARE", help="How sure it is that no regression is a false alarm."),
    ] = 0.95,
    tolerance: Annotated[
        float, typer.Option(min=0, max=10, metavar="SHARE", help="Slowdown that does not matter.")
    ] = 0.03,
    sensitivity: Annotated[
        float, typer.Option(min=0, max=10, metavar="SHARE", help="Slowdown that must not go unseen.")
    ] = 0.10,
    any_chip: Annotated[bool, typer.Option(help="Compare recordings of different chips.")] = False,
    picture: Annotated[Path | None, typer.Option(help="Draw ratios and intervals: .svg, .png or .pdf.")] = None,
    save: Annotated[Path | None, typer.Option(help="Write what was measured now as a snapshot.")] = None,
    passes: Passes = None,
    repeat_ms: RepeatMs = None,
    clock: ClockOption = None,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Say what got slower beyond noise. Exit status 1 when something did, or no longer runs or is right.

    Two builds are measured in turn; a snapshot and a build with the cases and settings of the snapshot.
    """
    from core.tuning.baseline import Build, Criteria, Snapshot, draw_comparison
    from core.tuning.baseline import compare as compare_baselines
    from core.tuning.baseline.rendering import print_comparison

    check_drawable(picture, "--picture")
    check_writable(save, "--save")
    sides = [_build(name) or _read(name) for name in (old, new)]
    builds = [side for side in sides if isinstance(side, Build)]
    if save is not None and not isinstance(sides[1], Build):
        raise typer.BadParameter("--save keeps what was measured now, but NEW is a file already")
    refuse_idle_options(context, *_compared(len(builds)))
    recorded = next((side for side in sides if isinstance(side, Snapshot)), None)
    measured: Iterator[Snapshot] = iter(())
    if recorded is None:
        cases = _cases(kernel or [], suite, target, param, "")
        measured = iter(_measure(builds, cases, _settings({}, passes, repeat_ms, clock, timeout)))
    elif builds:
        settings = _settings(recorded.environment.get("settings", {}), passes, repeat_ms, clock, timeout)
        measured = iter(_measure(builds, [row.case for row in recorded.rows], settings))
    before, after = (next(measured) if isinstance(side, Build) else side for side in sides)
    criteria = Criteria(confidence, tolerance, sensitivity, interleaved=len(builds) == 2)
    comparison = compare_baselines(before, after, criteria, any_chip=any_chip)
    if save is not None:
        after.save(save)
    if picture is not None:
        draw_comparison(comparison, picture)
    if as_json:
        print_json(comparison.to_json())
    else:
        print_comparison(comparison, console())
    if comparison.regressions:
        raise typer.Exit(REGRESSED_STATUS)


def _compared(builds: int) -> tuple[str, tuple[str, ...]]:
    """In words, what compares snapshots and so many builds, and the parameters of :func:`compare` that it takes."""
    judging = ("old", "new", "confidence", "tolerance", "sensitivity", "any_chip", "picture", "save", "as_json")
    measuring = ("passes", "repeat_ms", "clock", "timeout")
    if builds == 2:
        return "two builds", (*judging, *measuring, "kernel", "suite", "target", "param")
    if builds == 1:
        return "a snapshot, which says what to measure,", (*judging, *measuring)
    return "two snapshots, of which nothing is measured,", judging


def _build(name: str) -> Build | None:
    """The build that `live` or `live:PATH` names; None for a file."""
    from core.tuning.baseline import Build

    word, colon, path = name.partition(":")
    if word != LIVE or (colon and not path):
        return None
    build = Build(name, Path(path)) if path else Build(name)
    build.check()
    return build


def _read(name: str) -> Snapshot:
    from core.tuning.baseline import Snapshot

    return Snapshot.read(Path(name))


def _cases(kernels: list[str], suite: Path | None, target: str, param: list[str] | None, reference: str) -> list[Case]:
    from core.target import resolve
    from core.tuning.baseline import Case, default_suite, load_suite

    if not kernels and (param or reference):
        raise BaselineError("--param and --reference belong to kernels named here", hint="name one as FILE:FUNCTION")
    parameters = parse_parameters(param or ())
    cases = [Case(one, target, parameters, reference=reference) for one in kernels]
    if suite is not None:
        cases += load_suite(suite, target)
    return cases or default_suite(resolve(target).chip.target)


def _settings(
    recorded: dict[str, Any],
    passes: int | None,
    repeat_ms: float | None,
    clock: HostClock | None,
    timeout: str | None,
) -> Settings:
    """The settings given over those recorded, over the defaults."""
    from core.tuning.baseline import Settings

    timeout_s = None if timeout is None else seconds_of(timeout, "--timeout")
    given = {"passes": passes, "repeat_ms": repeat_ms, "clock": clock and clock.value, "timeout_s": timeout_s}
    return Settings(**{**recorded, **{name: value for name, value in given.items() if value is not None}})


def _measure(builds: list[Build], cases: list[Case], settings: Settings) -> list[Snapshot]:
    from core.tuning.baseline import record_builds

    with _progress() as progress:
        return record_builds(builds, cases, settings, progress=progress)


def _show(snapshot: Snapshot) -> None:
    from core.tuning.baseline.rendering import print_snapshot

    print_snapshot(snapshot, console())


@contextmanager
def _progress() -> Iterator[Callable[[Step], None]]:
    """A bar on stderr, with what was measured last."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None)

        def step(done: Step) -> None:
            found = done.found.get("warm", {}).get("median_s")
            what = time_text(found) if found is not None else str(done.found.get("status"))
            text = f"pass {done.pass_index + 1}, {done.build}: {done.case.name} {what}"
            bar.update(task, total=done.total, completed=done.done, description=text)

        yield step
