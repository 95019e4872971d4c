"""`tilehal describe`: what a chip is, with a source for every figure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from core.cli._options import refuse_idle_options
from core.cli._output import check_drawable, console, print_json
from core.errors import DeviceUnavailable, TileHALError

if TYPE_CHECKING:
    from core.hardware import Chip
    from core.plugins import Answer
    from core.target import Target

#: Exit status when the device says something else than the descriptor.
DIFFERENT_STATUS = 1

#: Parameters of :func:`describe` that each way of describing chips takes, besides their names.
_TAKES = {
    "--roofline": ("roofline", "dtype"),
    "--verify": ("verify", "as_json"),
    "--json": ("as_json", "sources", "compare"),  # it is the same document with the sources, of one chip or several
    "--compare": ("compare",),
    "a description": ("sources",),
}


def describe(
    context: typer.Context,
    target: list[str] = typer.Option(
        [], "--target", "-t", help="vendor or vendor:chip, also with changes: metax:c500+shared=128KiB."
    ),
    list_all: bool = typer.Option(False, "--list", help="List every chip of every installed backend."),
    compare: bool = typer.Option(False, "--compare", help="Show several targets side by side."),
    targets: list[str] = typer.Argument(None, metavar="[TARGET]...", help="Targets, the same as --target."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON that fits --schema."),
    schema: bool = typer.Option(False, "--schema", help="Print the JSON Schema of --json."),
    sources: bool = typer.Option(False, "--sources", help="Show where each figure comes from."),
    verify: bool = typer.Option(False, "--verify", help="Ask device and vendor's tools; show what differs."),
    roofline: Path | None = typer.Option(None, "--roofline", metavar="FILE", help="Draw rooflines into a picture."),
    dtype: str | None = typer.Option(
        None, "--dtype", help="Operand type of --roofline; default: several for one chip, float16 for more."
    ),
) -> None:
    """Describe chips: compute units, memories, matrix instructions, peak rates, limits.

    A figure nobody has published prints as unknown; nothing is guessed. Without a target, every chip is listed.
    """
    if schema:
        refuse_idle_options(context, "--schema", ("schema", "as_json"))
        from core.hardware.document import json_schema

        print_json(json_schema())
        return
    wanted = [*target, *(targets or ())]
    if list_all or not wanted:
        if wanted or compare or verify or sources or roofline or dtype:
            raise typer.BadParameter("name the targets, or use --list alone (or with --json)")
        _list(as_json=as_json)
        return
    asked = {"--roofline": roofline is not None, "--verify": verify, "--json": as_json, "--compare": compare}
    mode = next((option for option, given in asked.items() if given), "a description")
    refuse_idle_options(context, mode, ("target", "targets", *_TAKES[mode]))
    check_drawable(roofline, "--roofline")
    resolved = [_resolve(name) for name in wanted]
    chips = [one.chip for one in resolved]
    if roofline is not None:
        _draw(chips, roofline, dtype)
    elif verify:
        _verify(resolved, as_json=as_json)
    elif as_json:
        _print_document(chips)
    elif compare:
        from core.hardware.rendering import print_comparison

        print_comparison(chips, console())
    else:
        _print(chips, sources=sources)


def _resolve(name: str) -> Target:
    from core.target import resolve

    return resolve(name)


def _print(chips: list[Chip], *, sources: bool) -> None:
    from core.hardware.rendering import print_chip, print_sources

    out = console()
    for index, chip in enumerate(chips):
        if index:
            out.rule(style="dim")
        (print_sources if sources else print_chip)(chip, out)


def _print_document(chips: list[Chip]) -> None:
    from core.hardware.document import description

    print_json(description(chips).model_dump(mode="json"))


def _list(*, as_json: bool) -> None:
    """Every chip of every backend that loads; a backend that does not is named with its reason, on stderr."""
    from core.plugins import manager

    plugins = manager()
    chips = []
    failed = []
    for vendor in plugins.vendors():
        try:
            chips.append(plugins.backend(vendor).chips())
        except TileHALError as error:
            failed.append(f"{vendor}: {error.message}")
    if as_json:
        _print_document([chip for own in chips for chip in own])
    else:
        from core.hardware.rendering.listing import print_listing

        print_listing(chips, console())
    for reason in failed:
        console(stderr=True).print(f"[red]not loaded[/red] {reason}", soft_wrap=True)


def _draw(chips: list[Chip], path: Path, dtype: str | None) -> None:
    from core.hardware.picture import draw_rooflines

    roofs = draw_rooflines(chips, path, dtype)
    out = console()
    for roof in roofs:
        out.print(
            f"{roof.target}  {roof.dtype} {roof.unit}: peak {roof.peak_ops_per_s / 1e12:.4g} T/s, "
            f"{roof.bandwidth_bytes_per_s / 1e12:.3g} TB/s, ridge at {roof.ridge_ops_per_byte:.0f} operations per byte"
        )
    missing = [chip.target for chip in chips if chip.target not in {roof.target for roof in roofs}]
    if missing:
        out.print(f"not drawn, a peak or the bandwidth is unknown: {', '.join(missing)}")
    out.print(f"written to {path}", soft_wrap=True)


def _verify(resolved: list[Target], *, as_json: bool) -> None:
    from core.hardware import verify
    from core.hardware.rendering import print_verification

    different = False
    documents = []
    for target in resolved:
        answers = _answers(target)
        if not answers:
            raise _no_device(target)
        for answer in answers:
            checks = verify(target.chip, answer.facts)
            different |= any(check.verdict == "differs" for check in checks)
            if as_json:
                rows = [
                    {"path": check.path, "described": check.described, "found": check.found, "verdict": check.verdict}
                    for check in checks
                ]
                documents.append({"target": target.chip.target, "evidence": answer.evidence, "checks": rows})
            else:
                print_verification(target.chip, answer.evidence, checks, console())
    if as_json:
        print_json(documents)
    if different:
        raise typer.Exit(DIFFERENT_STATUS)


def _answers(target: Target) -> list[Answer]:
    """Everybody who can say what the chip is: the device, when it is here, and the vendor's tools."""
    from core.plugins import Answer, manager

    device = target.find_device()
    answers = [Answer(device.evidence, device.facts)] if device is not None else []
    backend = manager().backend(target.vendor)
    if backend.implements("tilehal_answers", target.chip):
        answers += backend.call("tilehal_answers", chip=target.chip)
    return answers


def _no_device(target: Target) -> DeviceUnavailable:
    """Why there is nothing to verify against, in the words of the vendor's own backend."""
    from core.plugins import manager

    try:
        target.require_device()
    except DeviceUnavailable as error:
        findings = manager().backend(target.vendor).call("tilehal_diagnose", chip=target.chip)
        said = "\n".join(f"  {finding.code}: {finding.message}" for finding in findings)
        return DeviceUnavailable(
            f"nothing to verify {target.chip.target} against. {error.message}\n{said}",
            hint="run this on a machine with the device; --sources shows where each figure comes from",
            details=error.details,
        )
    raise AssertionError("a device was found after all")
