"""Runs Python code that may hang or end its process, in a child process that may."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from core import processes

Status = Literal["ok", "raised", "died", "timeout"]

# The child answers in a file, so whatever the code prints cannot be taken for the answer. It leaves through os._exit:
# what a library does at exit is not what was asked.
_BOOT = """
import json, os, sys
request = json.loads(sys.stdin.read())
sys.path[:] = request["path"]
sys.argv = ["tilehal-probe"]
answer = {"status": "ok", "value": None}
try:
    scope = {"__name__": "tilehal_probe", "arguments": request["arguments"]}
    exec(compile(request["code"], "<tilehal probe>", "exec"), scope)
    answer["value"] = scope.get("result")
except (Exception, SystemExit) as error:
    import traceback
    answer = {
        "status": "raised",
        "value": f"{type(error).__name__}: {error}",
        "traceback": "".join(traceback.format_exception(error)),
    }
with open(request["answer"], "w", encoding="utf-8") as file:
    json.dump(answer, file)
sys.stdout.flush()
sys.stderr.flush()
os._exit(0)
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the code.

    Attributes:
        status: `ok`; `raised` an exception; the process `died`; or it was ended at the `timeout`.
        value: JSON-able: what the code left in `result` when ok, else one line saying what happened.
        output: the end of what the child printed, the traceback included.
    """

    status: Status
    value: Any
    output: str = ""


def run_in_child(code: str, *, arguments: Any = None, timeout_s: float) -> Outcome:
    """Runs `code` in a child interpreter that has this one's `sys.path` and returns what became of it.

    The code finds `arguments` (JSON-able) and leaves its answer in `result`. At the timeout the child and everything
    it started is killed. Raises OSError when no child can be started.
    """
    with tempfile.TemporaryDirectory(prefix="tilehal-probe-") as folder:
        answer, output = Path(folder, "answer.json"), Path(folder, "output.txt")
        request = {"path": _fresh_path(), "code": code, "arguments": arguments, "answer": str(answer)}
        with output.open("wb") as stream:
            process = processes.start(
                # -P: the current folder is not put on the path, where it could shadow what the boot code imports.
                [sys.executable, "-P", "-c", _BOOT],
                env=_fresh_environment(),
                stdin=subprocess.PIPE,
                stdout=stream,
                stderr=subprocess.STDOUT,
            )
            try:
                process.communicate(json.dumps(request).encode(), timeout=timeout_s)
            except subprocess.TimeoutExpired:
                _kill_group(process)
                return Outcome("timeout", f"did not finish within {timeout_s:g} s", _tail(output))
            except BaseException:
                _kill_group(process)
                raise
            processes.forget(process)
        if process.returncode != 0 or not answer.exists():
            return Outcome("died", _cause_of_death(process.returncode), _tail(output))
        data = json.loads(answer.read_text(encoding="utf-8"))
        return Outcome(data["status"], data["value"], _tail(output) + data.get("traceback", ""))


# Importing tilelang puts the `tvm` inside it on `sys.path` and, for child processes, into two variables. A child must
# see the machine as a fresh process does, whether or not this one has compiled a kernel before.
_TVM_OF_TILELANG = os.path.join("tilelang", "3rdparty", "tvm", "python")


def _fresh_path() -> list[str]:
    return [entry for entry in sys.path if not entry.endswith(_TVM_OF_TILELANG)]


def _fresh_environment() -> dict[str, str]:
    environment = dict(os.environ)
    entries = environment.get("PYTHONPATH", "").split(os.pathsep)
    environment["PYTHONPATH"] = os.pathsep.join(entry for entry in entries if not entry.endswith(_TVM_OF_TILELANG))
    if os.path.join("tilelang", "lib") in environment.get("TVM_LIBRARY_PATH", ""):
        del environment["TVM_LIBRARY_PATH"]
    return environment


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    processes.end(process)
    if process.stdin is not None:
        process.stdin.close()


def _cause_of_death(returncode: int) -> str:
    if returncode < 0:
        try:
            name = signal.Signals(-returncode).name
        except ValueError:
            name = f"signal {-returncode}"
        return f"ended the process with {name}"
    return f"ended the process with exit status {returncode}"


def _tail(output: Path, limit: int = 4000) -> str:
    return output.read_bytes().decode(errors="replace")[-limit:]
