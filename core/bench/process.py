"""The child process that compiles and measures, as its parent sees it; `core.bench.worker` is the child's side."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from core.errors import BenchError
from core.tuning.json_process import JsonProcess, ProcessLost, source_root

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
        paths = [str(source_root()), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._child = JsonProcess(
            command or (sys.executable, "-m", "core.bench.worker"),
            {**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
        self._ready = False

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._child.pid

    def ask(self, request: Mapping[str, Any], timeout_s: float, until_s: float = math.inf) -> dict[str, Any]:
        """The answer to a request.

        Args:
            timeout_s: how long it may take, once the process has started.
            until_s: by the monotonic clock, when it is given up in any case.

        Raises:
            Lost: it died, or took longer; it is gone then.
            BenchError: it does not even start.
        """
        self._start()
        began = time.monotonic()
        doing, until = "", min(began + timeout_s, until_s)
        try:
            self._child.send(request)
            while True:
                message = self._child.receive(until - time.monotonic())
                if "answer" in message:
                    found: dict[str, Any] = message["answer"]
                    return found
                doing = message.get("doing", doing)
        except ProcessLost as lost:
            self.close()
            late = time.monotonic() >= until
            raise Lost(f"no answer within {max(0.0, until - began):.0f} s" if late else str(lost), doing) from None

    def close(self) -> None:
        """Ends it and whatever it started."""
        self._child.close()

    def _start(self) -> None:
        if self._ready:
            return
        try:
            self._child.receive(START_TIMEOUT_S)
        except ProcessLost as lost:
            self.close()
            raise BenchError(
                f"the process that measures does not start: {lost}", hint="`tilehal doctor` looks at the installation"
            ) from None
        self._ready = True
