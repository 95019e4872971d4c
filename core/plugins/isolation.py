"""The trial import: a plugin's code first runs in a child process, where hanging or ending the process is harmless.

Python can neither interrupt an import that hangs nor survive `os._exit`. So before a plugin's code is imported for the
first time, a child process imports it, with a time limit. Success is remembered on disk for the content of the code:
the next process imports directly. An import that merely raises is not judged here: it is repeated in this process,
where the real exception becomes the `__cause__` of the error the user sees.

`TILEHAL_LOAD_TIMEOUT` is the limit in seconds (default 30); 0 turns trial imports off. With `TILEHAL_DISABLE_CACHE`
nothing is remembered, and every process tries.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import sys
from pathlib import Path

from core.errors import BackendLoadError
from core.plugins.entries import Entry
from core.plugins.probe import run_in_child

LOAD_TIMEOUT = "TILEHAL_LOAD_TIMEOUT"
DEFAULT_TIMEOUT_S = 30.0

_IMPORT = "import importlib; importlib.import_module(arguments)"


def load_timeout_s() -> float:
    """The time limit for a trial import, in seconds; 0 for none. Raises BackendLoadError when it is no number."""
    text = os.environ.get(LOAD_TIMEOUT, "").strip()
    if not text:
        return DEFAULT_TIMEOUT_S
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise BackendLoadError(
            f"{LOAD_TIMEOUT}={text!r} is not a number of seconds",
            hint=f"unset {LOAD_TIMEOUT}, or set it to a number such as 60 (0: no trial import)",
        )
    return seconds


def import_fault(entry: Entry, code_hash: str) -> str | None:
    """Why importing the entry's module would hang or end this process, or None when it would not."""
    limit_s = load_timeout_s()
    # sys.executable is empty in an embedded interpreter: there is nothing to start a child with.
    if limit_s == 0 or entry.plugin is not None or entry.module in sys.modules or not sys.executable:
        return None
    stamp = _stamp(entry, code_hash)
    if stamp is not None and stamp.exists():
        return None
    outcome = run_in_child(_IMPORT, arguments=entry.module, timeout_s=limit_s)
    if outcome.status in ("died", "timeout"):
        said = f"; it printed:\n{outcome.output.strip()}" if outcome.output.strip() else ""
        return f"importing {entry.module} {outcome.value}{said}"
    if outcome.status == "ok" and stamp is not None:
        # A folder that cannot be written costs a trial import per process, nothing else.
        with contextlib.suppress(OSError):
            stamp.parent.mkdir(parents=True, exist_ok=True)
            stamp.touch()
    return None


def _stamp(entry: Entry, code_hash: str) -> Path | None:
    if os.environ.get("TILEHAL_DISABLE_CACHE", "") not in ("", "0"):
        return None
    from platformdirs import user_cache_path

    root = Path(os.environ.get("TILEHAL_CACHE_DIR") or user_cache_path("tilehal"))
    key = "\0".join((entry.distribution, entry.version, entry.module, code_hash, sys.version, sys.executable))
    return root / "plugins" / hashlib.sha256(key.encode()).hexdigest()
