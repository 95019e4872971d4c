"""A child process that compiles and measures, as its parent sees it."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from core.errors import TuningError

#: Importing torch and tilelang, on a slow and busy machine.
START_TIMEOUT_S = 180.0


class Lost(Exception):
    """The process died or took too long.

    Attributes:
        doing: what it was running, as far as it said.
    """

    def __init__(self, message: str, doing: str = "") -> None:
        super().__init__(message)
        self.doing = doing


class Process:
    """One child. Not for two threads at once; started at once, waited for at the first request.

    Args:
        command: what is run; `core.bench.worker` in this Python when None.
    """

    def __init__(self, command: Sequence[str] | None = None) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed by close())
        root = str(Path(__file__).resolve().parents[2])
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(
            list(command or (sys.executable, "-m", "core.bench.worker")),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            start_new_session=True,  # ended whole, compilers that it started included
        )
        self._messages: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self._ready = False

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def ask(self, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """The answer to a request.

        Raises:
            Lost: it died, or took longer; it is gone then.
            TuningError: it does not even start.
        """
        self._start()
        assert self._process.stdin is not None
        doing, until = "", time.monotonic() + timeout_s
        try:
            with contextlib.suppress(OSError, ValueError):  # it is dead: that shows below
                self._process.stdin.write(json.dumps(request) + "\n")
                self._process.stdin.flush()
            while True:
                message = self._messages.get(timeout=max(0.0, until - time.monotonic()))
                if message is None:
                    raise Lost(self._why(), doing)
                if "answer" in message:
                    found: dict[str, Any] = message["answer"]
                    return found
                doing = message.get("doing", doing)
        except queue.Empty:
            self.close()
            raise Lost(f"no answer within {timeout_s:.0f} s", doing) from None
        except Lost:
            self.close()
            raise

    def close(self) -> None:
        """Ends it and whatever it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            with contextlib.suppress(OSError, ValueError):
                assert stream is not None
                stream.close()

    def _start(self) -> None:
        if self._ready:
            return
        try:
            message = self._messages.get(timeout=START_TIMEOUT_S)
            why = self._why() if message is None else ""
        except queue.Empty:
            message, why = None, "it takes too long"
        if message is None:
            self.close()
            raise TuningError(
                f"the process that measures does not start: {why}", hint="`tilehal doctor` looks at the installation"
            )
        self._ready = True

    def _read(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(ValueError, OSError):  # closed under its feet, by close()
            for line in self._process.stdout:
                self._messages.put(json.loads(line))
        self._messages.put(None)

    def _why(self) -> str:
        """How the process ended, with the last thing it said."""
        status = self._process.wait()
        last = ""
        if not self._errors.closed:
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace").strip().splitlines()
            last = f": {said[-1].strip()[:200]}" if said else ""
        name = signal.Signals(-status).name if status < 0 else f"status {status}"
        return f"its process ended with {name}{last}"
