"""What a kernel's parameters became: the entries of `kernel.config`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from core.compiler.artifacts import CompileOptions, LoweredKernel
from core.program.nodes import For, LoopKind
from core.program.walk import statements
from core.runtime.report import ConfigEntry, KernelConfig

if TYPE_CHECKING:
    from core.compiler.choosing import Chosen
    from core.program import Program


def kernel_config(
    program: Program,
    lowered: LoweredKernel,
    options: CompileOptions,
    chosen: Chosen | None,
    keys: Mapping[str, str],
) -> KernelConfig:
    """The tile parameters with what the chip made of them.

    A backend says so in `lowered.metadata["effective"]`, by key: `{"threads": [384, "why"], "stages": [None, "why"]}`.
    `core.codegen.tir.effective` does for the families that rewrite TIR. Threads and stages that are no parameter but a
    number in the kernel's text are listed too.

    Args:
        chosen: the tile parameters of a factory; None for any other kernel.
        keys: each tile parameter's key: its dimension, `threads` or `stages`.
    """
    effective: Mapping[str, Any] = lowered.metadata.get("effective", {})
    entries: dict[str, ConfigEntry] = {}
    if chosen is not None:
        for name, value in chosen.tiles.items():
            who = chosen.chosen_by[name]
            reason = chosen.choice.rules.get(who.removeprefix("rule:"), "")
            found = effective.get(keys[name])
            if keys[name] == "threads":
                found = _launched(value, _written_threads(program), found)
            if keys[name] == "stages":
                found = _pipelined(value, _written_stages(program), found)
            entries[name] = _entry(value, who, found, reason)
    if "threads" not in keys.values() and program.view.launches:
        entries["threads"] = _entry(_written_threads(program), "kernel", effective.get("threads"))
    stages = _written_stages(program)
    if "stages" not in keys.values() and stages is not None:
        entries["num_stages"] = _entry(stages, "kernel", effective.get("stages"))
    relaxations = tuple(lowered.metadata.get("relaxations", ()))
    if options.fast_math:
        relaxations = ("fast_math", *relaxations)
    if chosen is None:
        return KernelConfig(entries, relaxations)
    return KernelConfig(entries, relaxations, chosen.rejected, chosen.choice)


def _written_threads(program: Program) -> int | None:
    """Threads of a block as the kernel's text says, the most of its launches; None when it leaves them out."""
    given = [launch.threads for launch in program.view.launches if launch.threads is not None]
    return max((x * y * z for x, y, z in given), default=None)


def _written_stages(program: Program) -> int | None:
    """The deepest pipeline as the kernel's text says; None when no loop has one."""
    given = [s.num_stages for s in statements(program.view) if isinstance(s, For) and s.kind is LoopKind.PIPELINED]
    return max(given, default=None)


def _pipelined(parameter: Any, written: int | None, effective: Any) -> Any:
    """What became of a parameter of stages: the kernel itself may pipeline deeper or less deep than it says."""
    if effective is not None or written is None or written == parameter:
        return effective
    return [written, f"the kernel's own text pipelines {written} deep"]


def _launched(parameter: Any, written: int | None, effective: Any) -> Any:
    """What became of a parameter of threads: the kernel itself may launch others than it says."""
    nowhere = effective is not None and effective[0] is None
    if nowhere or written is None or not isinstance(parameter, int) or written == parameter:
        return effective
    more = f"{written - parameter} more than the parameter" if written > parameter else f"not all {parameter}"
    note = f"the kernel's own text launches {written}, {more}"
    return [written, note] if effective is None else [effective[0], f"{note}; {effective[1]}"]


def _entry(requested: Any, chosen_by: str, effective: Any, reason: str = "") -> ConfigEntry:
    value, note = (requested, "") if effective is None else effective
    return ConfigEntry(requested, value, chosen_by, note, reason)
