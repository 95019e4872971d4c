"""`tilehal tune`: measure a kernel's best candidates on the chip; show, hand on and clear what was measured."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from core.cli._durations import METAVAR, seconds_of
from core.cli._kernels import DynamicExtent, dynamic_arguments, load_kernel, parse_dynamic, parse_parameters
from core.cli._options import refuse_idle_options
from core.cli._output import check_writable, console, print_json, write_file
from core.errors import KernelError, TuningError

if TYPE_CHECKING:
    from core.tiling.factory import KernelFactory
    from core.tuning.report import TuneReport
    from core.tuning.results.records import Result
    from core.tuning.results.store import Store

#: Exit status of a run that Ctrl-C ended, as shells have it.
INTERRUPTED_STATUS = 130

#: Parameters of :func:`tune` that each thing done with the store takes, besides `--store` and `--json`.
_TAKES = {
    "--list": ("show", "kernel", "target"),
    "--export": ("export", "kernel", "target", "fastest"),
    "--import": ("import_",),
    "--clear": ("clear", "kernel", "target"),
}


def tune(
    context: typer.Context,
    kernel: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE:FUNCTION",
            help="Python file and the kernel's name in it; with --list and so on, a name will do.",
        ),
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Chip to tune for, which must be here (or on the cluster); default: auto.")
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE,...",
            help="Argument of the factory; several values (1,16 or a range 16..8192) make a grid of shapes. "
            "Tile parameters given are kept.",
        ),
    ] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE,NAME=VALUE", help="One shape, on top of --param; repeat it for more."),
    ] = None,
    dynamic: DynamicExtent = None,
    candidates: Annotated[int, typer.Option(help="How many of the best ranked are measured for each shape.")] = 20,
    budget: Annotated[str | None, typer.Option(metavar=METAVAR, help="Time for everything: 90s, 10m, 2h.")] = None,
    timeout: Annotated[
        str, typer.Option(metavar=METAVAR, help="What one candidate may take to compile, and to be run and timed.")
    ] = "60s",
    jobs: Annotated[int | None, typer.Option(help="Candidates compiled at once; default: one for each CPU.")] = None,
    device: Annotated[str | None, typer.Option(help="Torch device to time on, such as cuda:1.")] = None,
    reference: Annotated[
        str | None, typer.Option(metavar="FILE:FUNCTION", help="Gives the right outputs; default: the CPU backend.")
    ] = None,
    warm: Annotated[bool, typer.Option("--warm", help="Time with warm caches; default: cold.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Measure what is known too, failures included.")] = False,
    fast_math: Annotated[bool, typer.Option(help="Allow approximate maths and TF32.")] = False,
    cluster: Annotated[
        str | None, typer.Option("--dask", metavar="ADDRESS", help="Scheduler of a dask cluster to tune on.")
    ] = None,
    store: Annotated[Path | None, typer.Option(help="The file of results; default: the user's own.")] = None,
    show: Annotated[bool, typer.Option("--list", help="Show what was measured, here and elsewhere.")] = False,
    export: Annotated[Path | None, typer.Option("--export", help="Write results to a JSON file.")] = None,
    fastest: Annotated[
        int | None, typer.Option(help="With --export: only so many of the fastest of each, and no failures.")
    ] = None,
    import_: Annotated[Path | None, typer.Option("--import", help="Read results from a JSON file.")] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Forget results.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure a kernel's best candidates on the chip itself; later compilations use the fastest.

    Each candidate is held against a reference and timed in a process of its own. Ctrl-C keeps what was measured, and
    the same command goes on.
    """
    from core.tuning.results.store import Store, default_store

    results = Store(store) if store is not None else default_store()
    asked = [
        name
        for name, given in (("--list", show), ("--export", export), ("--import", import_), ("--clear", clear))
        if given
    ]
    if len(asked) > 1:
        raise typer.BadParameter(f"{' and '.join(asked)} are different commands")
    if asked:
        refuse_idle_options(context, asked[0], ("store", "as_json", *_TAKES[asked[0]]))
    elif fastest is not None:
        raise typer.BadParameter("--fastest goes with --export")
    if show:
        _list(results, kernel, target, as_json)
    elif export is not None:
        _export(results, kernel, target, export, fastest, as_json)
    elif import_ is not None:
        _import(results, import_, as_json)
    elif clear:
        _clear(results, kernel, target, as_json)
    elif kernel is None:
        raise typer.BadParameter("FILE:FUNCTION is missing: which kernel is to be tuned?")
    else:
        factory = _factory(kernel)
        symbols = _symbols(dynamic or ())
        shapes = [dynamic_arguments(factory, one, symbols) for one in _shapes(param or (), shape or ())]
        options: dict[str, Any] = {
            "candidates": candidates,
            "budget_s": None if budget is None else seconds_of(budget, "--budget"),
            "timeout_s": seconds_of(timeout, "--timeout"),
            "jobs": jobs,
            "device": device,
            "reference": None if reference is None else load_kernel(reference),
            "symbols": symbols,
            "cold_l2": not warm,
            "resume": not again,
            "fast_math": fast_math,
            "store": results,
        }
        with _client(cluster) as client:
            _tune(factory, shapes, target or "auto", client, options, as_json)


