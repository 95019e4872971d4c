"""Finding and running external compilers, the same way for every backend.

A backend asks :func:`find_program` for its compiler and, when it is missing, raises what `NotFound.error` makes: the
message lists every place that was looked at. It runs the compiler with :func:`run_tool`, which never reads the
terminal, never prints, never leaves a child behind, and turns a refusal into `BuildFailed` with the compiler's message,
its command and the source that is still on disk.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from core import processes
from core.errors import BuildFailed, ToolchainNotFound

if TYPE_CHECKING:
    from core.compiler.artifacts import CompileOptions

_LOG = logging.getLogger("tilehal.toolchain")

#: Most characters of a tool's output that an error message repeats; all of it is in `details["output"]`.
_MESSAGE_CHARACTERS = 4000
#: How long a tool may take to obey SIGTERM before it is killed.
_GRACE_S = 2.0


@dataclass(frozen=True, slots=True)
class FoundProgram:
    """A program on this machine.

    Attributes:
        path: the executable.
        arguments: words that belong to the program (`CXX="ccache g++"` finds `ccache`, with `g++` here).
        found_through: what led to it: `$CXX`, `PATH`, or a folder.
    """

    path: Path
    arguments: tuple[str, ...] = ()
    found_through: str = ""

    @property
    def command(self) -> tuple[str, ...]:
        """The words that start the program."""
        return (str(self.path), *self.arguments)


@dataclass(frozen=True, slots=True)
class NotFound:
    """No such program: `names` that would have served, and each place `looked` at with what was there."""

    names: tuple[str, ...]
    looked: tuple[str, ...]

    def error(self, purpose: str, hint: str) -> ToolchainNotFound:
        """The error to raise. `purpose` completes "... is needed to"; `hint` says what to install or set."""
        wanted = self.names[0] if len(self.names) == 1 else f"one of {', '.join(self.names)}"
        places = "\n".join(f"    {place}" for place in self.looked)
        return ToolchainNotFound(
            f"{wanted} is needed to {purpose}, and was not found. Looked at:\n{places}",
            hint=hint,
            details={"names": list(self.names), "looked": list(self.looked), "path": os.environ.get("PATH", "")},
        )


def find_program(
    names: Sequence[str],
    *,
    env_vars: Sequence[str] = (),
    env_homes: Sequence[str] = (),
    folders: Sequence[Path | str] = (),
    search_path: bool = True,
) -> FoundProgram | NotFound:
    """Looks for the first of `names`: in `env_vars`, under `env_homes`, on PATH, then in `folders`.

    Args:
        names: file names of the program, preferred first.
        env_vars: variables that hold a command (`CXX`). One that is set decides: when it names nothing that can be
            run, the answer is `NotFound`, since the user asked for that compiler and not for another.
        env_homes: variables that hold an installation folder (`CUDA_HOME`); `bin/` in it, then the folder itself.
        folders: places a vendor installs to, looked at last.
        search_path: whether PATH is looked at.
    """
    looked: list[str] = []
    for variable in env_vars:
        value = os.environ.get(variable, "").strip()
        if not value:
            looked.append(f"${variable} (not set)")
            continue
        words = shlex.split(value)
        program = shutil.which(words[0]) if words else None
        if program is None:
            looked.append(f"${variable}={value} (names no program that can be run)")
            return NotFound(tuple(names), tuple(looked))
        return FoundProgram(Path(program), tuple(words[1:]), f"${variable}")
    for variable in env_homes:
        value = os.environ.get(variable, "").strip()
        if not value:
            looked.append(f"${variable} (not set)")
            continue
        for folder in (Path(value) / "bin", Path(value)):
            found = _in_folder(names, folder)
            if found is not None:
                return FoundProgram(found, (), f"${variable}")
            looked.append(f"{folder} (${variable})")
    if search_path:
        for name in names:
            program = shutil.which(name)
            if program is not None:
                return FoundProgram(Path(program), (), "PATH")
        places = [folder for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
        looked.append(f"PATH ({len(places)} folder{'' if len(places) == 1 else 's'})")
    for folder in map(Path, folders):
        found = _in_folder(names, folder)
        if found is not None:
            return FoundProgram(found, (), str(folder))
        looked.append(str(folder) if folder.is_dir() else f"{folder} (no such folder)")
    return NotFound(tuple(names), tuple(looked))


def _in_folder(names: Sequence[str], folder: Path) -> Path | None:
    for name in names:
        candidate = folder / name
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return candidate
    return None


@dataclass(frozen=True, slots=True, eq=False)
class RunningTool:
    """A tool at work: its program's name, what it does (may be empty), and since when on `time.monotonic`'s clock."""

    program: str
    purpose: str
    since_s: float


_running: list[RunningTool] = []


def running_tools() -> tuple[RunningTool, ...]:
    """The tools that :func:`run_tool` is waiting for in this process, in the order they were started."""
    return tuple(_running)


@contextlib.contextmanager
def _shown(words: Sequence[str], purpose: str) -> Iterator[None]:
    tool = RunningTool(Path(words[0]).name, purpose, time.monotonic())
    _running.append(tool)
    try:
        yield
    finally:
        _running.remove(tool)


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool did: its exit status (negative: the signal that ended it), output, and wall time in seconds."""

    command: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str
    seconds: float

    @property
    def output(self) -> str:
        """Both streams, messages first."""
        return "\n".join(text for text in (self.stderr.strip("\n"), self.stdout.strip("\n")) if text)


