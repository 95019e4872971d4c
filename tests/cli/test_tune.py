"""`tilehal tune`: the run itself, and what can be done with its results."""

from __future__ import annotations

import json

import pytest

from core.cli._durations import age_of, seconds_of, time_text
from core.cli.main import run
from core.cli.tune import _shapes
from core.errors import KernelError, TileHALError
from core.tuning.environment import Environment
from core.tuning.report import ShapeReport, TuneReport
from core.tuning.results.records import Key, Outcome, Result
from core.tuning.results.store import Store

KERNEL = """
import core
import tilelang.language as T

@core.kernel(out=["B"])
def twice(M: int, *, block: int = core.tile("M"), threads: int = core.threads()):
    @T.prim_func
    def main(A: T.Tensor((M,), "float32"), B: T.Tensor((M,), "float32")):
        with T.Kernel(T.ceildiv(M, block), threads=threads) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] * 2.0
    return main

def reference(A):
    return A * 2

def plain(M: int):
    return None
"""


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "kernels.py"
    file.write_text(KERNEL)
    return file


@pytest.fixture
def store(tmp_path, monkeypatch):
    """The user's store."""
    path = tmp_path / "tuned.sqlite"
    monkeypatch.setenv("TILEHAL_TUNING_STORE", str(path))
    monkeypatch.delenv("TILEHAL_TUNED", raising=False)
    store = Store(path)
    yield store
    store.close()


@pytest.fixture
def filled(store):
    environment = Environment("acme: One", "570", "acc 1", "0.1.15", ("tilehal 0.1.0",))
    for kernel, chip in (("twice", "cpu:host"), ("twice", "acme:one"), ("thrice", "cpu:host")):
        key = Key(kernel, "f" * 16, '{"M":1024}', (), chip, environment)
        outcomes = tuple(Outcome({"block": b, "threads": 128}, "ok", b * 1e-6, measured_at=1.0) for b in (16, 32))
        store.add([Result(key, (*outcomes, Outcome({"block": 8, "threads": 1}, "crash", reason="SIGSEGV")))])
    return store


def test_it_tunes_and_a_compilation_uses_the_result(file, store, capsys):
    words = ["tune", f"{file}:twice", "--target", "cpu", "--param", "M=512,640", "--candidates", "2", "--warm"]
    assert run([*words, "--reference", f"{file}:reference", "--jobs", "1", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [shape["arguments"] for shape in report["shapes"]] == [{"M": 512}, {"M": 640}]
    assert all(len(shape["outcomes"]) == 2 and shape["best"] for shape in report["shapes"])
    best = report["shapes"][0]["best"]
    assert run(["compile", f"{file}:twice", "--target", "cpu", "--param", "M=512", "--json"]) == 0
    config = json.loads(capsys.readouterr().out)["config"]["parameters"]
    assert {name: entry["requested"] for name, entry in config.items()} == best["tiles"]
    assert {entry["chosen_by"] for entry in config.values()} == {"tuned:store"}
    assert run(["tune", "--list", f"{file}:twice", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["elsewhere"], row["other_source"]) for row in rows] == [("", False)] * 2


class TestShapes:
    def test_parameters_with_several_values_make_a_grid(self):
        assert _shapes(["M=1,2", "N=3,4", "dtype=float16"], []) == [
            {"M": m, "N": n, "dtype": "float16"} for m in (1, 2) for n in (3, 4)
        ]

    def test_a_range_is_the_extents_that_stand_for_it(self):
        assert _shapes(["M=16..600"], []) == [{"M": 32}, {"M": 128}, {"M": 512}]

    def test_a_comma_inside_brackets_or_quotes_parts_nothing(self):
        assert _shapes(["tile=(1,2),(3,4)", "text='a,b'"], []) == [
            {"tile": tile, "text": "a,b"} for tile in ((1, 2), (3, 4))
        ]

    def test_shapes_lie_over_the_common_parameters(self):
        assert _shapes(["N=8"], ["M=1,K=2", "M=3,N=4"]) == [{"N": 8, "M": 1, "K": 2}, {"N": 4, "M": 3}]

    @pytest.mark.parametrize(
        ("params", "said"),
        [
            (["M"], "--param 'M' is not NAME=VALUE"),
            (["M="], "--param 'M=' has no value"),
            (["M=1", "M=16"], "--param M is given twice"),
        ],
    )
    def test_what_would_be_left_out_is_refused(self, params, said):
        with pytest.raises(KernelError, match=said):
            _shapes(params, [])


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("1.5 m", 90), ("10min", 600), ("2h", 7200)])
def test_a_time_is_a_number_and_its_unit(text, seconds):
    assert seconds_of(text, "--budget") == seconds


