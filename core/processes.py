"""Child processes that end with the process that started them, however that ends.

Each is started in a session of its own, so that Ctrl-C on a terminal is for whoever started it, and is ended as a
group: a compiler's passes go with the compiler. A process that is killed (SIGKILL, or SIGTERM outside our commands)
cannot clean up after itself; a guard does it instead: a shell, in a session of its own too, that is told of each group
and ends those that are left when the pipe from us is closed, which the kernel does whatever ends us.

`PR_SET_PDEATHSIG` would not do: it is Linux's alone, it is sent when the *thread* that started the child ends, it does
not reach the child's own children, and setting it needs `preexec_fn`, for which Python forks: 13 ms for each program
in a process that has torch loaded, where telling the guard takes microseconds.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from typing import Any

#: Reads "+ GROUP" and "- GROUP" until ". 0" or until the pipe ends, then ends the groups that are left: SIGTERM lets a
#: compiler remove its temporary files, a second later comes SIGKILL.
_GUARD = """
trap '' HUP INT TERM
groups=' '
while read -r sign group; do
    case $sign in
    +) groups="$groups$group " ;;
    -) case $groups in *" $group "*) groups="${groups%% "$group" *} ${groups#* "$group" }" ;; esac ;;
    .) break ;;
    esac
done
left=
for group in $groups; do kill -TERM "-$group" && left="$left $group"; done
[ -z "$left" ] || sleep 1
for group in $left; do kill -KILL "-$group"; done
"""


def start(command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
    """Starts a program in a session of its own, which ends with this process; :func:`end` or :func:`forget` it.

    Args:
        command: program and arguments; no shell is involved.
        options: of `subprocess.Popen`, but `start_new_session`.

    Raises:
        OSError: it cannot be started.
    """
    _guard.ready()
    process = subprocess.Popen(list(command), start_new_session=True, **options)
    try:
        _guard.add(process)
    except BaseException:  # Ctrl-C too: nobody else knows of it yet
        _signal_group(process, signal.SIGKILL)
        process.wait()
        forget(process)
        raise
    return process


def end(process: subprocess.Popen[Any], grace_s: float = 0.0) -> int:
    """Ends a process of :func:`start` with all that it started, and returns its exit status; once more does no harm.

    One that was ended or forgotten is sent nothing, its number may be another's; nor is one that this process was
    forked with, which is its parent's.

    Args:
        grace_s: how long it may take to obey SIGTERM, before SIGKILL; without, it is not asked.
    """
    if not _guard.knows(process):
        return process.wait()
    if grace_s:
        _signal_group(process, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace_s)
    _signal_group(process, signal.SIGKILL)
    status = process.wait()
    forget(process)
    return status


def forget(process: subprocess.Popen[Any]) -> None:
    """Says that a process of :func:`start` ended by itself: its number may be another's from now on."""
    _guard.remove(process)


def _signal_group(process: subprocess.Popen[Any], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS: not permitted where all of it is dead
        os.killpg(process.pid, number)


class _Guard:
    """The guard of this process, started with its first child."""

    def __init__(self) -> None:
        # Of the thread, not of the call: a signal's handler, which ends a child, may interrupt any of these.
        self._lock = threading.RLock()
        self._groups: dict[int, subprocess.Popen[Any]] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe = -1
        #: Guards of the processes that this one was forked from: not ours to wait for.
        self._others: list[subprocess.Popen[bytes] | None] = []

    def ready(self) -> None:
        """Sees to it that there is one before a child is started."""
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._stop()
                self._start()

    def add(self, process: subprocess.Popen[Any]) -> None:
        """Says that a group began."""
        with self._lock:
            self._groups[process.pid] = process
            self._tell("+", process.pid)

    def remove(self, process: subprocess.Popen[Any]) -> None:
        """Says that a group ended, if it was not said before."""
        with self._lock:
            if self.knows(process):
                del self._groups[process.pid]
                self._tell("-", process.pid)

    def knows(self, process: subprocess.Popen[Any]) -> bool:
        """Whether a process was added here, and not removed."""
        return self._groups.get(process.pid) is process

    def close(self) -> None:
        """At the end of this process: what is left is ended."""
        with self._lock:
            self._groups.clear()
            self._stop()

    def forked(self) -> None:
        """In a process made by fork: children and guard are its parent's, whose end must show in the pipe."""
        self._lock = threading.RLock()
        self._groups = {}
        self._close_pipe()  # another thread may have been about to start a guard, or to end one
        self._others.append(self._process)
        self._process = None

    def _tell(self, sign: str, group: int) -> None:
        """Writes to the guard; one that somebody ended is replaced, and told of every group that there is."""
        try:
            os.write(self._pipe, f"{sign} {group}\n".encode())
        except OSError:
            self._stop()
            self._start()

    def _start(self) -> None:
        theirs, self._pipe = os.pipe()
        try:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _GUARD],
                cwd="/",
                env={"PATH": os.defpath},
                stdin=theirs,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError:
            self._close_pipe()
            raise
        finally:
            os.close(theirs)
        for group in self._groups:
            os.write(self._pipe, f"+ {group}\n".encode())

    def _stop(self) -> None:
        if self._process is None:
            return
        with contextlib.suppress(OSError):  # nobody reads any more
            os.write(self._pipe, b". 0\n")  # what was forked behind Python's back may have the pipe open as well
        self._close_pipe()
        self._process.wait()
        self._process = None

    def _close_pipe(self) -> None:
        pipe, self._pipe = self._pipe, -1
        if pipe >= 0:
            os.close(pipe)


_guard = _Guard()
os.register_at_fork(after_in_child=_guard.forked)
atexit.register(_guard.close)
