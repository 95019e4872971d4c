"""A child process that is asked in lines of JSON and answers in such lines: started, timed out, found dead, ended.

For programs of another build or with libraries that may take the process with them; what such a child is asked and what
it answers is its own. Candidates of a tuning run have `core.tuning.workers.children`, which keeps many and sends more
than JSON.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from core import processes


class ProcessLost(Exception):
    """The process died or did not answer in time; the message says which."""


class JsonProcess:
    """One child. Not for two threads at once.

    Args:
        command: what is run; its standard output must be lines of JSON and nothing else (see :func:`own_output`).
        environment: all of its environment variables.
        folder: its current folder; ours when None.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], folder: Path | None = None) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed by close())
        self._process = processes.start(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=folder,
            env=dict(environment),
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def send(self, request: Mapping[str, Any]) -> None:
        """Sends a line. Raises ProcessLost when nobody is there to read it."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except (OSError, ValueError):  # ValueError: closed already
            raise ProcessLost(self._how_it_ended()) from None

    def receive(self, timeout_s: float) -> dict[str, Any]:
        """The next line. Raises ProcessLost when it dies or takes longer; it is still to be closed then."""
        try:
            line = self._lines.get(timeout=max(0.0, timeout_s))
        except queue.Empty:
            raise ProcessLost(f"no answer within {timeout_s:.3g} s") from None
        if line is None:
            raise ProcessLost(self._how_it_ended())
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        """Ends it and whatever it started; more than once does no harm."""
        processes.end(self._process)
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            with contextlib.suppress(OSError, ValueError):
                assert stream is not None
                stream.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(ValueError, OSError):  # closed under its feet, by close()
            for line in self._process.stdout:
                self._lines.put(line)
        self._lines.put(None)

    def _how_it_ended(self) -> str:
        """How the process ended, with the last thing it said."""
        status = self._process.wait()
        last = ""
        if not self._errors.closed:
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace").strip().splitlines()
            last = f": {said[-1].strip()[:200]}" if said else ""
        name = signal.Signals(-status).name if status < 0 else f"status {status}"
        return f"its process ended with {name}{last}"


def own_output() -> TextIO:
    """In the child: what its answers are written to. Whatever else prints goes to standard error from now on."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    logging.disable(logging.CRITICAL)  # a failed trace logs the whole rewritten source
    return answers


def source_root() -> Path:
    """The folder that holds this very `core`, for the path of a child."""
    return Path(__file__).resolve().parents[2]
