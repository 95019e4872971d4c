"""`tilehal baseline`: a snapshot recorded, shown and compared from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from core.cli.main import run
from core.tuning.baseline import Row, Snapshot, Timing

KERNELS = """
import core, tilelang.language as T

@core.kernel(out=["B"])
def double(N: int, *, threads: int = core.threads()):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, 64), threads=64) as bx:
            for i in T.Parallel(64):
                B[bx * 64 + i] = A[bx * 64 + i] * 2.0
    return main

def twice(a):
    return a * 2
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a kernel and, in `baseline.json`, a snapshot of it that the command recorded."""
    folder = tmp_path_factory.mktemp("baseline")
    (folder / "doubling.py").write_text(KERNELS)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        words = "record doubling.py:double --target cpu --param N=4096 --reference doubling.py:twice -o baseline.json"
        assert run(["baseline", *words.split(), "--passes", "1", "--repeat-ms", "2"]) == 0
    return folder


@pytest.fixture(autouse=True)
def in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def changed(folder: Path, name: str, factor: float, **fields: Any) -> Path:
    """A copy of the snapshot with steady times, multiplied."""
    (row,) = Snapshot.read(folder / "baseline.json").rows
    timing = Timing.of([factor * seconds for seconds in (1e-5, 1.001e-5, 0.999e-5)], "wall")
    rows = (Row(row.case, **{"cold": timing, "warm": timing, **fields}),)
    path = folder / name
    Snapshot(Snapshot.read(folder / "baseline.json").environment, rows).save(path)
    return path


def test_what_was_recorded_is_there(folder: Path) -> None:
    (row,) = Snapshot.read(folder / "baseline.json").rows
    assert (row.case.name, row.status, row.error) == ("double(N=4096)", "ok", 0.0)
    assert row.cold is not None
    assert len(row.cold.passes_s) == 1
    assert row.compile_s is not None
    assert [path.name for path in folder.glob(".*")] == []


def test_show_prints_the_rows(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["baseline", "show", "baseline.json"]) == 0
    assert "double(N=4096)" in capsys.readouterr().out
    assert run(["baseline", "show", "baseline.json", "--json"]) == 0
    assert capsys.readouterr().out == (folder / "baseline.json").read_text()


def test_compare_ends_with_0_when_nothing_regressed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed(folder, "old.json", 1.0)
    changed(folder, "new.json", 0.999)
    assert run(["baseline", "compare", "old.json", "new.json"]) == 0
    assert "no regression: beyond 3%, with 95% confidence" in " ".join(capsys.readouterr().out.split())


def test_compare_ends_with_1_and_says_what_regressed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed(folder, "old.json", 1.0)
    changed(folder, "new.json", 1.10)
    assert run(["baseline", "compare", "old.json", "new.json", "--picture", "change.svg"]) == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert "1.100x" in printed
    assert "slower" in printed
    assert "1 of 1 rows regressed" in printed
    assert (folder / "change.svg").read_text().startswith("<?xml")
    assert run(["baseline", "compare", "old.json", "new.json", "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert [row["verdict"] for row in data["rows"]] == ["slower"]
    assert run(["baseline", "compare", "old.json", "new.json", "--tolerance", "0.2"]) == 0


def test_compare_with_this_build_measures_the_rows_of_the_file(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    old = changed(folder, "old.json", 1.0)
    asked: list[Any] = []

    def measured(builds: list[Any], cases: list[Any], settings: Any, *, progress: Any) -> list[Snapshot]:
        asked.append(([build.name for build in builds], [case.name for case in cases], settings))
        return [Snapshot.read(changed(folder, "now.json", 0.5)), Snapshot.read(old)][: len(builds)]

    monkeypatch.setattr("core.tuning.baseline.record_builds", measured)
    assert run(["baseline", "compare", "old.json", "live", "--repeat-ms", "7", "--save", "saved.json", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["verdict"] == "faster"
    builds, cases, settings = asked[0]
    assert (builds, cases) == (["live"], ["double(N=4096)"])
    assert (settings.passes, settings.repeat_ms) == (1, 7)  # as recorded, and as given
    assert Snapshot.read(folder / "saved.json").to_text() == (folder / "now.json").read_text()
    assert run(["baseline", "compare", "live", "old.json"]) == 1  # the build comes first: what is in the file is slower
    capsys.readouterr()
    words = "compare live:. live --kernel doubling.py:double --param N=64 --target cpu --json"
    (folder / "core").mkdir()
    (folder / "core" / "__init__.py").write_text("")
    assert run(["baseline", *words.split()]) == 1
    assert json.loads(capsys.readouterr().out)["interleaved"] is True
    assert asked[-1][:2] == (["live:.", "live"], ["double(N=64)"])


def test_a_recording_in_which_nothing_ran_ends_with_status_1(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = Snapshot.read(changed(folder, "failed.json", 1.0, status="failed", reason="no such chip here"))
    monkeypatch.setattr("core.tuning.baseline.record", lambda *cases, **options: failed)
    assert run(["baseline", "record", "doubling.py:double", "--target", "cpu", "-o", "out.json"]) == 1
    assert "no such chip here" in " ".join(capsys.readouterr().out.split())
    assert (folder / "out.json").read_text() == failed.to_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("record doubling.py:double", "give --output FILE"),
        ("record --param N=1 -o x.json", "belong to kernels named here"),
        ("record -o nowhere/x.json", "there is no folder nowhere"),
        ("compare none.json none.json", "cannot be read"),
        ("compare live:nowhere live", "is no build of TileHAL"),
        ("show doubling.py", "is no snapshot"),
    ],
)
def test_what_cannot_be_done_is_said_with_status_2(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["baseline", *words.split()]) == 2
    assert said in " ".join(capsys.readouterr().err.replace("│", " ").split())
