"""Tests that time an accelerator have it alone, and do get their turn."""

from __future__ import annotations

import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import IO

import pytest

from tests.device_turns import device_turn

ROOT = Path(__file__).parents[1]

#: Says when it wants a turn, when it has it, and ends it when it reads a line.
PROCESS = """
import pathlib, sys
from tests.device_turns import device_turn
print("wants", flush=True)
with device_turn(alone=sys.argv[1] == "alone", folder=pathlib.Path(sys.argv[2])):
    print("has", flush=True)
    sys.stdin.readline()
print("done", flush=True)
"""


class Other:
    """Another process that wants a turn."""

    def __init__(self, how: str, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROCESS, how, str(folder)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # a line that is read ahead is one that select does not see
        )
        assert self.says() == "wants"

    def stream(self, stream: IO[bytes] | None) -> IO[bytes]:
        assert stream is not None
        return stream

    def says(self) -> str:
        assert select.select([self.stream(self.process.stdout)], [], [], 60)[0], "it says nothing"
        return self.stream(self.process.stdout).readline().decode().strip()

    def waits(self) -> bool:
        """Whether it does not have its turn yet; had it not to wait, it would say so at once."""
        return not select.select([self.stream(self.process.stdout)], [], [], 0.3)[0]

    def end(self) -> None:
        self.stream(self.process.stdin).write(b"\n")
        assert self.says() == "done"
        self.process.communicate(timeout=60)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def free(folder: Path) -> bool:
    """Whether somebody who does not wait could share the device now."""
    code = (
        "import fcntl, pathlib, sys\n"
        "for name in sorted(pathlib.Path(sys.argv[1]).iterdir()):\n"
        "    fcntl.flock(name.open('a'), fcntl.LOCK_SH | fcntl.LOCK_NB)\n"
    )
    return subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True).returncode == 0


def test_those_that_share_it_do_not_wait_for_each_other(tmp_path: Path) -> None:
    others = [Other("shared", tmp_path), Other("shared", tmp_path)]
    with device_turn(alone=False, folder=tmp_path):
        assert [other.says() for other in others] == ["has", "has"]
    for other in others:
        other.end()


def test_one_that_wants_it_alone_waits_and_those_after_it_do_not_overtake(tmp_path: Path) -> None:
    first = Other("shared", tmp_path)
    assert first.says() == "has"
    alone = Other("alone", tmp_path)
    until = time.monotonic() + 60
    while free(tmp_path):  # until it stands in the door
        assert time.monotonic() < until
    late = Other("shared", tmp_path)
    assert alone.waits()
    first.end()
    assert alone.says() == "has"
    assert late.waits()
    assert not free(tmp_path)
    alone.end()
    assert late.says() == "has"
    late.end()


def test_a_process_that_is_killed_gives_its_turn_back(tmp_path: Path) -> None:
    other = Other("alone", tmp_path)
    assert other.says() == "has"
    other.kill()
    with device_turn(alone=True, folder=tmp_path):
        assert not free(tmp_path)
    assert free(tmp_path)


@pytest.mark.parametrize(
    ("marks", "taken"),
    [({"gpu"}, False), ({"gpu", "alone"}, True), ({"alone"}, False), ({"gpu", "alone", "skip"}, False)],
)
def test_tests_have_their_turns(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pytestconfig: pytest.Config,
    marks: set[str],
    taken: bool,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (root,) = (
        hook.plugin
        for hook in pytestconfig.hook.pytest_runtest_protocol.get_hookimpls()
        if getattr(hook.plugin, "__file__", None) == str(ROOT / "conftest.py")
    )
    running = root.pytest_runtest_protocol(
        SimpleNamespace(get_closest_marker=lambda name: name if name in marks else None)
    )
    next(running)
    assert free(tmp_path) is not taken
    with pytest.raises(StopIteration) as done:
        running.send("what the test made of it")
    assert done.value.value == "what the test made of it"
    assert free(tmp_path)
