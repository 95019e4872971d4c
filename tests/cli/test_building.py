"""What is shown while a compiler is at work."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
import threading
import time
from pathlib import Path

from core.cli._building import line
from core.compiler import toolchain
from core.compiler.toolchain import RunningTool, run_tool, running_tools

ROOT = Path(__file__).parents[2]


def test_a_line_names_what_takes_long_what_for_and_since_when():
    nvcc = RunningTool("nvcc", "compile softmax for cuda:h200", 10.0)
    assert line([nvcc], 10.5) == ""
    assert line([nvcc, RunningTool("cc", "", 70.4)], 72.0) == "nvcc, to compile softmax for cuda:h200: 62 s; cc: 2 s"


def test_a_tool_is_known_while_it_runs_and_no_longer(tmp_path):
    release, seen = tmp_path / "release", []

    def look() -> None:
        until = time.monotonic() + 60
        while not running_tools() and time.monotonic() < until:
            time.sleep(0.01)
        seen.extend((tool.program, tool.purpose) for tool in running_tools())
        release.touch()

    thread = threading.Thread(target=look)
    thread.start()
    run_tool(["sh", "-c", "until [ -e release ]; do sleep 0.01; done"], cwd=tmp_path, purpose="wait")
    thread.join()
    assert seen == [("sh", "wait")]
    assert toolchain.running_tools() == ()


def run_on(stderr: int, folder: Path) -> subprocess.Popen[bytes]:
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from core.cli._building import running_tools_shown\n"
        "from core.compiler.toolchain import run_tool\n"
        "with running_tools_shown():\n"
        "    run_tool(['sh', '-c', 'until [ -e release ]; do sleep 0.01; done'], cwd='.', purpose='compile [/x]')\n"
    )
    environment = {**os.environ, "TERM": "xterm"}
    return subprocess.Popen([sys.executable, "-c", code], stderr=stderr, cwd=folder, env=environment)


def test_a_terminal_shows_it_until_the_tool_is_done(tmp_path):
    ours, theirs = os.openpty()
    with run_on(theirs, tmp_path) as process:
        os.close(theirs)
        said, until = b"", time.monotonic() + 120
        # On a busy machine the first line may come late: how many seconds it names is not the matter.
        while not (found := re.search(rb"compile \[/x\]: [1-9]\d* s", said)) and time.monotonic() < until:
            if select.select([ours], [], [], 1.0)[0]:
                said += os.read(ours, 4096)
        (tmp_path / "release").touch()
        assert process.wait() == 0
        assert found
    os.close(ours)


def test_what_is_no_terminal_gets_nothing(tmp_path):
    read, write = os.pipe()
    with run_on(write, tmp_path) as process:
        os.close(write)
        time.sleep(1.6)  # a line would be there by now; on a machine too busy for it, the test has nothing to say
        (tmp_path / "release").touch()
        assert process.wait() == 0
    assert os.read(read, 100) == b""
    os.close(read)