def test_an_age_says_its_unit():
    assert [age_of(text, "--older-than") for text in ("0s", "12h", "7 d", "1w")] == [0, 43200, 604800, 604800]
    with pytest.raises(TileHALError, match="'7' is not an age"):
        age_of("7", "--older-than")


def test_a_time_is_printed_in_the_unit_that_suits_it():
    assert [time_text(seconds) for seconds in (6.13e-6, 9.5e-4, 0.02906, 1.5)] == [
        "6.13 us",
        "950 us",
        "29.06 ms",
        "1.5 s",
    ]


@pytest.mark.parametrize("words", ["baseline show", "bench --from", "tune --import", "baseline compare live --suite"])
def test_a_file_that_is_not_there_is_told_in_words(words, tmp_path, capsys):
    assert run([*words.split(), str(tmp_path / "none.json")]) == 2
    printed = "".join(capsys.readouterr().err.replace("│", " ").split())
    assert "none.jsoncannotberead" in printed
    assert "Nosuchfileordirectory" in printed
    assert "Errno" not in printed


def test_what_is_missing_is_said_once(file, store, capsys):
    run(["tune", f"{file}:twice", "--param", "M=64", "--target", "metax:c500"])
    printed = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert printed.count("is not on this machine") == 1
    assert "caused by" not in printed


def test_a_missing_device_is_answered_with_the_commands_own_option(file, capsys):
    assert run(["compile", f"{file}:twice", "--param", "M=64", "--target", "metax:c500", "--run"]) == 2
    printed = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert "simulate=True (`tilehal compile`: --run --simulate)" in printed


def test_a_report_prints_as_text():
    best, slow = Outcome({"block": 32}, "ok", 2e-6), Outcome({"block": 64}, "ok", 3e-6)
    failed = Outcome({"block": 8}, "crash", reason="SIGSEGV")
    shapes = [ShapeReport({"M": 64}, (best, slow, failed), waiting=1, first=slow), ShapeReport({"M": 1}, waiting=4)]
    environment = Environment("acme: One", "570", "acc 1", "0.1.15", ("tilehal 0.1.0",))
    assert str(TuneReport("twice", "acme:one", environment, shapes, 12.4, "tuned.sqlite")).splitlines() == [
        "twice on acme:one",
        "  M=64: 2 us with block=32, 1.50 times as fast as the first choice (3 of 4 candidates measured, 1 failed)",
        "  M=1: not reached (0 of 4 candidates measured)",
        "12 s; results in tuned.sqlite",
    ]


