"""The child process that compiles and runs candidates; `core.tuning.workers.children` starts it.

It answers one job after the other over a socket of its parent's. A candidate may hang, crash it, or spoil its device
context: the parent then ends it and starts another. What kernels and compilers print goes to its standard error, of
which the parent keeps the end.
"""

from __future__ import annotations

import errno
import faulthandler
import os
import pickle
import signal
import sys
import warnings
from multiprocessing.connection import Connection

from core.errors import (
    BackendHookError,
    BackendLoadError,
    BuildFailed,
    DeviceUnavailable,
    LaunchError,
    TargetNotFound,
    TileHALError,
    ToolchainNotFound,
    TuningError,
    summary,
)
from core.tuning.workers.jobs import CompileJob, CrossCheckJob, FinalJob, Job, Reply

#: Errors that say nothing of the candidate.
_IMPOSSIBLE = (ToolchainNotFound, DeviceUnavailable, TargetNotFound, BackendLoadError, TuningError)
#: How long after a job's time it is given up from inside: for a parent that was killed.
_GRACE_S = 30.0


def main(descriptor: int) -> None:
    """Serves jobs until the parent closes the connection."""
    faulthandler.enable()
    # A kernel that prints must not write into the middle of anything.
    os.dup2(2, 1)
    connection = Connection(descriptor)
    try:
        setup = pickle.loads(connection.recv_bytes())
        sys.path[:] = setup["path"]
        warnings.simplefilter("ignore")  # what a candidate assumes of the chip is said when a user compiles it
        _load()
        connection.send_bytes(b"ready")
        while True:
            job = pickle.loads(connection.recv_bytes())
            connection.send_bytes(pickle.dumps(answer(job)))
    except (EOFError, ConnectionError):
        return


def _load() -> None:
    """Imports what takes seconds before the first job, whose time is limited."""
    from core._tilelang import import_tilelang

    import_tilelang()
    import core.compiler.driver
    import core.tuning.workers.running  # noqa: F401


def answer(job: Job) -> Reply:
    """Does a job; whatever it raises is in the reply."""
    # The default action ends the process whatever native code it is in.
    signal.setitimer(signal.ITIMER_REAL, job.timeout_s + _GRACE_S)
    try:
        return _do(job)
    except TileHALError as error:
        return _failed(job, error)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return _no_room(error.strerror or str(error))
        return _unexpected(job, error)
    except Exception as error:
        return _unexpected(job, error)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _do(job: Job) -> Reply:
    from core.tuning.workers import compiling, running

    if isinstance(job, CompileJob):
        return compiling.compile_candidate(job)
    if isinstance(job, CrossCheckJob):
        return running.cross_check(job)
    if isinstance(job, FinalJob):
        return running.measure_finalists(job)
    return running.measure_candidate(job)


def _failed(job: Job, error: TileHALError) -> Reply:
    from core.compiler.cache import default
    from core.compiler.cache.trouble import out_of_space

    if out_of_space(error, default().root):
        return _no_room(summary(error))
    if isinstance(error, _IMPOSSIBLE) and not isinstance(error, BackendHookError):
        return Reply.impossible(error)
    limit_s = error.details.get("timeout_s") if isinstance(error, BuildFailed) else None
    if limit_s is not None:  # of the compiler, which is in no key: with another it may be built
        return Reply("timeout", summary(error), {"timeout_s": limit_s, "error": error.to_json()})
    compiling = isinstance(job, CompileJob) or not isinstance(error, LaunchError)
    return Reply(
        "build" if compiling else "launch",
        summary(error),
        {"error": error.to_json()},
        # A fault on a device spoils the context of the process that met it.
        restart=not compiling,
    )


def _unexpected(job: Job, error: Exception) -> Reply:
    """Something outside our errors: of a compiler, of torch, of the user's code."""
    import traceback

    if type(error).__name__ == "OutOfMemoryError":
        return Reply.impossible(
            TuningError(
                f"the device has no room for the kernel's arguments: {str(error).splitlines()[0]}",
                hint="tune a smaller shape, or end what else uses the device",
                details={"one_shape": True},
            )
        )
    where = "".join(traceback.format_exception(error)).splitlines()[-12:]
    return Reply(
        "build" if isinstance(job, CompileJob) else "launch",
        summary(error),
        {"traceback": where},
        restart=True,
    )


def _no_room(text: str) -> Reply:
    return Reply.impossible(
        TuningError(
            f"no room left on a disk: {text}",
            hint="make room (`tilehal cache clear`), or name a folder on another disk with TILEHAL_CACHE_DIR; what was"
            " measured is kept",
        )
    )
