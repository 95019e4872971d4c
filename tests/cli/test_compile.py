"""`tilehal compile`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from core.cli._output import write_file
from core.cli.main import run
from core.errors import TileHALError

SOURCE = """
import core
import tilelang.language as T

print("printed by the kernel's file")


def negate(N: int):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, 64), threads=64) as bx:
            for i in T.Parallel(64):
                B[bx * 64 + i] = -A[bx * 64 + i]
    return main


@core.kernel(out=["B"])
def tiled(N: int, *, block: int = core.tile("N"), threads: int = core.threads()):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block), threads=threads) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = -A[bx * block + i]
    return main


def symbolic():
    N = T.dynamic("N")

    @T.prim_func
    def main(A: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, 64), threads=64) as bx:
            for i in T.Parallel(64):
                A[bx * 64 + i] = 0.0
    return main
"""


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "kernels.py"
    file.write_text(SOURCE)
    return file


def test_the_source_goes_to_stdout_and_nothing_else_does(file, capsys):
    assert run(["compile", f"{file}:negate", "--target", "cuda:h200", "--param", "N=100", "--emit", "source"]) == 0
    out = capsys.readouterr().out
    assert "__global__" in out
    assert "printed by" not in out


def test_the_source_goes_to_a_file_and_the_report_to_stdout(file, tmp_path, capsys):
    written = tmp_path / "[odd] kernel.cu"
    words = ["compile", f"{file}:negate", "--target", "cuda:h200", "--param", "N=100", "--emit", "source"]
    assert run([*words, "--output", str(written)]) == 0
    assert "__global__" in written.read_text()
    out = capsys.readouterr().out
    assert "main for cuda:h200" in out
    # A long path is folded, wherever the width says.
    assert "[odd]kernel.cu" in "".join(out.split())


def test_the_report_as_json_says_who_chose_what_and_holds_the_source(file, capsys):
    words = ["compile", f"{file}:tiled", "--target", "cpu", "--param", "N=100", "--param", "block=16"]
    assert run([*words, "--emit", "source", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    parameters = report["config"]["parameters"]
    assert parameters["block"] == {"requested": 16, "effective": 16, "chosen_by": "user", "note": "", "reason": ""}
    assert parameters["threads"]["effective"] is None
    assert report["provenance"]["route"] == "cpp"
    assert report["written"] is None
    assert "static void" in report["source"]


def test_it_runs_and_times_the_kernel(file, capsys):
    assert run(["compile", f"{file}:tiled", "--target", "cpu", "--param", "N=100", "--run", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert 0 < report["run"]["fastest_ms"] <= report["run"]["median_ms"]
    assert report["provenance"]["toolchain"]
    assert "source" not in report


def test_the_binary_is_written_where_it_is_wanted(file, tmp_path):
    written = tmp_path / "kernel.so"
    words = ["compile", f"{file}:negate", "--target", "cpu", "--param", "N=100", "--emit", "binary"]
    assert run([*words, "-o", str(written)]) == 0
    assert written.read_bytes()[:4] == b"\x7fELF"


def test_source_on_stdout_leaves_no_room_for_a_report(file, capsys):
    words = ["compile", f"{file}:negate", "--target", "cpu", "--param", "N=100", "--emit", "source", "--run"]
    assert run(words) == 2
    assert "give --output" in " ".join(capsys.readouterr().err.replace("│", " ").split())


@pytest.mark.parametrize(
    ("kernel", "words", "said"),
    [
        ("negate", ["--param", "N"], "--param 'N' is not NAME=VALUE"),
        ("negate", ["--param", "N=64,M=8; dtype=x"], "hint: --param N=64 --param M=8 --param dtype=x"),
        ("negate", ["--param", "N="], "--param 'N=' has no value"),
        ("negate", ["--param", "N=3", "--param", "N=4"], "--param N is given twice"),
        ("negate", ["--param", "target=3"], "--param target: core.compile takes an argument of that name"),
        ("negat", [], "negate"),
        ("symbolic", ["--run"], "has symbolic dimensions (N): --run cannot choose them"),
        ("tiled", ["--dynamic", "N", "--run"], "say what to run with: --dynamic N=4096"),
        ("tiled", ["--dynamic", "N=64"], "nothing is measured here"),
        ("tiled", ["--dynamic", "M"], "its arguments are N"),
        ("tiled", ["--dynamic", "N", "--param", "N=4"], "N is given by --param and by --dynamic"),
        ("tiled", ["--dynamic", "N", "--dynamic", "N"], "--dynamic N is given twice"),
        ("tiled", ["--dynamic", "N=0", "--run"], "is not NAME or NAME=EXTENT"),
        ("tiled", ["--dynamic", "=4", "--run"], "is not NAME or NAME=EXTENT"),
        ("tiled", ["--param", "N=dynamic"], "--dynamic N in the shell"),
        ("tiled", ["--param", "N=512,1024"], "give one N at a time"),
        ("tiled", ["--param", "N=0"], "N=0, and N is the extent that block divides"),
        ("negate", ["--param", "N=4", "--target", "cuda:h2000"], "did you mean cuda:h200"),
    ],
)
def test_what_cannot_be_done_is_exit_status_2_with_a_hint(file, kernel, words, said, capsys):
    target = [] if "--target" in words else ["--target", "cpu"]
    assert run(["compile", f"{file}:{kernel}", *target, *words]) == 2
    err = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert said in err
    assert "hint:" in err


@pytest.mark.parametrize("kernel", ["negate", "tiled", "symbolic"])
def test_a_size_that_is_known_at_calls_only_is_run_with_the_extent_given(kernel, file, capsys):
    assert run(["compile", f"{file}:{kernel}", "--target", "cpu", "--dynamic", "N=100", "--run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["run"]["calls"] == 8
    words = [] if kernel == "symbolic" else ["--dynamic", "N"]
    assert run(["compile", f"{file}:{kernel}", "--target", "cpu", *words, "--emit", "source"]) == 0
    assert "int32_t N" in capsys.readouterr().out


class TestFilesThatCannotBeWritten:
    @pytest.mark.parametrize("emit", ["source", "binary"])
    def test_a_missing_folder_is_told_before_anything_is_compiled(self, emit, file, tmp_path, capsys):
        words = ["compile", f"{file}:negate", "--target", "cpu", "--param", "N=100", "--emit", emit, "--json"]
        assert run([*words, "-o", str(tmp_path / "missing" / "x.cpp")]) == 2
        captured = capsys.readouterr()
        error = json.loads(captured.out)["error"]
        assert "there is no folder" in error["message"]
        assert "mkdir -p" in error["hint"]
        assert "printed by the kernel's file" not in captured.err

    def test_a_folder_is_no_file(self, file, tmp_path, capsys):
        assert run(["compile", f"{file}:negate", "--target", "cpu", "--emit", "source", "-o", str(tmp_path)]) == 2
        assert "this is a folder" in capsys.readouterr().err

    def test_what_was_there_stays_when_writing_fails(self, file, tmp_path, monkeypatch, capsys):
        target = tmp_path / "out.cpp"
        target.write_text("before")

        def full(handle, mode):
            os.close(handle)
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("core.cli._output.os.fdopen", full)
        with pytest.raises(TileHALError, match="No space left on device"):
            write_file(target, "after", "--output")
        assert target.read_text() == "before"
        assert sorted(path.name for path in tmp_path.iterdir()) == ["kernels.py", "out.cpp"]

    def test_a_link_stays_a_link_and_permissions_stay(self, tmp_path):
        target, link = tmp_path / "out.cpp", tmp_path / "link.cpp"
        target.write_text("before")
        target.chmod(0o640)
        link.symlink_to(target)
        write_file(link, "after", "--output")
        assert link.is_symlink()
        assert (target.read_text(), target.stat().st_mode & 0o777) == ("after", 0o640)

    def test_a_device_takes_the_text(self):
        write_file(Path("/dev/null"), "text", "--output")
        assert Path("/dev/null").is_char_device()


def test_the_report_says_which_part_came_from_the_cache(file, tmp_path, capsys):
    words = ["compile", f"{file}:negate", "--target", "cpu", "--param", "N=173"]
    emitted = [*words, "--emit", "source", "-o", str(tmp_path / "x.cpp")]
    run(emitted)
    assert "cached" not in capsys.readouterr().out
    run(emitted)
    assert "(source cached)" in capsys.readouterr().out
    binary = [*words, "--emit", "binary", "-o", str(tmp_path / "x.so")]
    run(binary)
    run(binary)
    assert "(source and binary cached)" in capsys.readouterr().out


def test_the_report_says_why_the_evidence_is_the_source_alone(file, capsys):
    words = ["compile", f"{file}:negate", "--target", "cpu", "--param", "N=128"]
    assert run(words) == 0
    assert "source only: this kernel was not built; --emit binary" in " ".join(capsys.readouterr().out.split())
    assert run([*words, "--run"]) == 0
    assert "evidence device" in " ".join(capsys.readouterr().out.split())


def test_a_memory_the_kernel_does_not_use_has_no_figure(file, tmp_path, capsys):
    words = ["compile", f"{file}:negate", "--target", "cpu", "--param", "N=100", "--emit", "source"]
    assert run([*words, "-o", str(tmp_path / "x.cpp")]) == 0
    assert " 0 B" not in capsys.readouterr().out


def test_the_table_says_how_many_operations_each_byte_is_for(file, tmp_path, capsys):
    words = ["compile", f"{file}:negate", "--target", "cuda:h200", "--param", "N=128", "--emit", "source"]
    assert run([*words, "-o", str(tmp_path / "x.cu")]) == 0
    # One negation for each element of four bytes that is read and written.
    assert "0.125 FLOP per byte" in capsys.readouterr().out