def run_tool(
    command: Sequence[str | Path],
    *,
    cwd: Path | str,
    timeout_s: float = 600.0,
    env: Mapping[str, str] | None = None,
    source: Path | None = None,
    purpose: str = "",
    check: bool = True,
    verbose: bool = False,
    options: CompileOptions | None = None,
) -> ToolResult:
    """Runs an external tool to its end and returns what it said.

    The tool reads nothing (its standard input is empty), runs in a process group of its own, and speaks plain English
    (`LC_ALL=C`), so that its messages can be read by a program.

    Args:
        command: program and arguments; no shell is involved.
        cwd: folder it runs in. Pass file names relative to it: the command then still works wherever the folder moves.
        timeout_s: the whole group is stopped after this many seconds of wall time, unless `options` say another limit.
        env: variables added to this process's environment.
        source: the generated source at fault when it fails; named in the error.
        purpose: what the tool was doing, for the error ("compile softmax for cuda:h200").
        check: raise when the exit status is not 0.
        verbose: write the command and what the tool says to standard error.
        options: of the compilation that the tool is run for: the user's `timeout_s` goes before ours, and an error
            about the time says that there is such an option.

    Raises:
        ToolchainNotFound: the program cannot be started.
        BuildFailed: it failed (and `check`), or did not finish in time. `details` has `command`, `directory`,
            `returncode`, `output`, `source`, `transient`: true when trying again may succeed (a timeout, a signal), and
            `timeout_s`: the limit that it did not keep, else None.
    """
    words = tuple(str(word) for word in command)
    environment = {**os.environ, "LC_ALL": "C", **(env or {})}
    _LOG.debug("%s", shlex.join(words))
    if verbose:
        sys.stderr.write(shlex.join(words) + "\n")
    if options is not None and options.timeout_s is not None:
        timeout_s = options.timeout_s
    started = time.monotonic()
    # Files, not pipes: output of any size cannot block the tool, and a grandchild that escapes cannot block us.
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        try:
            process = processes.start(
                words, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr
            )
        except OSError as error:
            if not Path(cwd).is_dir():
                raise
            raise ToolchainNotFound(
                f"{words[0]} cannot be started: {error.strerror or error}",
                hint="check that the file exists, is executable and is made for this machine",
                details={"command": list(words)},
            ) from error
        timed_out = False
        try:
            with _shown(words, purpose):
                returncode = _wait(process, timeout_s)
            processes.forget(process)
        except subprocess.TimeoutExpired:
            timed_out = True
            returncode = processes.end(process, _GRACE_S)
        except BaseException:
            # Ctrl-C reaches us and not the tool, which is in another group.
            processes.end(process, _GRACE_S)
            raise
        result = ToolResult(words, returncode, _text(stdout), _text(stderr), time.monotonic() - started)
    if verbose and result.output:
        sys.stderr.write(result.output + "\n")
    if timed_out or (check and returncode != 0):
        raise _failure(result, Path(cwd), source, purpose, timeout_s if timed_out else None, options is not None)
    return result


