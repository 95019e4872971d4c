"""`tilehal compile FILE:FUNCTION`: compile a kernel from a file, show or keep what comes out, and try it."""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from core.cli._building import running_tools_shown
from core.cli._durations import METAVAR, seconds_of, time_text
from core.cli._kernels import DynamicExtent, dynamic_arguments, load_kernel, parse_dynamic, parse_parameters
from core.cli._output import check_writable, console, print_json, write_file
from core.errors import KernelError

if TYPE_CHECKING:
    from core.runtime.kernel import Kernel
    from core.runtime.report import Provenance, TileChoice


class Emit(StrEnum):
    """What `--emit` writes."""

    source = "source"
    binary = "binary"


def compile_(
    kernel: Annotated[str, typer.Argument(metavar="FILE:FUNCTION", help="Python file and the kernel's name in it.")],
    target: Annotated[str, typer.Option(help="Chip to compile for: cuda:h200, metax, cpu, auto, ...")] = "auto",
    param: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Argument of the factory; repeat it for each.")
    ] = None,
    dynamic: DynamicExtent = None,
    emit: Annotated[Emit | None, typer.Option(help="Write the native source, or the built binary.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Where --emit writes; source: stdout.")] = None,
    run: Annotated[bool, typer.Option("--run", help="Run it on random inputs and report the time.")] = False,
    simulate: Annotated[bool, typer.Option(help="With --run: on the chip's CPU simulator.")] = False,
    fast_math: Annotated[bool, typer.Option(help="Allow approximate maths and TF32.")] = False,
    timeout: Annotated[
        str | None, typer.Option(metavar=METAVAR, help="What the native compiler may take: 90s, 10m.")
    ] = None,
    verbose: Annotated[bool, typer.Option(help="Show the compilers' commands and messages.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable report.")] = False,
) -> None:
    """Compile a TileLang kernel for a chip."""
    from core.compiler.driver import compile as compile_kernel

    to_stdout = emit is Emit.source and output is None and not as_json
    if to_stdout and run:
        raise typer.BadParameter("--emit source fills stdout, where --run reports: give --output, or --json")
    if output is not None and emit is None:
        raise typer.BadParameter("--output is where --emit writes: say --emit source, or --emit binary")
    check_writable(output, "--output")
    limit_s = None if timeout is None else seconds_of(timeout, "--timeout")
    parameters, sizes = parse_parameters(param or ()), parse_dynamic(dynamic or (), measured=run)
    taken = sorted(parameters.keys() & inspect.signature(compile_kernel).parameters.keys())
    if taken:
        raise KernelError(
            f"--param {taken[0]}: core.compile takes an argument of that name itself, so the factory cannot get one",
            hint="give the factory's parameter another name, or a function in the file that sets it",
        )
    function = load_kernel(kernel)
    parameters = dynamic_arguments(function, parameters, sizes)
    started = time.perf_counter()
    # With --verbose the compilers' own messages say what is going on.
    with nullcontext() if verbose else running_tools_shown():
        compiled = compile_kernel(
            function,
            target=target,
            simulate=simulate,
            fast_math=fast_math,
            options=None if limit_s is None else {"timeout_s": limit_s},
            verbose=verbose,
            build=True if emit is Emit.binary else False if not run else None,
            **parameters,
        )
    seconds = time.perf_counter() - started
    if to_stdout:
        sys.stdout.write(compiled.get_kernel_source())
        return
    written = _emit(compiled, emit, output)
    symbols = {name: extent for name, extent in sizes.items() if extent is not None}
    timing = _run(compiled, symbols) if run else None
    if as_json:
        report = {
            "kernel": compiled.name,
            "target": compiled.target,
            "config": compiled.config.to_json(),
            "resources": asdict(compiled.resources),
            "provenance": compiled.provenance.to_json(),
            "compile_s": seconds,
            "written": str(written) if written else None,
            "run": timing,
        }
        if emit is Emit.source and output is None:
            report["source"] = compiled.get_kernel_source()
        print_json(report)
    else:
        _show(compiled, seconds, written, timing)


def _emit(compiled: Kernel, emit: Emit | None, output: Path | None) -> Path | None:
    if emit is Emit.source and output is not None:
        write_file(output, compiled.get_kernel_source(), "--output")
        return output
    if emit is Emit.binary:
        built = compiled.binary()
        destination = output or Path(f"{compiled.name}-{compiled.target.replace(':', '-')}{built.suffix}")
        write_file(destination, built.read_bytes(), "--output")
        return destination
    return None


