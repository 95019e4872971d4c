"""Child processes that candidates are compiled and run in, as the parent sees them.

One child serves candidate after candidate. When a job takes too long or the child dies, that is the candidate's answer;
the child is replaced when the next job needs one.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import functools
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path

from core import processes
from core.errors import TuningError
from core.tuning.workers.jobs import Job, Reply

#: Importing torch and tilelang, on a slow and busy machine.
START_TIMEOUT_S = 180.0
#: Seconds after which a child without a job is ended in the process of an executor, which is not told of the run's end.
IDLE_S = 60.0
#: Lines of what a child printed that are kept: how a crash begins says more than how its backtrace ends.
_FIRST_LINES, _LAST_LINES = 20, 10


class Child:
    """One process. Not for two threads at once."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            root, number = str(Path(__file__).resolve().parents[3]), theirs.fileno()
            run = f"from core.tuning.workers.worker import main; main({number})"
            start = f"import sys; sys.path.insert(0, {root!r}); {run}"
            # In a session of its own: Ctrl-C is for the tuner, which ends its children.
            self._process = processes.start(
                [sys.executable, "-c", start],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=(number,),
            )
        self._connection = Connection(ours.detach())
        self._first: list[str] = []
        self._last: collections.deque[str] = collections.deque(maxlen=_LAST_LINES)
        self._reader = threading.Thread(target=self._read_output, daemon=True)
        self._reader.start()
        self._ready = False
        #: The problem it holds arguments of.
        self.problem = ""
        self.idle_since = time.monotonic()
        with contextlib.suppress(OSError):  # a child that died at once says so when it is asked
            self._connection.send_bytes(pickle.dumps({"path": list(sys.path)}))

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it is still there: it may have been ended from outside."""
        return self._process.poll() is None

    def ask(self, job: Job) -> Reply:
        """Its answer to a job; what became of the job when there is none. The child is unusable after such."""
        self._start()
        self._first, self._last = [], collections.deque(maxlen=_LAST_LINES)
        try:
            self._connection.send_bytes(pickle.dumps(job))
            if not self._connection.poll(job.timeout_s):
                self.kill()
                return Reply(
                    "timeout",
                    f"not done after {job.timeout_s:g} s",
                    {"timeout_s": job.timeout_s, "output": self.output()},
                    restart=True,
                )
            reply: Reply = pickle.loads(self._connection.recv_bytes())
        except (EOFError, OSError):
            return self._crashed()
        return reply

    def output(self) -> list[str]:
        """What it printed since it got its job: how that begins and how it ends."""
        return [*self._first, *self._last]

    def kill(self) -> None:
        """Ends it, and whatever it started."""
        processes.end(self._process)
        self._reader.join(1.0)
        # In the thread that waits for an answer, closing would pull the socket away; there the end of the file shows.

    def close(self) -> None:
        """Ends it and gives back what it held."""
        self.kill()
        self._connection.close()
        assert self._process.stderr is not None
        self._process.stderr.close()

    def _start(self) -> None:
        if self._ready:
            return
        try:
            started = self._connection.poll(START_TIMEOUT_S) and self._connection.recv_bytes() == b"ready"
        except (EOFError, OSError):
            started = False
        if not started:
            self.kill()
            said = "\n".join(self.output()[-5:])
            raise TuningError(
                f"the process that candidates run in does not start ({_ended(self._process.returncode)}): {said}",
                hint="`tilehal doctor` looks at the installation",
            )
        self._ready = True

    def _crashed(self) -> Reply:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5.0)
        self.kill()
        code = self._process.returncode
        return Reply(
            "crash",
            f"its process ended: {_ended(code)}",
            {"returncode": code, "output": self.output()},
            restart=True,
        )

    def _read_output(self) -> None:
        assert self._process.stderr is not None
        with contextlib.suppress(OSError, ValueError):
            for line in self._process.stderr:
                kept = self._first if len(self._first) < _FIRST_LINES else self._last
                kept.append(line.decode(errors="replace").rstrip()[:300])


def _ended(code: int | None) -> str:
    if code is not None and code < 0:
        with contextlib.suppress(ValueError):
            return signal.Signals(-code).name
    return f"exit status {code}"


class Children:
    """Children that any number of threads give jobs to: started when needed, and kept for the next job.

    Args:
        idle_s: seconds after which a child without a job is ended; None keeps it until :meth:`close`.
    """

    def __init__(self, idle_s: float | None = None) -> None:
        self._idle_s = idle_s
        self._lock = threading.Lock()
        self._idle: list[Child] = []
        self._busy: set[Child] = set()
        self._wanted = 0
        self._stopped = False
        self._reaper: threading.Timer | None = None

    def run(self, job: Job, *, problem: str = "") -> Reply:
        """Has a child do a job, one that holds the problem's arguments if there is one.

        Raises:
            TuningError: no child can be started, or :meth:`abort` was called.
        """
        child = self._take(problem)
        try:
            reply = child.ask(job)
        except BaseException:
            self._drop(child)
            raise
        if reply.restart:
            self._drop(child)
        else:
            child.problem = problem or child.problem
            self._give_back(child)
        return reply

    def start(self, count: int) -> None:
        """Starts children so that `count` are there, now and whenever one dies: imports overlap with other work."""
        with self._lock:
            self._wanted = count
            self._replace()

    def abort(self) -> None:
        """Ends the children that are at work, and takes no more jobs; who waits for an answer gets a crash."""
        with self._lock:
            self._stopped = True
            busy = list(self._busy)
        for child in busy:
            child.kill()

    def close(self) -> None:
        """Ends the idle children."""
        with self._lock:
            self._wanted = 0
            idle, self._idle = self._idle, []
        for child in idle:
            child.close()

    def forget(self) -> None:
        """For a process made by fork: the children are its parent's; a thread left behind may hold the lock."""
        self._lock = threading.Lock()
        self._idle, self._busy, self._reaper = [], set(), None

    def _take(self, problem: str) -> Child:
        with self._lock:
            if self._stopped:
                raise TuningError("the tuning run is over", hint="start another")
            gone = [child for child in self._idle if not child.alive]
            self._idle = [child for child in self._idle if child not in gone]
            fitting = [child for child in self._idle if problem and child.problem == problem] or self._idle
            child = fitting[-1] if fitting else Child()
            if fitting:
                self._idle.remove(child)
            self._busy.add(child)
        for one in gone:
            one.close()
        return child

    def _give_back(self, child: Child) -> None:
        child.idle_since = time.monotonic()
        with self._lock:
            self._busy.discard(child)
            self._idle.append(child)
            if self._idle_s is not None and self._reaper is None:
                self._reaper = self._timer()

    def _drop(self, child: Child) -> None:
        with self._lock:
            self._busy.discard(child)
            self._replace()
        child.close()

    def _replace(self) -> None:
        """Starts what is missing, at the far end of the queue. With the lock held."""
        missing = 0 if self._stopped else self._wanted - len(self._idle) - len(self._busy)
        self._idle = [*(Child() for _ in range(missing)), *self._idle]

    def _timer(self) -> threading.Timer:
        timer = threading.Timer(self._idle_s or 0.0, self._reap)
        timer.daemon = True
        timer.start()
        return timer

    def _reap(self) -> None:
        limit = time.monotonic() - (self._idle_s or 0.0) + 1.0
        with self._lock:
            old = [child for child in self._idle if child.idle_since <= limit]
            self._idle = [child for child in self._idle if child not in old]
            self._reaper = self._timer() if self._idle else None
        for child in old:
            child.close()


@functools.cache
def shared_children() -> Children:
    """The children of a process that somebody else's executor runs tasks in."""
    found = Children(IDLE_S)
    os.register_at_fork(after_in_child=found.forget)
    atexit.register(found.close)
    return found
