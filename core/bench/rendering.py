"""A benchmark's document as tables: for a terminal and, with the same cells, in Markdown."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.bench.case import OPERATORS
from core.bench.contenders import RULE, TUNED, title
from core.bench.goals import geometric_mean, ratio
from core.tuning.measure.contention import BUSY_SHARE

if TYPE_CHECKING:
    from rich.console import RenderableType

Document = Mapping[str, Any]
#: Between these two lines `--markdown` replaces what a page has.
BEGIN, END = "<!-- tilehal bench -->", "<!-- end of tilehal bench -->"

_HEADS = ("shape", "by", "cold, us", "warm, us", "rate", "of bound", "ours is faster, cold", "warm")
_STYLES = {"met": "green", "not met": "red", "not measured": "yellow", "no goal": "dim"}
#: Rates of these are told in TFLOP/s; of the others in GB/s.
_COMPUTE = ("gemm", "attention")


def renderables(document: Document) -> Iterator[RenderableType]:
    """What is printed on a terminal, part by part."""
    from rich.table import Table
    from rich.text import Text

    for line in about(document):
        yield Text(line, style="dim")
    for operator in _present(document):
        table = Table(title=operator, title_justify="left", box=None, pad_edge=False, header_style="bold")
        for head in _HEADS:
            table.add_column(head, overflow="fold", justify="left" if head in ("shape", "by") else "right")
        for cells, style in _rows(document, operator):
            table.add_row(*(Text(cell) for cell in cells), style=style)
        yield table
        if mean := _means(document, operator):
            yield Text(f"geometric mean, cold: {mean}", style="bold")
        for note in _notes(document, operator):
            yield Text(f"  {note}", style="dim")
    if document.get("launch"):
        table = Table(title="host time per launch", title_justify="left", box=None, pad_edge=False, header_style="bold")
        for head in _LAUNCH_HEADS:
            table.add_column(head, justify="left" if head == "launched by" else "right")
        for cells in _launches(document["launch"]):
            table.add_row(*cells)
        yield table
        if note := _cpu_note(document["launch"]):
            yield Text(f"  {note}", style="dim")
    if not document["goals"]:
        yield Text(timing(document), style="dim")
        return
    goals = Table(title="goals", title_justify="left", box=None, pad_edge=False, header_style="bold")
    for head in ("", "goal", "cold", "warm"):
        goals.add_column(head, overflow="fold")
    for goal in document["goals"]:
        short = "".join(f"\n  {text}" for text in goal["short"])
        verdict = Text(goal["verdict"], style=_STYLES[goal["verdict"]])
        goals.add_row(verdict, Text(goal["text"] + short), Text(goal["value"]), Text(goal["warm"]))
    yield goals
    yield Text(timing(document), style="dim")


def markdown(document: Document) -> str:
    """The same as Markdown, for a page."""
    lines = ["```text", typed(shlex.split(document["command"])) or "tilehal bench", "```", ""]
    lines += [f"* {line}" for line in about(document)]
    for operator in _present(document):
        lines += ["", f"### {operator}", "", *_table(_HEADS, [cells for cells, _ in _rows(document, operator)])]
        if mean := _means(document, operator):
            lines += ["", f"Geometric mean, cold: {mean}."]
        if notes := _notes(document, operator):
            lines += ["", *(f"* {note}" for note in notes)]
    if document.get("launch"):
        lines += ["", "### host time per launch", "", *_table(_LAUNCH_HEADS, list(_launches(document["launch"])))]
        if note := _cpu_note(document["launch"]):
            lines += ["", f"* {note}"]
    rows = [
        ("**not met**" if goal["verdict"] == "not met" else goal["verdict"], goal["text"], goal["value"], goal["warm"])
        for goal in document["goals"]
    ]
    if rows:
        lines += ["", "### goals", "", *_table(("", "goal", "cold", "warm"), rows)]
    short = [f"* {text}" for goal in document["goals"] for text in goal["short"]]
    if short:
        lines += ["", "Rows that are short of a goal:", "", *dict.fromkeys(short)]
    return "\n".join([*lines, "", timing(document), ""])


def typed(words: Sequence[str]) -> str:
    """A command line as whoever repeats it would type it: where files lay on this machine is left out."""

    def shown(word: str) -> str:
        option, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
        return f"{option}{equals}{Path(value).name if value.startswith('/') else value}"

    return shlex.join(map(shown, words))


def into_page(page: str, text: str) -> str:
    """A page with the text between its two marks; the text alone, with the marks, where it has none."""
    begin, end = page.find(BEGIN), page.find(END)
    marked = f"{BEGIN}\n\n{text.strip()}\n\n{END}"
    if begin < 0 or end < begin:
        return f"{page.rstrip()}\n\n{marked}\n" if page.strip() else f"{marked}\n"
    return page[:begin] + marked + page[end + len(END) :]


def about(document: Document) -> list[str]:
    """Where it was measured, a line for each kind of fact."""
    facts = document["environment"]
    host, target, libraries = facts["host"], facts["target"], facts["libraries"]
    ceilings = document["ceilings"]
    versions = "; ".join(f"{name} {version}" for name, version in {"torch": host["torch"], **libraries}.items())
    rates = ", ".join(f"{rate / 1e12:.4g} TFLOP/s {dtype}" for dtype, rate in ceilings["ops_per_s"].items())
    read = ceilings.get("read_bytes_per_s")
    reading = f"{read / 1e9:.4g} GB/s (a sum, which only reads), " if read else ""
    lines = [
        f"{target['name']}: {target['device']}; driver {target['driver'] or 'none'}; {target['toolchain']}",
        f"{host.get('cpu', 'an unknown CPU')}, {host.get('cpus')} CPUs; Python {host['python']}; {versions}",
        f"{', '.join(target['plugins'])}; {host.get('date', '')}; seed {document['settings']['seed']}",
        f"ceilings of this run: {ceilings['bytes_per_s'] / 1e9:.4g} GB/s (a copy), {reading}{rates} (torch.matmul)",
        device_line(document["device"]),
        _busy_line(document),
    ]
    return [line for line in lines if line]


def device_line(seen: Mapping[str, Any]) -> str:
    """Clocks, power and what slowed the device down, in a line."""
    if "not_watched" in seen:
        return f"clocks were not watched: {seen['not_watched']}"
    low, high = seen["clock_mhz"]
    slowed = ", ".join(f"{said} in {share:.0%} of the readings" for said, share in seen["slowed_by"].items())
    return (
        f"clocks {low:.0f} to {high:.0f} MHz, at most {seen['power_w']:.0f} W and {seen['temperature_c']:.0f} °C; "
        f"slowed by: {slowed or 'nothing'}"
    )


def _busy(row: Mapping[str, Any]) -> bool:
    """Whether other processes took so much of the CPU while a row was timed on it that its times say little."""
    return (row.get("others_share") or 0.0) >= BUSY_SHARE


def _marked(label: str, row: Mapping[str, Any]) -> str:
    return f"{label} (busy)" if _busy(row) else label


def _busy_line(document: Document) -> str:
    rows = [row for row in document["rows"] if _busy(row)]
    if not rows:
        return ""
    most = max(row["others_share"] for row in rows)
    timed = sum("others_share" in row for row in document["rows"])
    return (
        f"the CPU was busy: other processes took up to {most:.0%} of its time while {len(rows)} of {timed} rows were"
        " timed on it; times and ratios of rows marked (busy) say little"
    )


def timing(document: Document) -> str:
    """How long the run took, and what the columns mean."""
    parts = ", ".join(f"{what} {seconds:.0f} s" for what, seconds in document["seconds"].items())
    return (
        "Medians of interleaved runs; in brackets the interval that holds the ratio with 95%. Cold: nothing of a "
        "call's tensors is in the caches before it. Of bound: the least time that the ceilings of this run allow, over "
        "the time taken with cold caches. The ceilings are the bandwidth of a copy and the rate of the fastest library "
        f"product; for mla, the bandwidth is that of a sum where a sum is faster than a copy. This run: {parts}."
    )


def _present(document: Document) -> list[str]:
    found = {row["operator"] for row in document["rows"]}
    return [operator for operator in OPERATORS if operator in found]


def _rows(document: Document, operator: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Cells and style of each line: ours first, then each that it is held against."""
    blank = [""] * (len(_HEADS) - 2)
    absent = _absent(document, operator)
    for row in _of(document, operator):
        label = _label(document, row)
        if not row["contenders"]:
            yield (label, row["status"], *blank), "yellow"
        for name, entry in row["contenders"].items():
            if name in absent:
                continue
            shown = _marked(label, row) if name == next(iter(row["contenders"])) else ""
            if "cold" in entry:
                yield (shown, title(name), *_cells(row, name, entry)), "" if name in (RULE, TUNED) else "dim"
            else:
                status = "not timed" if entry["status"] == "ok" else entry["status"]
                yield (shown, f"{title(name)}: {status}", *blank), "yellow"


