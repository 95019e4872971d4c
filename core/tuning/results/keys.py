"""The key of a result: which kernel with which arguments and options, on which chip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from core.tiling.fingerprint import source_fingerprint
from core.tiling.tracing import is_symbol
from core.tuning.environment import Environment
from core.tuning.results.records import Key

if TYPE_CHECKING:
    from core.compiler.artifacts import CompileOptions
    from core.hardware import Chip
    from core.tiling import Tiles, Value
    from core.tiling.factory import KernelFactory

#: Stands for an environment that nobody has asked for yet.
UNASKED = Environment("", "", "", "", ())


def key_of(
    factory: KernelFactory,
    arguments: Mapping[str, Any],
    chip: Chip,
    options: CompileOptions | None,
    tiles: Tiles,
    *,
    dtypes: Sequence[str] = (),
    environment: Environment = UNASKED,
) -> Key:
    """The key that results of a compilation have. Nothing is traced for it.

    Args:
        arguments: every argument but the tile parameters.
        options: how it is compiled; None is the defaults.
        tiles: tile parameters that the user gave.
        dtypes: of the tensor parameters, where a trace has said them.

    Raises:
        KernelError: an argument or an option has no stable form.
    """
    from core.compiler.keys import canonical

    return Key(
        kernel=factory.name,
        fingerprint=source_fingerprint(factory),
        arguments=canonical(stored_arguments(arguments)),
        dtypes=tuple(dtypes),
        chip=chip.target,
        environment=environment,
        options=options_text(options, tiles),
    )


def stored_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as a key has them: a symbolic dimension stands there by its name."""
    return {name: f"T.dynamic({value.name})" if is_symbol(value) else value for name, value in arguments.items()}


def options_text(options: CompileOptions | None, tiles: Mapping[str, Value]) -> str:
    """What of a compilation's options, and of tiles given by the user, is in a key; empty for nothing.

    Raises:
        KernelError: an option has no stable form.
    """
    from core.compiler.artifacts import CompileOptions
    from core.compiler.keys import canonical

    usual = CompileOptions()
    given = options or usual
    values = {
        field.name: getattr(given, field.name)
        for field in fields(given)
        if field.compare and getattr(given, field.name) != getattr(usual, field.name)
    }
    if tiles:
        values["tiles"] = dict(tiles)
    return canonical(values) if values else ""
