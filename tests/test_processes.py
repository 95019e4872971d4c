"""Child processes end with whoever started them, whatever ends that."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from core import processes

ROOT = Path(__file__).parents[1]
#: A compiler driver with a pass at work, which writes who they are.
COMPILER = "sleep 300 & echo $! > pass; echo $$ > driver; wait"


def wait_for(happened: Callable[[], object], what: str) -> None:
    until = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < until, f"{what} did not happen"
        time.sleep(0.01)


def gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"


def written(*paths: Path) -> list[int]:
    """The numbers that processes wrote into files, once they have."""
    for path in paths:
        wait_for(lambda path=path: path.exists() and path.read_text().endswith("\n"), f"{path.name} being written")
    return [int(path.read_text()) for path in paths]


PRELUDE = f"""
import pathlib, signal, sys, threading, time
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever runs the tests may ignore it, as nohup does
sys.path.insert(0, {str(ROOT)!r})
from core import processes

def say_when_guarded(name):
    "Writes a file once a child is guarded: the child itself may be further than that before."

    def watch():
        while True:
            with processes._guard._lock:
                if processes._guard._groups:
                    break
            time.sleep(0.01)
        pathlib.Path(name).write_text("0\\n")

    threading.Thread(target=watch, daemon=True).start()
"""


def python(code: str, folder: Path) -> subprocess.Popen[bytes]:
    """A process that runs `code` in `folder`, where it finds our packages."""
    return subprocess.Popen([sys.executable, "-c", PRELUDE + textwrap.dedent(code)], cwd=folder)


BUILD = f"""
from core.compiler.toolchain import run_tool
say_when_guarded("guarded")
run_tool(["sh", "-c", {COMPILER!r}], cwd=".")
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_build_ends_with_the_process_that_started_it(tmp_path, number):
    with python(BUILD, tmp_path) as parent:
        *compilers, _ = written(tmp_path / "driver", tmp_path / "pass", tmp_path / "guarded")
        parent.send_signal(number)
        assert parent.wait() == -number
    wait_for(lambda: all(map(gone, compilers)), "the end of the compiler")


def test_so_it_does_where_a_child_of_a_child_started_it(tmp_path):
    """As where a tuner is killed whose children compile: each is in a session of its own."""
    code = f"""
    say_when_guarded("child")
    processes.start([sys.executable, "-c", {PRELUDE + BUILD!r}]).wait()
    """
    with python(code, tmp_path) as parent:
        *compilers, _, _ = written(*(tmp_path / name for name in ("driver", "pass", "guarded", "child")))
        parent.kill()
    wait_for(lambda: all(map(gone, compilers)), "the end of the compiler")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_asked_to_end_cleans_up(tmp_path, number):
    code = f"""
    import tempfile
    from core.cli import main
    from core.compiler.toolchain import run_tool

    say_when_guarded("guarded")

    def slow():
        with tempfile.TemporaryDirectory(dir=".") as folder:
            run_tool(["sh", "-c", "cd ..; " + {COMPILER!r}], cwd=folder)

    main.COMMANDS["slow"] = ("__main__", "slow", "Waits.")
    sys.argv = ["tilehal", "slow"]
    main.main()
    """
    with python(code, tmp_path) as command:
        *compilers, _ = written(tmp_path / "driver", tmp_path / "pass", tmp_path / "guarded")
        command.send_signal(number)
        assert command.wait() == 128 + number
    assert all(map(gone, compilers))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["driver", "guarded", "pass"]


def test_a_hang_up_that_is_ignored_ends_no_command():
    code = """
    import signal
    from core.cli import main
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup has it
    main._interruption.listen()
    sys.exit(signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN)
    """
    with python(code, ROOT) as command:
        assert command.wait() == 0


def test_a_process_made_by_fork_does_not_keep_them(tmp_path):
    """The fork has the pipe to the guard open too, unless it closes it; its own children have a guard of its own."""
    code = """
    import os
    ours = processes.start(["sh", "-c", "echo $$ > ours; sleep 300"])
    if os.fork() == 0:
        theirs = processes.start(["sh", "-c", "echo $$ > theirs; sleep 300"])
        pathlib.Path("fork").write_text(f"{os.getpid()}\\n")
    time.sleep(300)
    """
    with python(code, tmp_path) as parent:
        ours, theirs, fork = written(tmp_path / "ours", tmp_path / "theirs", tmp_path / "fork")
        parent.kill()
    wait_for(lambda: gone(ours), "the end of the parent's child")
    assert not gone(theirs)
    os.kill(fork, signal.SIGKILL)
    wait_for(lambda: gone(theirs), "the end of the fork's child")


