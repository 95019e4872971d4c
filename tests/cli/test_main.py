"""The command line: commands load when called, and errors of ours are printed, not raised."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import re
import resource
import subprocess
import sys

import pytest
import typer

from core.cli import main
from core.cli.main import COMMANDS, run
from core.errors import Location, TargetNotFound


def failing_command(as_json: bool = typer.Option(False, "--json")) -> None:
    try:
        raise KeyError("the cause")
    except KeyError as cause:
        raise TargetNotFound("no such [target]", hint="try another", location=Location("kernel.py", 7)) from cause


@pytest.fixture
def failing(monkeypatch):
    monkeypatch.setitem(COMMANDS, "fail", (__name__, "failing_command", "Fails."))
    monkeypatch.setitem(sys.modules, __name__, sys.modules[failing_command.__module__])
    command = main.LazyCommand("fail", help="Fails.")
    group = typer.main.get_command(main.app)
    group.add_command(command, "fail")
    # Typer builds the group anew for each call; this one has the extra command.
    monkeypatch.setattr(main, "app", lambda args, prog_name: group.main(args=args, prog_name=prog_name))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_listed_command_exists_and_has_help(name, capsys):
    module, _, summary = COMMANDS[name]
    assert importlib.util.find_spec(module), f"{module} is listed and missing"
    assert summary.endswith(".")
    assert run([name, "--help"]) == 0
    assert f"Usage: tilehal {name}" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["bench"], ["targets"], ["baseline", "compare"], ["cache", "clear"]], ids=" ".join)
def test_help_is_wrapped_by_the_terminal_alone(words, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert run([*words, "--help"]) == 0
    text = capsys.readouterr().out.partition("╭")[0]
    paragraphs = [part.splitlines() for part in re.split(r"\n\s*\n", text.strip("\n ")) if "Usage" not in part]
    for lines in paragraphs:
        for line, following in itertools.pairwise(lines):
            assert len(line.strip()) + len(following.split()[0]) + 1 > 76, line


def test_help_lists_every_command_and_imports_none():
    heavy = [*(module for module, _, _ in COMMANDS.values()), "torch", "tilelang", "pydantic"]
    code = (
        f"import sys; from core.cli.main import run; run(['--help']); print([m for m in {heavy!r} if m in sys.modules])"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines()[-1] == "[]"
    assert all(f" {name} " in printed for name in COMMANDS)


def test_help_is_fast():
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "core", "--help"], capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Processor time: other tests run beside this one. 0.13 s where this was written.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.5


def test_python_m_core_is_the_same_program():
    printed = subprocess.run([sys.executable, "-m", "core", "--version"], capture_output=True, text=True, check=True)
    assert printed.stdout.startswith("tilehal 0.")


def test_an_error_is_a_panel_on_stderr_with_its_hint_line_and_cause(failing, capsys):
    assert run(["fail"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    for part in ("TargetNotFound", "no such [target]", "hint: try another", "kernel.py:7", "KeyError: 'the cause'"):
        assert part in captured.err
    assert "Traceback" not in captured.err


def test_with_json_the_error_is_json(failing, capsys):
    assert run(["fail", "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["code"], error["hint"], error["line"]) == ("target-not-found", "try another", 7)


def test_the_traceback_is_there_on_request(failing, monkeypatch):
    monkeypatch.setenv("TILEHAL_TRACEBACK", "1")
    with pytest.raises(TargetNotFound):
        run(["fail"])


def test_an_unknown_command_suggests_one(capsys):
    assert run(["docter"]) == 2
    assert "doctor" in capsys.readouterr().err


def test_a_reader_that_stops_reading_gets_no_traceback():
    command = f"{sys.executable} -m core targets --json | head -c 1"
    finished = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert (finished.stdout, finished.stderr) == ("[", "")


@pytest.mark.parametrize("words", ["core targets", "core targets --json", "core --version", "core.describe --list"])
def test_a_full_disk_is_said_in_a_line(words):
    command = f"{sys.executable} -m {words} > /dev/full"
    finished = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert finished.returncode == 2
    assert finished.stderr == "tilehal: the output cannot be written: No space left on device\n"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_output_of_any_encoding_takes_every_sign(encoding):
    words = [sys.executable, "-m", "core", "describe", "cuda:h200"]
    finished = subprocess.run(words, env={**os.environ, "PYTHONIOENCODING": encoding}, capture_output=True, check=True)
    text = finished.stdout.decode(encoding)
    assert "global -> registers" in text
    assert "64{0}<=256{0}16".format("x" if encoding == "ascii" else "×") in text


def test_json_is_the_same_data_whatever_the_encoding():
    def printed(encoding: str) -> object:
        words = [
            sys.executable,
            "-c",
            "from core.cli._output import print_json; print_json({'×': 'µ→', 'b': '\\u4e2d'})",
        ]
        environment = {**os.environ, "PYTHONIOENCODING": encoding}
        return json.loads(
            subprocess.run(words, env=environment, capture_output=True, check=True).stdout.decode(encoding)
        )

    assert printed("ascii") == printed("latin-1") == printed("utf-8") == {"×": "µ→", "b": "中"}


@pytest.mark.parametrize(("columns", "width"), [("60", 60), ("", 100), ("wide", 100)])
def test_output_that_is_no_terminal_is_as_wide_as_columns_says(columns, width, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", columns)
    assert run(["describe", "cuda:h200"]) == 0
    assert width - 10 < max(map(len, capsys.readouterr().out.splitlines())) <= width


def test_a_warning_is_a_line_without_a_place_in_our_code():
    code = (
        "import warnings; from core.cli import main; from core.errors import TuningWarning;"
        "main.run = lambda words: warnings.warn('a table is left out', TuningWarning) or warnings.warn('theirs') or 0;"
        "main.main()"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert finished.stderr.splitlines() == [
        "tilehal: warning: a table is left out",
        "<string>:1: UserWarning: theirs",
    ]


def test_a_command_that_writes_json_into_a_file_prints_its_errors_for_people(tmp_path, capsys):
    assert run(["bench", "nonsense", "--json", str(tmp_path / "bench.json")]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "there is no operator 'nonsense'" in captured.err
    assert "caused by" not in captured.err


def test_without_a_standard_output_a_command_does_its_work():
    finished = subprocess.run(["bash", "-c", f"{sys.executable} -m core targets >&-"], capture_output=True, text=True)
    assert (finished.returncode, finished.stderr) == (0, "")


@pytest.mark.parametrize("error", [TargetNotFound("half imported"), RecursionError("half imported")])
def test_what_ctrl_c_left_in_pieces_is_not_reported_as_a_fault(error, monkeypatch, capsys):
    """An import that was interrupted may swallow that, and fail in a way of its own later."""

    def interrupted(**arguments):
        with pytest.raises(KeyboardInterrupt):
            main._interruption(2, None)
        raise error

    monkeypatch.setattr(main, "_interruption", main._Interruption())
    monkeypatch.setattr(main, "app", interrupted)
    assert run(["targets"]) == 130
    assert capsys.readouterr() == ("", "")


def test_ctrl_c_is_exit_status_130(monkeypatch):
    def interrupted(**arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(main, "app", interrupted)
    assert run(["targets"]) == 130
