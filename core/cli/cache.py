"""`tilehal cache`: what lies in the cache, whether it is sound, and how to be rid of it."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from core.cli._durations import age_of
from core.cli._output import console, print_json
from core.compiler.cache import Cache, CacheEntry, default
from core.compiler.cache.entry import STAGES, Stage
from core.compiler.cache.settings import format_size
from core.errors import TileHALError

if TYPE_CHECKING:
    from rich.table import Table

app = typer.Typer(
    name="cache",
    help="Show, check and clear the cache of compiled kernels.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
OfTarget = Annotated[str | None, typer.Option("--target", help="Only kernels for this vendor or chip.")]
OfStage = Annotated[str | None, typer.Option("--stage", help=f"Only entries of this stage: {', '.join(STAGES)}.")]


@app.command("list")
def list_(target: OfTarget = None, stage: OfStage = None, as_json: AsJson = False) -> None:
    """List what the cache holds, most recently used first."""
    wanted = _stage(stage)
    cache = default()
    found = [
        entry
        for entry in cache.entries()
        if (target is None or target in (entry.target, entry.target.split(":")[0]))
        and (wanted is None or entry.stage == wanted)
    ]
    if as_json:
        print_json([entry.to_json() for entry in found])
        return
    out = console()
    if found:
        out.print(_table(found))
    total = format_size(sum(entry.size_bytes for entry in found))
    out.print(f"{_count(len(found))}, {total} of {format_size(cache.limit_bytes)} in {cache.root}", soft_wrap=True)


@app.command()
def info(
    key: Annotated[
        str | None, typer.Argument(help="First digits of an entry's key; without it, the whole cache.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show one entry with its files, or where the cache is and how much it holds."""
    cache = default()
    if key is None:
        stats = cache.stats()
        rows: list[tuple[str, Any]] = [
            ("folder", stats.root),
            ("used", "yes" if stats.enabled else "no: TILEHAL_DISABLE_CACHE is set"),
            ("limit", format_size(stats.limit_bytes)),
            *(
                (f"{stage} entries", f"{stats.entries[stage]}, {format_size(stats.size_bytes[stage])}")
                for stage in STAGES
            ),
            ("remembered failures", stats.refusals),
        ]
        _show(rows, stats.to_json(), as_json)
        return
    found = _one(cache, key)
    files = sorted(path for path in found.folder.rglob("*") if path.is_file())
    data = {**found.to_json(), "files": {str(p.relative_to(found.folder)): p.stat().st_size for p in files}}
    rows = [
        ("key", found.key),
        ("stage", found.stage),
        ("kernel", found.kernel),
        ("target", found.target),
        ("route", found.route),
        ("made by" if found.stage == "built" else "language", found.detail),
        ("made", f"{_age(found.created_s)} ago"),
        ("last used", f"{_age(found.used_s)} ago"),
        ("size", format_size(found.size_bytes)),
        ("state", f"damaged: {found.damaged}" if found.damaged else "not checked (tilehal cache verify)"),
        ("folder", found.folder),
        *(("file", f"{name}  {format_size(size)}") for name, size in data["files"].items()),
    ]
    _show(rows, data, as_json)


@app.command()
def clear(
    keys: Annotated[list[str] | None, typer.Argument(help="First digits of keys; without any, whatever fits.")] = None,
    target: OfTarget = None,
    stage: OfStage = None,
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="AGE", help="Only entries not used for 12h, 7d, 4w, ...")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Also entries that a running process uses.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove entries: all of them, or those that fit every condition given."""
    cache = default()
    wanted = _stage(stage)
    older_than_s = None if older_than is None else age_of(older_than, "--older-than")
    chosen = None if not keys else {_one(cache, key).key for key in keys}
    try:
        cleared = cache.clear(keys=chosen, stage=wanted, target=target, older_than_s=older_than_s, force=force)
    except OSError as error:
        raise TileHALError(
            f"the cache in {cache.root} cannot be changed: {error.strerror or error}",
            hint="clear it as the user who owns it",
        ) from error
    if as_json:
        print_json({"entries": cleared.entries, "size_bytes": cleared.size_bytes, "in_use": cleared.in_use})
        return
    kept = f"; {_count(cleared.in_use)} in use kept (--force removes them too)" if cleared.in_use else ""
    console().print(f"removed {_count(cleared.entries)}, {format_size(cleared.size_bytes)}{kept}")


@app.command()
def verify(as_json: AsJson = False) -> None:
    """Compare every byte in the cache with what was stored; exit status 1 when something is damaged."""
    cache = default()
    damaged = cache.verify()
    total = len(cache.entries())
    if as_json:
        print_json({"entries": total, "damaged": [entry.to_json() for entry in damaged]})
    else:
        out = console()
        for entry in damaged:
            out.print(f"{entry.key[:12]} {entry.stage} {entry.kernel}: {entry.damaged}", markup=False, soft_wrap=True)
        verdict = "all sound" if not damaged else f"{len(damaged)} damaged: made again when next needed"
        out.print(f"{_count(total)} checked, {verdict}")
    if damaged:
        raise typer.Exit(1)


@app.command()
def path(
    key: Annotated[str | None, typer.Argument(help="First digits of an entry's key; without it, the cache.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print the folder of the cache, or of one entry."""
    cache = default()
    folder = str(cache.root if key is None else _one(cache, key).folder)
    print(json.dumps({"path": folder}) if as_json else folder)


def _one(cache: Cache, key: str) -> CacheEntry:
    """The entry whose key begins with `key`."""
    found = [entry for entry in cache.entries() if entry.key.startswith(key.lower())]
    if len(found) != 1:
        what = "no entry" if not found else f"{len(found)} entries"
        raise TileHALError(
            f"{what} in {cache.root} with a key that begins with {key!r}",
            hint="`tilehal cache list` shows the keys" if not found else "give more digits",
        )
    return found[0]


def _stage(stage: str | None) -> Stage | None:
    for known in STAGES:
        if stage == known:
            return known
    if stage is not None:
        raise TileHALError(f"--stage {stage!r}: there is no such stage", hint=f"one of {', '.join(STAGES)}")
    return None


def _table(entries: list[CacheEntry]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("key", "kernel", "target", "route", "stage"):
        table.add_column(name, overflow="fold", no_wrap=name == "key")
    for name in ("size", "used"):
        table.add_column(name, justify="right", no_wrap=True)
    for entry in entries:
        stage = Text(entry.stage)
        if entry.damaged:
            stage.append(" damaged", style="red")
        cells = (Text(text) for text in (entry.key[:12], entry.kernel, entry.target, entry.route))
        table.add_row(*cells, stage, format_size(entry.size_bytes), _age(entry.used_s))
    return table


def _show(rows: list[tuple[str, Any]], data: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(data)
        return
    out = console()
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        out.print(f"{name:<{width}}  {value}", markup=False, soft_wrap=True)


def _age(since_s: float) -> str:
    """How long ago, in the largest unit that gives at least one."""
    seconds = max(0.0, time.time() - since_s)
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def _count(number: int) -> str:
    return f"{number} entry" if number == 1 else f"{number} entries"