def test_a_guard_that_somebody_ended_is_replaced(tmp_path):
    code = """
    processes.start(["sh", "-c", "echo $$ > first; sleep 300"])
    guard = processes._guard._process
    guard.kill()
    guard.wait()
    processes.start(["sh", "-c", "echo $$ > second; sleep 300"])
    pathlib.Path("both").write_text("0\\n")
    time.sleep(300)
    """
    with python(code, tmp_path) as parent:
        *children, _ = written(tmp_path / "first", tmp_path / "second", tmp_path / "both")
        parent.kill()
    wait_for(lambda: all(map(gone, children)), "the end of the children")


def test_the_guard_ends_groups_that_are_left_and_no_others():
    """The number of a process that ended may be another's by then."""
    sleepers = [subprocess.Popen(["sleep", "300"], start_new_session=True) for _ in range(3)]
    first, second, third = (one.pid for one in sleepers)
    told = f"+ {first}\n+ {second}\n+ {third}\n- {second}\n"
    try:
        subprocess.run(["/bin/sh", "-c", processes._GUARD], input=told, text=True, check=False)
        assert [one.poll() for one in sleepers] == [-signal.SIGTERM, None, -signal.SIGTERM]
    finally:
        for one in sleepers:
            one.kill()
            one.wait()


#: By which a terminal or a machine that shuts down ends processes.
SIGNALS = (int(signal.SIGHUP), int(signal.SIGINT), int(signal.SIGTERM))
#: What does not obey SIGTERM, and what takes a moment to; both say when they can be sent it.
STUBBORN = ["sh", "-c", "trap '' TERM; echo; sleep 20 & wait; wait"]
CAREFUL = ["sh", "-c", "trap 'sleep 0.05; exit 7' TERM; echo; sleep 20 & wait"]


def ready(process: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_what_ignores_sigterm_is_killed_and_what_obeys_has_a_moment_for_it():
    with (
        subprocess.Popen(STUBBORN, start_new_session=True, stdout=subprocess.PIPE) as stubborn,
        subprocess.Popen(CAREFUL, start_new_session=True, stdout=subprocess.PIPE) as careful,
    ):
        told = "".join(f"+ {ready(one).pid}\n" for one in (stubborn, careful))
        subprocess.run(["/bin/sh", "-c", processes._GUARD], input=told, text=True, check=False)
        assert stubborn.wait(60) == -signal.SIGKILL
        assert careful.wait(60) == 7


def test_the_guard_outlives_signals_that_end_whom_it_guards():
    """As where a whole machine is asked to shut down: every process is sent SIGTERM, and the guard has work to do."""
    theirs, ours = os.pipe()
    # With no signal ignored: what is started in the background of a shell ignores SIGINT.
    begin = f"import os, signal, sys\nfor n in {SIGNALS}: signal.signal(n, signal.SIG_DFL)\n"
    begin += "os.execv('/bin/sh', ['sh', '-c', sys.argv[1]])"
    with subprocess.Popen([sys.executable, "-S", "-c", begin, processes._GUARD], stdin=theirs) as guard:
        os.write(ours, b"- 1\n")
        wait_for(lambda: not select.select([theirs], [], [], 0)[0], "the guard's reading")  # so it has set its traps
        os.close(theirs)
        for number in SIGNALS:
            guard.send_signal(number)
        os.close(ours)
        assert guard.wait(60) == 0


def test_the_guard_is_in_no_folder_and_no_session_of_those_who_may_be_ended():
    guard = processes._Guard()
    guard.ready()
    try:
        assert guard._process is not None
        assert os.getsid(guard._process.pid) == guard._process.pid
        assert Path(f"/proc/{guard._process.pid}/cwd").readlink() == Path("/")
    finally:
        guard.close()


def test_a_guard_that_ended_is_replaced_before_a_child_is_started_and_when_it_cannot_be_told():
    guard = processes._Guard()
    guard.ready()
    with subprocess.Popen(["true"]) as child:
        for replacing in (guard.ready, lambda: guard.add(child), lambda: guard.remove(child)):
            ended = guard._process
            assert ended is not None
            ended.kill()
            ended.wait()
            replacing()
            assert guard._process is not None
            assert guard._process is not ended
            assert guard._process.poll() is None
    guard.close()


def test_a_guard_that_cannot_be_started_leaves_no_pipe(monkeypatch):
    ends = []
    make = os.pipe
    monkeypatch.setattr(os, "pipe", lambda: ends.extend(make()) or tuple(ends))
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: os.open("no such folder/sh", os.O_RDONLY))
    guard = processes._Guard()
    with pytest.raises(FileNotFoundError):
        guard.ready()
    assert guard._pipe == -1
    for end in ends:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(end)