def _run(compiled: Kernel, symbols: Mapping[str, int]) -> dict[str, Any]:
    """Median and spread of a few calls on random inputs, milliseconds of wall time with the device synchronised.

    Args:
        symbols: extents of the symbolic dimensions.
    """
    import statistics

    import torch

    from core.runtime.signature import ScalarArgument
    from core.tuning.inputs import make_arguments

    signature = compiled.program.signature
    unsaid = [name for name in signature.symbols if name not in symbols]
    if unsaid:
        raise KernelError(
            f"{compiled.name} has symbolic dimensions ({', '.join(unsaid)}): --run cannot choose them",
            hint=f"say what to run with: --dynamic {unsaid[0]}=4096",
        )
    device = compiled.device_type
    numbers = {argument.name: 1 for argument in signature.arguments if isinstance(argument, ScalarArgument)}
    arguments = make_arguments(signature, device, symbols=symbols, values=numbers)
    inputs = [value for index, value in enumerate(arguments) if index not in signature.outputs]
    times = []
    for _ in range(8):
        started = time.perf_counter()
        compiled(*inputs)
        getattr(torch, device).synchronize()
        times.append((time.perf_counter() - started) * 1e3)
    return {"median_ms": statistics.median(times[1:]), "fastest_ms": min(times), "first_ms": times[0], "calls": 8}


def _show(compiled: Kernel, seconds: float, written: Path | None, timing: dict[str, Any] | None) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    provenance, resources = compiled.provenance, compiled.resources
    table.add_row("kernel", f"{compiled.name} for {compiled.target} ({escape(compiled.chip.title)})")
    table.add_row("route", f"{provenance.route}, {provenance.language}")
    table.add_row("evidence", _evidence(provenance))
    table.add_row("backend", ", ".join((provenance.backend, *provenance.extensions)))
    for name, entry in compiled.config.items():
        value = str(entry.requested)
        if entry.effective != entry.requested:
            value += f" -> {'does not apply' if entry.effective is None else entry.effective} ({escape(entry.note)})"
        table.add_row(name, f"{value}  [dim]{entry.chosen_by}[/dim]")
    if compiled.config.choice is not None:
        for index, text in enumerate(_choice(compiled.config.choice)):
            table.add_row("" if index else "chosen", f"[dim]{escape(text)}[/dim]")
    for rejection in compiled.config.rejected:
        table.add_row("[dim]not used[/dim]", f"[dim]{escape(f'{dict(rejection.tiles)}: {rejection.reason}')}[/dim]")
    known = resources.actual or resources.predicted
    label = "actual" if resources.actual else "predicted"
    figures = [f"{space} {size:,} B" for space, size in known.memory_bytes.items() if size]
    for name, unit in (("registers_per_thread", "registers/thread"), ("spill_store_bytes", "B spilled")):
        value_of = getattr(known, name)
        if value_of is not None:
            figures.append(f"{value_of} {unit}")
    nothing = "no on-chip memory" if known.memory_bytes else "unknown"
    table.add_row(label, ", ".join(figures) or nothing)
    if known.arithmetic_intensity is not None:
        table.add_row("intensity", f"{known.arithmetic_intensity:.3g} FLOP per byte of global memory")
    table.add_row("compiled in", f"{seconds * 1e3:.0f} ms{_cached(provenance)}")
    if provenance.toolchain:
        table.add_row("toolchain", escape(provenance.toolchain))
    if written:
        table.add_row("written", escape(str(written)))
    if timing:
        where = "simulated on the CPU" if compiled.simulated else compiled.target
        table.add_row("run", f"{timing['median_ms']:.3f} ms median of {timing['calls'] - 1}, wall ({where})")
    console().print(table)


def _evidence(provenance: Provenance) -> str:
    """How far this kernel was taken here; what a target as a whole has been shown to do is in README."""
    if provenance.evidence == "source only":
        return "source only: this kernel was not built; --emit binary builds it, --run builds and runs it"
    return provenance.evidence


def _choice(choice: TileChoice) -> list[str]:
    """How the tile parameters came to be: the place in the ranking, the prediction, and each rule's own reason."""
    if choice.source == "user":
        first = "all by the user"
    elif choice.source == "ranking":
        first = f"place {choice.place} of {choice.ranked} ranked, {choice.refused} refused; {choice.reason}"
    else:
        first = f"{choice.source}; {choice.reason}"
    if choice.predicted_s is not None:
        first += f"; predicted {time_text(choice.predicted_s)}"
    return [first, *(f"{name}: {reason}" for name, reason in choice.rules.items())]


def _cached(provenance: Provenance) -> str:
    """What of a compilation came from the cache: the rest took the time."""
    parts = (("source", provenance.source_cached), ("binary", provenance.binary_cached))
    cached = [name for name, was_cached in parts if was_cached]
    return f" ({' and '.join(cached)} cached)" if cached else ""