def _notes(document: Document, operator: str) -> list[str]:
    """What is particular about contenders, and why some have no figures: each said once, with the shapes it is of."""
    found: dict[str, list[str]] = {}
    absent = _absent(document, operator)
    for row in _of(document, operator):
        said = [f"not measured: {row['reason']}"] if row["reason"] else []
        for name, entry in row["contenders"].items():
            text = entry.get("reason") or entry.get("note")
            said += [f"{title(name)}{' not measured' if name in absent else ''}: {text}"] if text else []
        for text in said:
            found.setdefault(text, []).append(_label(document, row))
    every = len(_of(document, operator))
    return [text if len(labels) == every else f"{text} ({', '.join(labels)})" for text, labels in found.items()]


def _absent(document: Document, operator: str) -> frozenset[str]:
    """Contenders, other than ours, without a figure in any row, of which every row says why: a note says it once."""
    rows = [row for row in _of(document, operator) if row["contenders"]]
    names = {name for row in rows for name in row["contenders"]} - {RULE, TUNED}
    return frozenset(
        name
        for name in names
        if all("cold" not in (entry := row["contenders"].get(name, {})) and entry.get("reason") for row in rows)
    )


def _of(document: Document, operator: str) -> list[Mapping[str, Any]]:
    return [row for row in document["rows"] if row["operator"] == operator]