def test_what_is_asked_to_end_has_its_grace_period_and_no_more():
    careful = ready(processes.start(CAREFUL, stdout=subprocess.PIPE))
    with careful:
        assert processes.end(careful, grace_s=15) == 7
    stubborn = ready(processes.start(STUBBORN, stdout=subprocess.PIPE))
    with stubborn:
        assert processes.end(stubborn, grace_s=0.05) == -signal.SIGKILL


def test_what_is_interrupted_while_it_starts_leaves_nothing(monkeypatch):
    """Ctrl-C may come when the program runs and whoever started it has not been told of it."""
    started = []
    add = processes._guard.add

    def interrupted(process):
        started.append(process)
        add(process)
        raise KeyboardInterrupt

    monkeypatch.setattr(processes._guard, "add", interrupted)
    with pytest.raises(KeyboardInterrupt):
        processes.start(["sleep", "20"])
    (process,) = started
    try:
        assert process.returncode == -signal.SIGKILL
        assert not processes._guard.knows(process)
    finally:
        process.kill()
        process.wait()
        processes.forget(process)


def test_a_child_that_ended_is_forgotten():
    process = processes.start(["true"])
    assert process.pid in processes._guard._groups
    process.wait()
    processes.forget(process)
    assert process.pid not in processes._guard._groups
    other = processes.start(["sleep", "300"])
    assert processes.end(other) == -signal.SIGKILL
    assert other.pid not in processes._guard._groups
    assert processes.end(other) == -signal.SIGKILL


def test_what_was_forgotten_is_not_ended_when_its_number_is_anothers():
    """The second process stands for one that was given the number of the first."""
    first = processes.start(["true"])
    first.wait()
    processes.forget(first)
    second = processes.start(["sh", "-c", "read line; exit 7"], stdin=subprocess.PIPE)
    first.pid = second.pid
    try:
        assert processes.end(first) == 0
        second.communicate(b"line\n")
        assert second.returncode == 7
    finally:
        processes.end(second)


def test_a_fork_does_not_end_its_parents_children(tmp_path):
    code = """
    import os, subprocess
    ours = processes.start(["sh", "-c", "read line; exit 7"], stdin=subprocess.PIPE)
    fork = os.fork()
    if fork == 0:
        processes.end(ours)
        os._exit(0)
    os.waitpid(fork, 0)
    ours.communicate(b"line\\n")
    sys.exit(ours.returncode)
    """
    with python(code, tmp_path) as parent:
        assert parent.wait(60) == 7


def test_the_end_of_a_process_does_not_wait_for_who_else_has_the_pipe_to_the_guard(tmp_path):
    code = """
    import subprocess
    processes.end(processes.start(["sleep", "300"]))
    other = subprocess.Popen(["sleep", "300"], pass_fds=[processes._guard._pipe])
    pathlib.Path("other").write_text(f"{other.pid}\\n")
    """
    with python(code, tmp_path) as parent:
        (other,) = written(tmp_path / "other")
        try:
            parent.wait(60)
        finally:
            os.kill(other, signal.SIGKILL)


@pytest.mark.parametrize("ending", [False, True], ids=["a guard is being started", "a guard is being ended"])
def test_a_fork_meanwhile_begins_without_guard_and_pipe(ending):
    guard = processes._Guard()
    theirs, pipe = os.pipe()
    if ending:
        os.close(pipe)
        guard._process = subprocess.Popen(["true"])
    else:
        guard._pipe = pipe
    process = guard._process
    guard.forked()
    os.close(theirs)
    assert (guard._process, guard._pipe) == (None, -1)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(pipe)
    if process is not None:
        process.wait()


def test_a_handler_of_a_signal_may_end_a_child_while_the_guard_is_told_of_another(tmp_path):
    """As the handler of a program that uses us does: it runs in between whatever the main thread does."""
    code = """
    child = processes.start(["sleep", "300"])
    with processes._guard._lock:
        processes.end(child)
    """
    with python(code, tmp_path) as parent:
        try:
            assert parent.wait(60) == 0
        finally:
            parent.kill()


def test_nothing_is_left_running_any_other_way():
    """`subprocess.run` with a limit waits for what it starts; what goes on by itself is started by `core.processes`."""
    sources = [*ROOT.glob("core/**/*.py"), *(p for p in ROOT.glob("backends/**/*.py") if "tests" not in p.parts)]
    found = [
        path.relative_to(ROOT).as_posix()
        for path in sources
        if re.search(r"Popen\(|start_new_session=", path.read_text(encoding="utf-8"))
    ]
    assert found == ["core/processes.py"]