def _tune(
    factory: KernelFactory,
    shapes: list[dict[str, Any]],
    target: str,
    client: Any,
    options: dict[str, Any],
    as_json: bool,
) -> None:
    from core.tuning.tuner import TuningInterrupted

    try:
        report: TuneReport = factory.tune(shapes, target=target, executor=client, **options)
    except TuningInterrupted as interrupted:
        report = interrupted.report
    if as_json:
        print_json(report.to_json())
    else:
        out = console()
        for part in report.renderables():
            out.print(part)
    if report.interrupted:
        raise typer.Exit(INTERRUPTED_STATUS)
    if not any(one.best for one in report.shapes):
        raise typer.Exit(1)


def _factory(kernel: str) -> KernelFactory:
    from core.tiling.factory import KernelFactory

    found = load_kernel(kernel)
    if not isinstance(found, KernelFactory):
        raise KernelError(
            f"{kernel} is no @core.kernel factory: its tiles are fixed, and there is nothing to tune",
            hint="docs/tiling.md shows how a factory names its tile parameters",
        )
    return found


def _symbols(items: Sequence[str]) -> dict[str, int]:
    """The extents that `--dynamic` says to measure at, by name."""
    found: dict[str, int] = {}
    for name, extent in parse_dynamic(items, measured=True).items():
        if extent is None:
            raise KernelError(
                f"--dynamic {name}: tuning measures, and has to know what {name} is meanwhile",
                hint=f"say --dynamic {name}=4096; the tiles that are found serve every {name}",
            )
        found[name] = extent
    return found


def _shapes(params: Sequence[str], shapes: Sequence[str]) -> list[dict[str, Any]]:
    """The grid that `--param` spans, with each `--shape` laid over it."""
    axes: dict[str, list[Any]] = {}
    for item in params:
        name, _, text = item.partition("=")
        if name in axes:
            raise KernelError(f"--param {name} is given twice", hint=f"several values make a grid: --param {name}=1,16")
        if not text:
            parse_parameters([item])  # says what is wrong with it
        axes[name] = [value for part in _parts(text) for value in _values(name, part)]
    grid = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    if not shapes:
        return grid
    return [{**common, **parse_parameters(list(_parts(one)))} for one in shapes for common in grid]


def _values(name: str, text: str) -> list[Any]:
    """A value, or the extents that stand for a range `16..8192`."""
    from core.tuning.results.neighbours import covering

    bounds = re.fullmatch(r"(\d+)\.\.(\d+)", text)
    return covering(int(bounds[1]), int(bounds[2])) if bounds else list(parse_parameters([f"{name}={text}"]).values())


def _parts(text: str) -> Iterator[str]:
    """Parts of a text between commas that stand in no brackets and no quotes."""
    depth, quote, begun = 0, "", 0
    for index, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
        elif letter == "," and depth == 0:
            yield text[begun:index]
            begun = index + 1
    yield text[begun:]


@contextmanager
def _client(address: str | None) -> Iterator[Any]:
    """A dask client for the length of a block; None without an address."""
    if address is None:
        yield None
        return
    try:
        from distributed import Client
    except ImportError as error:
        raise TuningError("--dask needs dask.distributed", hint="pip install 'tilehal[dask]'") from error
    try:
        client = Client(address, timeout=10)
    except (OSError, TimeoutError, ValueError) as error:
        raise TuningError(
            f"no dask scheduler answers at {address}: {error}", hint="for example --dask tcp://host:8786"
        ) from error
    with client:
        yield client


# ------------------------------------------------------------------------------------------------ what was measured


def _chosen(store: Store, kernel: str | None, target: str | None) -> list[Result]:
    name = kernel.rpartition(":")[2] if kernel else None
    return list(store.results(kernel=name, chip=target))


def _list(store: Store, kernel: str | None, target: str | None, as_json: bool) -> None:
    from core.tuning.results.listing import listed, table

    factory = _factory(kernel) if kernel and ":" in kernel else None
    rows = listed(_chosen(store, kernel, target), factory)
    if as_json:
        print_json([row.to_json() for row in rows])
        return
    out = console()
    if rows:
        out.print(table(rows))
    if any(row.elsewhere for row in rows):
        out.print("results of another environment take part with TILEHAL_TUNED=any", soft_wrap=True)
    out.print(f"{len(rows)} shape{'s' * (len(rows) != 1)} in {store.path}", soft_wrap=True)


def _export(
    store: Store, kernel: str | None, target: str | None, path: Path, fastest: int | None, as_json: bool
) -> None:
    from core.tuning.results.exchange import to_text

    check_writable(path, "--export")
    found = _chosen(store, kernel, target)
    if not found:
        raise TuningError(
            f"there is nothing to export in {store.path}", hint="`tilehal tune --list` shows what there is"
        )
    text = to_text(found, fastest=fastest)
    write_file(path, text, "--export")
    count = len(json.loads(text)["results"])
    _said(f"{count} shape{'s' * (count != 1)} written to {path}", {"results": count, "path": str(path)}, as_json)


def _import(store: Store, path: Path, as_json: bool) -> None:
    from core.tuning.results.exchange import read_file

    found = read_file(path)
    written = store.add(found, keep_newer=True)
    given = sum(len(result.outcomes) for result in found)
    said = f"{given} outcome{'s' * (given != 1)} taken from {path}"
    _said(
        said if written == given else f"{written} of {said} (the others are known and newer)",
        {"taken": written, "given": given},
        as_json,
    )


def _clear(store: Store, kernel: str | None, target: str | None, as_json: bool) -> None:
    removed = store.clear(kernel=kernel.rpartition(":")[2] if kernel else None, chip=target)
    _said(f"{removed} shape{'s' * (removed != 1)} forgotten", {"removed": removed}, as_json)


def _said(text: str, data: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(data)
    else:
        console().print(text, markup=False, soft_wrap=True)
