"""How the commands print: tables and panels for people, JSON for programs, and errors the same way everywhere."""

from __future__ import annotations

import codecs
import io
import json
import os
import sys
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from core.errors import TileHALError

if TYPE_CHECKING:
    from rich.console import Console

#: Width used where there is no terminal to ask: what documentation and review tools show.
DEFAULT_WIDTH = 100

#: Signs of the tables as they are written where the output's encoding has none of them.
_PLAIN = {"·": "-", "–": "-", "×": "x", "≤": "<=", "→": "->", "±": "+-", "°": " degrees "}


def console(*, stderr: bool = False) -> Console:
    """A console as wide as the terminal; elsewhere as `COLUMNS` says, or 100 columns."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    told = stream.isatty() or os.environ.get("COLUMNS", "").isdecimal()
    return Console(stderr=stderr, width=None if told else DEFAULT_WIDTH, highlight=False)


def accept_any_text(stream: TextIO) -> None:
    """Lets a stream of any encoding take any text: signs in :data:`_PLAIN`, other letters as Python escapes."""
    codecs.register_error("tilehal-plain", _plain)
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="tilehal-plain")


def _plain(error: UnicodeError) -> tuple[str | bytes, int]:
    if isinstance(error, UnicodeEncodeError) and error.object[error.start] in _PLAIN:
        return _PLAIN[error.object[error.start]], error.start + 1
    return codecs.backslashreplace_errors(error)


def print_warnings_plainly() -> None:
    """Has this process print warnings of TileHAL's own kinds in a line, without the place in our code."""
    usual = warnings.formatwarning

    def text(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
    ) -> str:
        if category.__module__.partition(".")[0] == "core":
            return f"tilehal: warning: {message}\n"
        return usual(message, category, filename, lineno, line)

    warnings.formatwarning = text


def print_json(data: Any) -> None:
    """Prints data as JSON, two spaces deep, in the order it has; in ASCII unless the output takes every letter."""
    every = (sys.stdout.encoding or "").lower().startswith("utf")
    print(json.dumps(data, indent=2, ensure_ascii=not every, default=str))


def print_error(error: TileHALError, *, as_json: bool) -> None:
    """Prints an error: as JSON on stdout, where whoever asked for JSON reads, else as a panel on stderr."""
    if as_json:
        print_json({"error": error.to_json()})
        return
    from rich.panel import Panel
    from rich.text import Text

    body = Text(error.message)
    if error.location is not None:
        body = Text(f"{error.location}\n", style="bold") + body
    cause = error.__cause__
    said = cause.message if isinstance(cause, TileHALError) else str(cause)
    known = cause.strerror if isinstance(cause, OSError) and cause.strerror else said
    if cause is not None and known not in error.message:
        body.append(f"\n\ncaused by {type(cause).__name__}: {said}", style="dim")
    if error.hint:
        body.append("\n\nhint: ", style="bold green")
        body.append(error.hint)
    console(stderr=True).print(Panel(body, title=type(error).__name__, title_align="left", border_style="red"))


def check_writable(path: Path | None, option: str) -> None:
    """Refuses a file that cannot be written, before the work whose result it would take. None is no file.

    Raises:
        TileHALError: its folder is not there or may not be written to, or it is a folder; `option` is what named it.
    """
    if path is None:
        return
    if path.is_dir():
        raise TileHALError(f"{option} {path}: this is a folder", hint="name a file in it")
    if not path.parent.is_dir():
        raise TileHALError(
            f"{option} {path}: there is no folder {path.parent}",
            hint=f"make it (mkdir -p {path.parent}), or name another",
        )
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise TileHALError(f"{option} {path}: no permission to write it", hint="name a file that you may write")


def check_drawable(path: Path | None, option: str) -> None:
    """Refuses a picture that cannot be drawn or written, before the work whose result it would show. None is none.

    Raises:
        TileHALError: as :func:`check_writable`; or matplotlib is not installed, or the suffix is that of no format.
    """
    check_writable(path, option)
    if path is not None:
        from core._drawing import check_picture

        check_picture(path)


def write_file(path: Path, data: str | bytes, option: str) -> None:
    """Writes a whole file or, when that fails, none: what was there stays.

    Pipes, devices and files in a folder that takes no new ones are written to as they are.

    Raises:
        TileHALError: it cannot be written; `option` is what named it.
    """
    content = data.encode() if isinstance(data, str) else data
    try:
        destination = path.resolve()  # through a link, which stays one
        replaceable = destination.is_file() or not destination.exists()
        if not replaceable or not os.access(destination.parent, os.W_OK):
            destination.write_bytes(content)
            return
        handle, name = tempfile.mkstemp(prefix=f".{destination.name[:64]}.", dir=destination.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.chmod(name, destination.stat().st_mode & 0o777 if destination.exists() else 0o666 & ~_umask())
            os.replace(name, destination)
        except BaseException:
            with suppress(OSError):
                os.unlink(name)
            raise
    except OSError as error:
        raise TileHALError(
            f"{option} {path} cannot be written: {error.strerror or error}", hint="name a file that you may write"
        ) from error


def _umask() -> int:
    """The process's mask for new files, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def wants_traceback() -> bool:
    """Whether `TILEHAL_TRACEBACK` asks for Python tracebacks instead of the short form."""
    return os.environ.get("TILEHAL_TRACEBACK", "") not in ("", "0")