def _wait(process: subprocess.Popen[bytes], timeout_s: float) -> int:
    """What `process.wait(timeout_s)` does, which looks every 50 ms; this returns when the process ends, on Linux."""
    try:
        handle = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # another system, or a kernel before 5.3
        return process.wait(timeout_s)
    try:
        end = select.poll()
        end.register(handle, select.POLLIN)
        if not end.poll(timeout_s * 1e3):
            raise subprocess.TimeoutExpired(process.args, timeout_s)
    finally:
        os.close(handle)
    return process.wait()


def _text(stream: IO[bytes]) -> str:
    stream.seek(0)
    return stream.read().decode("utf-8", errors="replace")


def _failure(
    result: ToolResult,
    cwd: Path,
    source: Path | None,
    purpose: str,
    timed_out_after_s: float | None,
    has_option: bool,
) -> BuildFailed:
    hint = "read the source where it is, or run the command again in that folder"
    if timed_out_after_s is not None and has_option:
        hint = 'give it longer: options={"timeout_s": SECONDS}, or `tilehal compile --timeout 20m`'
    program = Path(result.command[0]).name
    if timed_out_after_s is not None:
        what = f"did not finish within {timed_out_after_s:g} s and was stopped"
    elif result.returncode < 0:
        what = f"was ended by signal {-result.returncode} ({_signal_name(-result.returncode)})"
    else:
        what = f"failed with exit status {result.returncode}"
    output = result.output
    shown = output
    if len(output) > _MESSAGE_CHARACTERS:
        shown = output[:_MESSAGE_CHARACTERS] + f"\n... ({len(output) - _MESSAGE_CHARACTERS} more characters)"
    lines = [f"{program} {what}" + (f" (to {purpose})" if purpose else "")]
    lines += [f"    {line}" for line in shown.splitlines()]
    lines.append(f"  command: {shlex.join(result.command)}")
    lines.append(f"  in folder: {cwd}")
    if source is not None:
        source = source if source.is_absolute() else cwd / source
        lines.append(f"  source: {source}")
    return BuildFailed(
        "\n".join(lines),
        hint=hint,
        details={
            "command": list(result.command),
            "directory": str(cwd),
            "returncode": result.returncode,
            "output": output,
            "source": None if source is None else str(source),
            "transient": timed_out_after_s is not None or result.returncode < 0,
            "timeout_s": timed_out_after_s,
        },
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


_VERSIONS: dict[tuple[object, ...], str] = {}


def tool_version(program: FoundProgram, arguments: Sequence[str] = ("--version",), *, timeout_s: float = 20.0) -> str:
    """All that `program` prints when asked for its version, stripped: what tells two toolchains apart in cache keys.

    Asked once per process and file: a compiler replaced in place is asked again.

    Raises:
        ToolchainNotFound: it cannot be started, or fails when asked.
    """
    stat = program.path.stat()
    memo = (program.command, tuple(arguments), stat.st_ino, stat.st_size, stat.st_mtime_ns)
    if memo not in _VERSIONS:
        try:
            result = run_tool((*program.command, *arguments), cwd=Path("/"), timeout_s=timeout_s)
        except BuildFailed as error:
            raise ToolchainNotFound(
                f"{shlex.join(program.command)} (found through {program.found_through}) does not work:\n"
                f"    {error.details['output'] or error.message}",
                hint="repair or remove it, or point to another one",
                details=error.details,
            ) from error
        _VERSIONS[memo] = "\n".join(text for text in (result.stdout.strip(), result.stderr.strip()) if text)
    return _VERSIONS[memo]
