"""Finding and running external compilers."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from core.compiler import toolchain
from core.compiler.toolchain import FoundProgram, NotFound, find_program, run_tool, tool_version
from core.errors import BuildFailed, ToolchainNotFound

PYTHON = sys.executable


def program(folder: Path, name: str, text: str = "#!/bin/sh\necho hello\n") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)
    return path


class TestFindProgram:
    def test_a_variable_that_holds_a_command_wins_over_path(self, tmp_path, monkeypatch):
        program(tmp_path / "on-path", "cc")
        mine = program(tmp_path / "mine", "my cc")
        monkeypatch.setenv("PATH", str(tmp_path / "on-path"))
        monkeypatch.setenv("CC", f"'{mine}' -m64")
        found = find_program(["cc"], env_vars=["CC"])
        assert found == FoundProgram(mine, ("-m64",), "$CC")
        assert found.command == (str(mine), "-m64")

    def test_a_variable_that_names_nothing_is_not_replaced_by_another_compiler(self, tmp_path, monkeypatch):
        program(tmp_path, "cc")
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setenv("CC", "no-such-cc")
        found = find_program(["cc"], env_vars=["CC"])
        assert isinstance(found, NotFound)
        assert found.looked == ("$CC=no-such-cc (names no program that can be run)",)

    def test_order_is_home_then_path_then_folders(self, tmp_path, monkeypatch):
        for place in ("home/bin", "path", "folder"):
            program(tmp_path / place, "nvcc")
        monkeypatch.setenv("TOOL_HOME", str(tmp_path / "home"))
        monkeypatch.setenv("PATH", str(tmp_path / "path"))
        places = {"env_homes": ["TOOL_HOME"], "folders": [tmp_path / "folder"]}
        seen = []
        for _ in range(3):
            found = find_program(["nvcc"], **places)
            assert isinstance(found, FoundProgram)
            seen.append((str(found.path.parent.relative_to(tmp_path)), found.found_through))
            found.path.unlink()
        assert seen == [("home/bin", "$TOOL_HOME"), ("path", "PATH"), ("folder", str(tmp_path / "folder"))]

    def test_first_name_is_preferred(self, tmp_path, monkeypatch):
        program(tmp_path, "g++")
        program(tmp_path, "clang++")
        monkeypatch.setenv("PATH", str(tmp_path))
        found = find_program(["clang++", "g++"])
        assert isinstance(found, FoundProgram)
        assert found.path.name == "clang++"

    def test_a_file_that_is_not_executable_is_no_program(self, tmp_path):
        program(tmp_path, "nvcc").chmod(0o644)
        assert isinstance(find_program(["nvcc"], folders=[tmp_path], search_path=False), NotFound)

    def test_every_place_is_named_when_nothing_is_found(self, tmp_path, monkeypatch):
        monkeypatch.delenv("NVCC", raising=False)
        monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
        monkeypatch.delenv("CUDA_PATH", raising=False)
        monkeypatch.setenv("PATH", str(tmp_path))
        found = find_program(
            ["nvcc"], env_vars=["NVCC"], env_homes=["CUDA_HOME", "CUDA_PATH"], folders=[tmp_path / "opt"]
        )
        assert isinstance(found, NotFound)
        assert found.looked == (
            "$NVCC (not set)",
            f"{tmp_path}/cuda/bin ($CUDA_HOME)",
            f"{tmp_path}/cuda ($CUDA_HOME)",
            "$CUDA_PATH (not set)",
            "PATH (1 folder)",
            f"{tmp_path}/opt (no such folder)",
        )
        error = found.error("build CUDA kernels", "install the CUDA toolkit")
        assert isinstance(error, ToolchainNotFound)
        assert error.hint == "install the CUDA toolkit"
        assert all(place in error.message for place in found.looked)
        assert error.details["path"] == str(tmp_path)

    def test_a_long_search_path_is_counted_in_the_message_and_listed_in_the_details(self, tmp_path, monkeypatch):
        folders = os.pathsep.join(str(tmp_path / str(number)) for number in range(40))
        monkeypatch.setenv("PATH", folders)
        found = find_program(["nvcc"])
        assert isinstance(found, NotFound)
        error = found.error("build CUDA kernels", "")
        assert "PATH (40 folders)" in error.message
        assert folders not in error.message
        assert error.details["path"] == folders


class TestRunTool:
    def test_returns_both_streams_and_the_status(self, tmp_path):
        code = "import sys, os; print('out', os.getcwd()); print('err', file=sys.stderr); sys.exit(3)"
        result = run_tool([PYTHON, "-c", code], cwd=tmp_path, check=False)
        assert (result.returncode, result.stdout, result.stderr) == (3, f"out {tmp_path}\n", "err\n")

    def test_never_reads_our_standard_input(self, tmp_path):
        result = run_tool([PYTHON, "-c", "import sys; print(repr(sys.stdin.read()))"], cwd=tmp_path, timeout_s=20)
        assert result.stdout == "''\n"

    def test_prints_nothing_unless_asked(self, tmp_path, capfd):
        run_tool([PYTHON, "-c", "print('noise')"], cwd=tmp_path)
        assert capfd.readouterr() == ("", "")
        run_tool([PYTHON, "-c", "print('noise')"], cwd=tmp_path, verbose=True)
        out, err = capfd.readouterr()
        assert out == ""
        assert err.splitlines() == [f"{PYTHON} -c 'print('\"'\"'noise'\"'\"')'", "noise"]

    def test_a_failure_carries_message_command_folder_and_source(self, tmp_path):
        source = tmp_path / "kernel.cpp"
        source.write_text("int x = ;")
        command = [PYTHON, "-c", "import sys; sys.exit('kernel.cpp:1: expected expression')"]
        with pytest.raises(BuildFailed) as caught:
            run_tool(command, cwd=tmp_path, source=Path("kernel.cpp"), purpose="compile softmax")
        error = caught.value
        assert error.message.startswith(f"{Path(PYTHON).name} failed with exit status 1 (to compile softmax)")
        assert "kernel.cpp:1: expected expression" in error.message
        assert error.details == {
            "command": command,
            "directory": str(tmp_path),
            "returncode": 1,
            "output": "kernel.cpp:1: expected expression",
            "source": str(source),
            "transient": False,
            "timeout_s": None,
        }

    def test_a_long_message_is_cut_in_the_text_and_whole_in_the_details(self, tmp_path):
        with pytest.raises(BuildFailed) as caught:
            run_tool([PYTHON, "-c", "import sys; print('x' * 100_000); sys.exit(1)"], cwd=tmp_path)
        assert len(caught.value.message) < 6000
        assert caught.value.details["output"] == "x" * 100_000

    def test_a_timeout_ends_the_whole_process_group(self, tmp_path):
        # The tool starts a child and waits for it, as compiler drivers do; both must be gone.
        command = ["sh", "-c", "sleep 60 & echo $! > child; wait"]
        with pytest.raises(BuildFailed) as caught:
            run_tool(command, cwd=tmp_path, timeout_s=1.5)
        assert "did not finish within 1.5 s" in caught.value.message
        assert caught.value.details["transient"] is True
        pid = int((tmp_path / "child").read_text())
        assert _gone(pid)

    def test_a_tool_that_ignores_sigterm_is_killed(self, tmp_path, monkeypatch):
        monkeypatch.setattr(toolchain, "_GRACE_S", 0.2)
        code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
        started = time.monotonic()
        with pytest.raises(BuildFailed):
            run_tool([PYTHON, "-c", code], cwd=tmp_path, timeout_s=1.0)
        assert time.monotonic() - started < 40

    def test_death_by_signal_is_named_and_transient(self, tmp_path):
        code = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
        with pytest.raises(BuildFailed, match=r"ended by signal 11 \(SIGSEGV\)") as caught:
            run_tool([PYTHON, "-c", code], cwd=tmp_path)
        assert caught.value.details["transient"] is True

    def test_a_program_that_cannot_start_is_a_missing_toolchain(self, tmp_path):
        with pytest.raises(ToolchainNotFound, match="cannot be started"):
            run_tool([tmp_path / "nvcc"], cwd=tmp_path)

    def test_environment_is_added_and_messages_are_in_english(self, tmp_path, monkeypatch):
        monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
        code = "import os; print(os.environ['LC_ALL'], os.environ['EXTRA'], 'PATH' in os.environ)"
        assert run_tool([PYTHON, "-c", code], cwd=tmp_path, env={"EXTRA": "1"}).stdout == "C 1 True\n"


class TestToolVersion:
    def test_is_asked_once_and_again_when_the_file_changes(self, tmp_path):
        counter = tmp_path / "calls"
        path = program(tmp_path, "cc", f"#!/bin/sh\necho x >> {counter}\necho cc 1.0\n")
        found = FoundProgram(path, (), "PATH")
        assert [tool_version(found), tool_version(found)] == ["cc 1.0", "cc 1.0"]
        assert counter.read_text().count("x") == 1
        program(tmp_path, "cc", f"#!/bin/sh\necho x >> {counter}\necho cc 1.0.1\n")
        assert tool_version(found) == "cc 1.0.1"

    def test_a_broken_compiler_is_a_missing_toolchain(self, tmp_path):
        path = program(tmp_path, "cc", "#!/bin/sh\necho 'libfoo.so: not found' >&2\nexit 127\n")
        with pytest.raises(ToolchainNotFound, match=r"libfoo\.so: not found"):
            tool_version(FoundProgram(path, (), "PATH"))


def _gone(pid: int) -> bool:
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        # A zombie nobody reaps (we are not its parent) counts as gone.
        if state == "Z":
            return True
        time.sleep(0.05)
    return False