class TestResults:
    def test_they_are_listed_with_how_their_environment_differs(self, filled, capsys):
        assert run(["tune", "--list", "--json"]) == 0
        rows = {(row["kernel"], row["chip"]): row for row in json.loads(capsys.readouterr().out)}
        assert len(rows) == 3
        assert "device acme: One there" in rows["twice", "cpu:host"]["elsewhere"]
        assert rows["twice", "acme:one"]["elsewhere"] == "nothing here knows acme:one"
        assert rows["twice", "cpu:host"]["best"] == {"tiles": {"block": 16, "threads": 128}, "median_s": 16e-6}
        assert (rows["twice", "cpu:host"]["measured"], rows["twice", "cpu:host"]["failed"]) == (2, 1)
        assert run(["tune", "--list", "twice", "--target", "cpu"]) == 0
        out = capsys.readouterr().out
        assert "16 us" in out
        assert "TILEHAL_TUNED=any" in out
        assert "1 shape in" in out

    def test_options_are_listed_as_people_write_them(self, store, capsys):
        environment = Environment("acme: One", "570", "acc 1", "0.1.15", ("tilehal 0.1.0",))
        key = Key("twice", "f" * 16, '{"M":64}', (), "cpu:host", environment, options='{"fast_math":true}')
        store.add([Result(key, (Outcome({"block": 16}, "ok", 1e-6, measured_at=1.0),))])
        assert run(["tune", "--list"]) == 0
        out = capsys.readouterr().out
        assert "fast_math=True" in "".join(out.split())
        assert "{" not in out

    def test_they_go_out_and_come_back(self, filled, tmp_path, capsys):
        table = tmp_path / "table.json"
        assert run(["tune", "--export", str(table), "twice", "--fastest", "1"]) == 0
        assert "2 shapes written" in capsys.readouterr().out
        assert len(json.loads(table.read_text())["results"]) == 2
        assert run(["tune", "--clear", "twice"]) == 0
        assert "2 shapes forgotten" in capsys.readouterr().out
        assert [result.key.kernel for result in filled.results()] == ["thrice"]
        assert run(["tune", "--import", str(table)]) == 0
        assert "2 outcomes taken" in capsys.readouterr().out
        assert {outcome.source for r in filled.results(kernel="twice") for outcome in r.outcomes} == {"table.json"}
        assert run(["tune", "--import", str(table), "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == {"taken": 0, "given": 2}

    def test_another_file_can_be_named(self, filled, tmp_path, capsys):
        assert run(["tune", "--list", "--store", str(tmp_path / "none.sqlite"), "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == []


def test_a_size_that_is_known_at_calls_only_is_measured_at_the_extent_given(file, store, capsys):
    words = ["tune", f"{file}:twice", "--target", "cpu", "--dynamic", "M=512", "--candidates", "1"]
    assert run([*words, "--reference", f"{file}:reference", "--warm", "--jobs", "1", "--json"]) == 0
    (shape,) = json.loads(capsys.readouterr().out)["shapes"]
    assert run(["compile", f"{file}:twice", "--target", "cpu", "--dynamic", "M", "--json"]) == 0
    config = json.loads(capsys.readouterr().out)["config"]["parameters"]
    assert {name: entry["requested"] for name, entry in config.items()} == shape["best"]["tiles"]
    assert {entry["chosen_by"] for entry in config.values()} == {"tuned:store"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tune", "{file}:twice", "--dynamic", "M"], "say --dynamic M=4096"),
        (["tune"], "FILE:FUNCTION is missing"),
        (["tune", "--list", "--clear"], "--list and --clear are different commands"),
        (["tune", "{file}:plain", "--param", "M=1"], "is no @core.kernel factory"),
        (["tune", "{file}:twice", "--param", "M=1", "--budget", "soon"], "--budget 'soon' is not a time"),
        (["tune", "{file}:twice", "--param", "M=1", "--budget", "1h30m"], "--budget '1h30m' is not a time"),
        (["tune", "{file}:twice", "--param", "M=1", "--budget", "0s"], "--budget '0s' is no time at all"),
        (["compile", "{file}:twice", "--param", "M=1", "--timeout", "soon"], "--timeout 'soon' is not a time"),
        (["bench", "--budget", "soon"], "--budget 'soon' is not a time"),
        (["baseline", "record", "{file}:twice", "-o", "s.json", "--timeout", "soon"], "--timeout 'soon' is not a time"),
        (["tune", "{file}:twice", "--param", "M=64", "--target", "metax:c500"], "metax:c500 is not on this machine"),
        (
            ["tune", "{file}:twice", "--param", "M=64", "--target", "cpu", "--dask", "bogus://nowhere"],
            "no dask scheduler",
        ),
        (["tune", "--export", "x.json"], "there is nothing to export"),
        (["tune", "--import", "missing.json"], "cannot be read"),
    ],
)
def test_what_cannot_be_done_is_said(words, said, file, store, capsys):
    assert run([word.format(file=file) for word in words]) == 2
    assert said in " ".join(capsys.readouterr().err.replace("│", " ").split())
