"""`tilehal bench`: the operators side by side with what a user would pick instead, on the chip that is here."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from core.cli._durations import METAVAR, seconds_of
from core.cli._options import refuse_idle_options
from core.cli._output import check_drawable, check_writable, console, write_file
from core.errors import BenchError

#: How long each contender is sampled, milliseconds, in a whole run and in a quick one.
_REPEAT_MS, _QUICK_REPEAT_MS = 60.0, 20.0


def bench(
    context: typer.Context,
    operator: Annotated[
        list[str] | None,
        typer.Argument(help="gemm, softmax, layernorm, rmsnorm, attention, mla, launch; default: all."),
    ] = None,
    target: Annotated[str, typer.Option(help="Chip to measure on, which must be here.")] = "auto",
    suite: Annotated[
        str | None,
        typer.Option(help="standard, quick or small; default: standard, and small on the CPU."),
    ] = None,
    tuned: Annotated[bool, typer.Option("--tuned", help="Measure what the results store holds too.")] = False,
    raw: Annotated[
        bool | None,
        typer.Option(
            "--raw/--no-raw", help="Measure the same kernels through raw tilelang too; default: yes, not with --quick."
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Few shapes, sampled briefly, without raw tilelang.")] = False,
    budget: Annotated[str | None, typer.Option(metavar=METAVAR, help="Time for everything: 90s, 10m, 2h.")] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, metavar="COUNT", help="Kernels compiled at once; default: one for each CPU.")
    ] = None,
    repeat_ms: Annotated[
        float | None,
        typer.Option(
            min=0.1, metavar="MS", help="How long each contender of a row is sampled, with cold and with warm caches."
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the inputs; default: another one each time.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write everything as JSON.")] = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw a roofline with the points on it: .svg, .png, .pdf.")
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option("--markdown", metavar="FILE", help="Write the tables into a page, between its two marks."),
    ] = None,
    from_file: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="Show an earlier run's JSON instead of measuring.")
    ] = None,
) -> None:
    """Measure the operators of TileHAL against cuBLAS, cuDNN, Triton, a copy's bandwidth and raw tilelang.

    Everything is compiled first, in parallel; then each operator is checked against a float reference and timed in a
    process of its own, its contenders in turn. Tiles are the first choice of the chip's rules.
    """
    budget_s = None if budget is None else seconds_of(budget, "--budget")
    check_writable(json_file, "--json")
    check_drawable(picture, "--picture")
    check_writable(page, "--markdown")
    if from_file is not None:
        refuse_idle_options(context, "--from", ("from_file", "json_file", "picture", "page"))
        document = _read(from_file)
    else:
        document = _measure(
            operator or [],
            target,
            suite,
            tuned,
            not quick if raw is None else raw,
            quick,
            budget_s,
            jobs,
            repeat_ms,
            seed,
        )
    if json_file is not None:
        write_file(json_file, json.dumps(document, indent=1) + "\n", "--json")
    from core.bench.rendering import into_page, markdown, renderables

    out = console()
    for part in renderables(document):
        out.print(part)
    if picture is not None:
        from core.bench.picture import draw_operators

        draw_operators(document, picture)
    if page is not None:
        write_file(page, into_page(page.read_text() if page.is_file() else "", markdown(document)), "--markdown")
    if not any(
        "cold" in entry for row in document["rows"] for entry in row["contenders"].values()
    ) and not document.get("launch"):
        raise typer.Exit(1)


def _measure(
    operators: list[str],
    target: str,
    suite: str | None,
    tuned: bool,
    raw: bool,
    quick: bool,
    budget_s: float | None,
    jobs: int | None,
    repeat_ms: float | None,
    seed: int | None,
) -> dict[str, Any]:
    from core.bench.rendering import typed
    from core.bench.running import Options, run
    from core.target import resolve

    chip = resolve(target).chip
    default = "small" if chip.vendor == "cpu" else "quick" if quick else "standard"
    options = Options(
        target=chip.target,
        operators=operators,
        suite=suite or default,
        tuned=tuned,
        raw=raw,
        repeat_ms=repeat_ms or (_QUICK_REPEAT_MS if quick else _REPEAT_MS),
        budget_s=budget_s,
        jobs=jobs or len(os.sched_getaffinity(0)),
        seed=seed,
    )
    told = console(stderr=True)
    return run(options, typed(["tilehal", *sys.argv[1:]]), lambda text: told.print(text, style="dim", soft_wrap=True))


def _read(path: Path) -> dict[str, Any]:
    """An earlier run's document, its goals judged anew."""
    from core.bench.goals import judge
    from core.bench.running import FORMAT

    try:
        document: dict[str, Any] = json.loads(path.read_text())
        found = document["format"]
    except OSError as error:
        raise BenchError(
            f"{path} cannot be read: {error.strerror or error}", hint="`tilehal bench --json FILE` writes one"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise BenchError(
            f"{path} is no benchmark's JSON: {error}", hint="`tilehal bench --json FILE` writes one"
        ) from error
    if found != FORMAT:
        raise BenchError(f"{path} has format {found}, this TileHAL reads {FORMAT}", hint="measure again")
    document["goals"] = [goal.to_json() for goal in judge(document)]
    return document
