"""A worker process, from the side that asks: started, asked, timed out, found dead, stopped."""

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
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.errors import BaselineError
from core.tuning.baseline.worker import PROTOCOL

#: Starting Python and importing torch and tilelang takes a few seconds, on a busy machine many.
_START_TIMEOUT_S = 120.0


class WorkerLost(Exception):
    """The worker died or did not answer in time; its message says which."""


@dataclass(frozen=True, slots=True)
class Build:
    """A build of TileHAL to measure.

    Attributes:
        name: for messages.
        path: a source tree (the folder that holds `core`) or a Python interpreter; None is the running one.
        environment: variables that its process gets on top of this one's.
    """

    name: str = "live"
    path: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def command(self) -> list[str]:
        """How its worker is started."""
        interpreter = str(self.path) if self.path is not None and self.path.is_file() else sys.executable
        return [interpreter, "-m", "core.tuning.baseline.worker"]

    def check(self) -> None:
        """Raises BaselineError when there is no such build."""
        if self.path is not None and not self.path.is_file() and not (self.path / "core" / "__init__.py").is_file():
            raise BaselineError(
                f"{self.path} is no build of TileHAL",
                hint="give a folder that holds core/, or a Python interpreter that TileHAL is installed for",
            )


class Worker:
    """One running worker process.

    Raises:
        BaselineError: the build does not start, or speaks another protocol.
    """

    def __init__(self, build: Build) -> None:
        build.check()
        self.build = build
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed by stop())
        environment = {**os.environ, **build.environment}
        folder = None
        if build.path is not None and build.path.is_dir():
            folder = build.path.resolve()
            environment["PYTHONPATH"] = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
        self._process = subprocess.Popen(
            build.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=folder,
            env=environment,
            start_new_session=True,  # stopped whole, compilers that it started included
        )
        self._answers: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        try:
            hello = self._next(_START_TIMEOUT_S)
        except WorkerLost as lost:
            self.stop()
            raise BaselineError(
                f"the build {build.name} does not start: {lost}",
                hint="it must be a TileHAL that has `tilehal baseline`, with its dependencies installed",
            ) from lost
        # Python looks on when a tree lacks a module, and finds that of the installed TileHAL: half of each is no build.
        if folder is not None and not Path(hello.get("worker", "")).resolve().is_relative_to(folder):
            self.stop()
            raise BaselineError(
                f"the build {build.name} has no `tilehal baseline`, and another one's cannot measure it",
                hint="record a snapshot with a build that has it, and compare the files",
            )
        if hello.get("protocol") != PROTOCOL:
            self.stop()
            raise BaselineError(
                f"the build {build.name} speaks version {hello.get('protocol')} of the protocol, this is {PROTOCOL}",
                hint="record a snapshot with it, and compare the files",
            )

    def ask(self, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """The answer to a request.

        Raises:
            WorkerLost: it died, or took longer; the worker is gone then.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except (OSError, ValueError):  # ValueError: stopped already
            raise WorkerLost(self._why()) from None
        try:
            return self._next(timeout_s)
        except WorkerLost:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends the process and whatever it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            with contextlib.suppress(OSError):
                assert stream is not None
                stream.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(ValueError):  # closed under its feet, by stop()
            for line in self._process.stdout:
                self._answers.put(line)
        self._answers.put(None)

    def _next(self, timeout_s: float) -> dict[str, Any]:
        try:
            line = self._answers.get(timeout=timeout_s)
        except queue.Empty:
            raise WorkerLost(f"no answer within {timeout_s:g} s") from None
        if line is None:
            raise WorkerLost(self._why())
        found: dict[str, Any] = json.loads(line)
        return found

    def _why(self) -> str:
        """How the process ended, with the last thing it said."""
        status = self._process.wait()
        last = ""
        if not self._errors.closed:
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace").strip().splitlines()
            last = f": {said[-1].strip()[:200]}" if said else ""
        if status < 0:
            return f"its process ended with {signal.Signals(-status).name}{last}"
        return f"its process ended with status {status}{last}"
