"""Options that a command line gives and nothing takes."""

from __future__ import annotations

from collections.abc import Collection

import typer


def refuse_idle_options(context: typer.Context, mode: str, used: Collection[str]) -> None:
    """Refuses what a command line gives beside the options that one way of using a command takes.

    Args:
        context: the command's.
        mode: what decides it, as the user wrote it or in words.
        used: names of the command function's parameters.

    Raises:
        typer.BadParameter: something else was given: whoever gave it expects it to do something.
    """
    idle = [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name not in used and _is_given(context, parameter.name)
    ]
    if idle:
        raise typer.BadParameter(f"{mode} has no use for {' and '.join(idle)}")


def _is_given(context: typer.Context, name: str | None) -> bool:
    source = context.get_parameter_source(name) if name else None
    return source is not None and source.name == "COMMANDLINE"
