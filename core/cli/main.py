"""`tilehal`, which is also `python -m core`: the table of commands, each loaded when it is called.

`tilehal --help` imports no command. An error of ours is printed without a traceback and the exit status is 2;
`TILEHAL_TRACEBACK=1` shows the traceback instead.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from core.cli._output import accept_any_text, print_error, print_warnings_plainly, wants_traceback
from core.errors import TileHALError

#: Exit status of a command that ended with one of our errors; the same as for wrong usage.
ERROR_STATUS = 2

#: Commands whose `--json` names a file: what they print is for people.
_JSON_INTO_FILE = ("bench",)

#: What becomes of output when there is no room or no place for it.
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)

#: name: (module, function or Typer app in it, what `--help` says about it), in the order `--help` lists them.
COMMANDS: dict[str, tuple[str, str, str]] = {
    "describe": (
        "core.cli.describe",
        "describe",
        "Describe chips: units, memories, peak rates, and where each figure comes from.",
    ),
    "targets": ("core.cli.targets", "targets", "List every known target and what it can do on this machine."),
    "compile": ("core.cli.compile", "compile_", "Compile a kernel from a file for a chip."),
    "tile": (
        "core.cli.tile",
        "tile",
        "Show the tiles a chip's rules consider for a kernel, in what order, and why.",
    ),
    "tune": (
        "core.cli.tune",
        "tune",
        "Measure a kernel's best tiles on the chip, for later compilations; show and hand on results.",
    ),
    "baseline": (
        "core.cli.baseline",
        "app",
        "Record what kernels cost as a file for git, show it, and say what got slower since.",
    ),
    "bench": (
        "core.cli.bench",
        "bench",
        "Measure the operators against what a user would pick instead: libraries, Triton, a copy's bandwidth.",
    ),
    "portability": (
        "core.cli.portability",
        "portability",
        "Say, for each line of a kernel, which chips take it as it is, and what to change for the others.",
    ),
    "doctor": ("core.cli.doctor", "doctor", "Find out what is wrong with this installation and its backends."),
    "cache": ("core.cli.cache", "app", "Show, check and clear the cache of compiled kernels."),
}


class LazyCommand(TyperCommand):
    """A command known by name and help; its module is imported when it is called."""

    def load(self) -> Any:
        """The real command."""
        assert self.name is not None
        module, attribute, _ = COMMANDS[self.name]
        found = getattr(import_module(module), attribute)
        if not isinstance(found, typer.Typer):
            function, found = found, typer.Typer(add_completion=False, pretty_exceptions_enable=False)
            found.command(self.name)(function)
        command = typer.main.get_command(found)
        command.name = self.name
        _unwrap(command)
        return command

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The context of the real command: from here on nothing of this stand-in takes part."""
        return self.load().make_context(info_name, args, parent=parent, **extra)


def _unwrap(command: Any) -> None:
    """Joins the lines of each paragraph of a command's and its subcommands' help: a terminal has a width of its own."""
    if command.help:
        command.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in command.help.split("\n\n"))
    for part in getattr(command, "commands", {}).values():
        _unwrap(part)


class LazyGroup(TyperGroup):
    """The group of `COMMANDS`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, (_, _, summary) in COMMANDS.items():
            self.add_command(LazyCommand(name, help=summary), name)


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(asked: bool) -> None:
    if asked:
        import core

        print(f"tilehal {core.__version__}")
        raise typer.Exit


@app.callback()
def tilehal(
    version: bool = typer.Option(False, "--version", callback=_show_version, is_eager=True, help="Print the version."),
) -> None:
    """TileHAL: one TileLang kernel, any chip."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line (default `sys.argv`) and returns its exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        app(args=words, prog_name="tilehal")
    except KeyboardInterrupt:
        return _interruption.status
    except TileHALError as error:
        if _interruption.came:
            return _interruption.status
        if wants_traceback():
            raise
        print_error(error, as_json="--json" in words and words[0] not in _JSON_INTO_FILE)
        return ERROR_STATUS
    except SystemExit as ended:
        if _interruption.came and ended.code:
            return _interruption.status
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except Exception:
        if _interruption.came:
            return _interruption.status
        raise
    return 0


class _Interruption:
    """Notes that Ctrl-C came, or that the process is asked to end, and interrupts what is being done alike.

    Without, SIGTERM and SIGHUP would end the process on the spot: compilers would go on for a while, folders half
    written would stay. Python raises KeyboardInterrupt wherever it is, and what is being imported then may swallow it
    and fail in a way of its own later: "cannot load module more than once per process".
    """

    def __init__(self) -> None:
        #: The signal that came; 0 while none has.
        self.came = 0

    @property
    def status(self) -> int:
        """The exit status of a command that was interrupted, as shells have it for a program that a signal ended."""
        return 128 + (self.came or signal.SIGINT)

    def listen(self) -> None:
        """Takes the signals that nobody has another use for: `nohup` has SIGHUP ignored."""
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self)
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, self)

    def __call__(self, number: int, frame: Any) -> None:
        self.came = number
        if number != signal.SIGINT:
            signal.signal(number, signal.SIG_DFL)  # whoever asks twice does not want to wait
        signal.default_int_handler(number, frame)


_interruption = _Interruption()


def main(arguments: Sequence[str] | None = None) -> None:
    """The program: runs a command line (default `sys.argv`) and ends the process with its exit status."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  (for the life of the process)
        accept_any_text(getattr(sys, name))
    print_warnings_plainly()
    _interruption.listen()
    try:
        status = run(arguments)
        sys.stdout.flush()
    except OSError as error:
        if error.filename is not None or error.errno not in _UNWRITABLE or wants_traceback():
            raise
        # What is still buffered cannot be written either, and Python would say so once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"tilehal: the output cannot be written: {error.strerror}", file=sys.stderr)
        status = ERROR_STATUS
    sys.exit(status)