def _label(document: Document, row: Mapping[str, Any]) -> str:
    """The row's shape, with the type where the operator has rows of several."""
    several = len({other["dtype"] for other in _of(document, row["operator"])}) > 1
    return f"{row['label']} {row['dtype']}" if several else str(row["label"])


def _cells(row: Mapping[str, Any], name: str, entry: Mapping[str, Any]) -> list[str]:
    cold, warm = entry["cold"], entry["warm"]
    compute = row["operator"] in _COMPUTE
    amount = row["flops"] / 1e12 if compute else row["bytes_moved"] / 1e9
    cells = [
        f"{cold['median_s'] * 1e6:.4g}",
        f"{warm['median_s'] * 1e6:.4g}",
        f"{amount / cold['median_s']:.4g} {'TFLOP/s' if compute else 'GB/s'}",
        f"{cold['share_of_bound']:.1%}",
    ]
    for l2 in ("cold", "warm"):
        found = row["ratios"].get(RULE, {}).get(name, {}).get(l2)
        if found is None or name == RULE:
            cells.append("")
        elif l2 == "cold":
            cells.append(f"{found['value']:.3f}x [{found['low']:.3f}, {found['high']:.3f}]")
        else:
            cells.append(f"{found['value']:.3f}x")
    return cells


def _means(document: Document, operator: str) -> str:
    """Geometric means against each alternative that every measured row of ours was held against."""
    rows = _of(document, operator)
    names = dict.fromkeys(name for row in rows for name in row["ratios"].get(RULE, {}))
    said = []
    for name in names:
        values = [value for row in rows if (value := ratio(row, name)) is not None]
        if len(values) > 1:
            said.append(f"{geometric_mean(values):.3f}x {title(name)} over {len(values)}")
    return ", ".join(said)


_LAUNCH_HEADS = ("launched by", "median, us", "95%", "p99, us")


def _launches(launch: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    if "host_time_per_call" not in launch:
        yield (f"{launch['status']}: {launch['reason']}", "", "", "")
        return
    for name, one in launch["host_time_per_call"].items():
        yield name, f"{one['median_us']:.2f}", f"{one['low_us']:.2f} to {one['high_us']:.2f}", f"{one['p99_us']:.2f}"
    for name, why in launch["not_measured"].items():
        yield f"{name} not measured: {why}", "", "", ""


def _cpu_note(launch: Mapping[str, Any]) -> str:
    """Where the host's time was taken, and how unlike it the other CPUs were."""
    cpu = launch.get("cpu")
    if cpu is None:
        return ""
    moves = cpu["moves"]
    moved = f"; moved {moves} time{'' if moves == 1 else 's'} to stay on a quiet one" if moves else ""
    return (
        f"on the quietest of {cpu['cpus']} CPUs: a loop of Python took {cpu['loop_us']:.0f} us there, and"
        f" {cpu['slowest_us']:.0f} us on the slowest{moved}"
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    marks = ["---" if head in ("", "shape", "by", "goal", "cold", "warm", "launched by") else "--:" for head in heads]
    return [line(heads), line(marks), *(line(cells) for cells in rows)]
