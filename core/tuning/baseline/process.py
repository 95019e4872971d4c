"""The worker process of a build, from the side that asks; `core.tuning.baseline.worker` is the process's side."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.errors import BaselineError
from core.tuning.baseline.worker import PROTOCOL
from core.tuning.json_process import JsonProcess, ProcessLost

#: Starting Python and importing torch and tilelang takes a few seconds, on a busy machine many.
_START_TIMEOUT_S = 120.0


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
        environment = {**os.environ, **build.environment}
        folder = None
        if build.path is not None and build.path.is_dir():
            folder = build.path.resolve()
            environment["PYTHONPATH"] = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
        self._child = JsonProcess(build.command, environment, folder)
        try:
            self._check(self._child.receive(_START_TIMEOUT_S), folder)
        except ProcessLost as lost:
            self.stop()
            raise BaselineError(
                f"the build {build.name} does not start: {lost}",
                hint="it must be a TileHAL that has `tilehal baseline`, with its dependencies installed",
            ) from lost
        except BaselineError:
            self.stop()
            raise

    def ask(self, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """The answer to a request.

        Raises:
            ProcessLost: it died, or took longer; the worker is gone then.
        """
        try:
            self._child.send(request)
            return self._child.receive(timeout_s)
        except ProcessLost:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends the process and whatever it started."""
        self._child.close()

    def _check(self, hello: Mapping[str, Any], folder: Path | None) -> None:
        # Python looks on when a tree lacks a module, and finds that of the installed TileHAL: half of each is no build.
        if folder is not None and not Path(hello.get("worker", "")).resolve().is_relative_to(folder):
            raise BaselineError(
                f"the build {self.build.name} has no `tilehal baseline`, and another one's cannot measure it",
                hint="record a snapshot with a build that has it, and compare the files",
            )
        if hello.get("protocol") != PROTOCOL:
            raise BaselineError(
                f"the build {self.build.name} speaks version {hello.get('protocol')} of the protocol, this is"
                f" {PROTOCOL}",
                hint="record a snapshot with it, and compare the files",
            )

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()
