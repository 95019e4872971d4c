"""The tuner, on this machine's CPU: what it measures, and what it survives."""

from __future__ import annotations

import json
import re
import signal
import sqlite3
import subprocess
import sys
import time
import uuid
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

import core
from core.errors import DeviceUnavailable, KernelError, TuningError, TuningStoreError
from core.tiling.verdict import Verdict
from core.tuning import progress
from core.tuning.environment import environment_here
from core.tuning.progress import Silent
from core.tuning.results.store import Store
from core.tuning.tuner import TuningInterrupted
from core.tuning.workers.jobs import Reply
from tests.packaging.layout import ROOT
from tests.tuning import tuned_kernels
from tests.tuning.tuned_kernels import planted, twice

QUICK = {"target": "cpu", "cold_l2": False, "warmup_ms": 1.0, "repeat_ms": 5.0, "jobs": 2, "progress": False}


pytestmark = pytest.mark.usefixtures("kept_children")


@pytest.fixture
def ranked(monkeypatch):
    """Makes the ranking of a kernel what a test says, best first."""

    def ranked(*tiles):
        verdicts = tuple(Verdict(one, dict.fromkeys(one, "default"), "ranked", "") for one in tiles)
        ranking = SimpleNamespace(candidates=verdicts, refused=(), shape=SimpleNamespace(dtypes=("float32",)))
        monkeypatch.setattr(core.tiling.KernelFactory, "rank", lambda self, **arguments: ranking)

    return ranked


def of_block(*blocks, **more):
    return [{"block": block, "threads": 128, **more} for block in blocks]


def fates(shape):
    """What became of each candidate, by its way."""
    return {outcome.tiles["way"]: outcome.status for outcome in shape.outcomes}


@pytest.fixture(scope="module")
def run(tmp_path_factory, kept_children):
    with pytest.MonkeyPatch.context() as patch:
        ways = [{"block": 64, "way": way} for way in tuned_kernels.WAYS]
        ways.append({"block": 16, "way": "fine"})
        verdicts = tuple(Verdict(one, dict.fromkeys(one, "default"), "ranked", "") for one in ways)
        ranking = SimpleNamespace(candidates=verdicts, refused=(), shape=SimpleNamespace(dtypes=("float32",)))
        patch.setattr(core.tiling.KernelFactory, "rank", lambda self, **arguments: ranking)
        started = time.monotonic()
        for way in ("fine", "slow", "wrong", "hangs while running"):
            planted.compile(1024, block=64, way=way, target="cpu")  # so that little time suffices below
        # A candidate that works needs a fraction of what building these took; a busy machine takes longer for both.
        timeout_s = round(max(3.0, time.monotonic() - started), 1)
        store = Store(tmp_path_factory.mktemp("tuning") / "store.sqlite")
        report = planted.tune(1024, store=store, timeout_s=timeout_s, **QUICK)
    yield SimpleNamespace(report=report, shape=report.shapes[0], store=store, timeout_s=timeout_s)
    store.close()


class TestMisbehaviour:
    """One run over candidates of every kind: each costs itself and nothing else."""

    def test_each_candidate_has_the_fate_it_deserves(self, run):
        assert fates(run.shape) == {
            "fine": "ok",
            "slow": "ok",
            "wrong": "wrong",
            "does not build": "build",
            "crashes while compiling": "crash",
            "hangs while compiling": "timeout",
            "crashes while running": "crash",
            "hangs while running": "timeout",
        }
        assert run.shape.waiting == 0

    def test_the_cause_is_remembered(self, run):
        (result,) = run.store.results()
        causes = {outcome.tiles["way"]: outcome.reason for outcome in result.failures}
        assert causes["crashes while running"] == "its process ended: SIGSEGV"
        assert causes["hangs while compiling"] == f"not done after {run.timeout_s:g} s"
        assert re.match(r"B: 1,0\d\d of 1,024 elements are wrong", causes["wrong"])
        assert "no kernel this way" in causes["does not build"]
        crashed = next(o for o in result.failures if o.tiles["way"] == "crashes while compiling")
        assert any("Segfault" in line or "Segmentation" in line for line in crashed.details["output"])

    def test_the_best_is_the_fastest_that_is_right(self, run):
        assert run.shape.best.tiles["way"] == "fine"
        slow = next(outcome for outcome in run.shape.outcomes if outcome.tiles["way"] == "slow")
        assert slow.median_s > 10 * run.shape.best.median_s
        assert slow.low_s <= slow.median_s <= slow.high_s
        assert run.shape.first.tiles == {"block": 64, "way": "fine"}

    def test_compiling_the_kernel_uses_it(self, run, monkeypatch):
        monkeypatch.setenv("TILEHAL_TUNING_STORE", str(run.store.path))
        found = core.tuning.tuned_tiles(planted, {"M": 1024}, core.chip("cpu"), core.plugins.manager().backend("cpu"))
        assert found.tiles == run.shape.best.tiles

    def test_a_second_run_measures_nothing_and_says_the_same(self, run, ranked):
        ranked(*({"block": 64, "way": way} for way in tuned_kernels.WAYS))
        again = planted.tune(1024, store=run.store, timeout_s=run.timeout_s, **QUICK)
        assert again.shapes[0].reused == 8
        assert fates(again.shapes[0]) == fates(run.shape)

    def test_the_report_is_data_and_a_table(self, run):
        data = json.loads(json.dumps(run.report.to_json()))
        (shape,) = data["shapes"]
        assert shape["best"]["tiles"] == run.shape.best.tiles
        assert shape["covers"]["M"] == [512, 2048]
        assert len(shape["outcomes"]) == 9
        from rich.console import Console

        console = Console(width=160)
        with console.capture() as captured:
            for part in run.report.renderables():
                console.print(part)
        text = captured.get()
        assert "way=crashes while running" in text
        assert "SIGSEGV" in text
        assert "9/9" in text


class TestReference:
    def test_a_first_candidate_that_is_wrong_is_found_out_by_the_user_s_reference(self, ranked, store):
        ranked({"block": 64, "way": "wrong"}, {"block": 64, "way": "fine"})
        report = planted.tune(1024, store=store, reference=tuned_kernels.right, **QUICK)
        assert fates(report.shapes[0]) == {"wrong": "wrong", "fine": "ok"}
        assert report.shapes[0].reference == "the user's reference"
        # What an untuned compilation would have taken is wrong: there is nothing to compare with.
        assert report.shapes[0].first.status == "wrong"
        assert report.shapes[0].speedup is None

    @pytest.mark.parametrize(
        ("reference", "said"),
        [
            (tuned_kernels.raising, "the reference for twice raised ValueError: no such thing"),
            (tuned_kernels.two_outputs, "returned 2 tensors; the kernel writes 1"),
            (
                tuned_kernels.cut_short,
                r"returned a Tensor of shape \(1023,\) for B, which is a tensor of shape \(1024,\)",
            ),
            (tuned_kernels.listed, "returned 1024 tensors; the kernel writes 1"),
        ],
    )
    def test_a_reference_with_a_fault_is_no_candidate_s_fault(self, ranked, store, reference, said):
        ranked(*of_block(64))
        with pytest.raises(TuningError, match=said):
            twice.tune(1024, store=store, reference=reference, **QUICK)
        assert store.results() == ()

    def test_values_that_do_not_fit_are_no_candidate_s_fault(self, ranked, store):
        ranked(*of_block(64))
        with pytest.raises(
            TuningError, match=r"values give torch.float32 \[3\] for A, which is torch.float32 \[1024\]"
        ):
            twice.tune(1024, store=store, values={"A": torch.ones(3)}, **QUICK)
        assert store.results() == ()

    def test_what_the_user_s_word_made_wrong_is_tried_again(self, ranked, store):
        """The word may have been wrong itself; the candidate would never be measured otherwise."""
        ranked(*of_block(64))
        judged = [
            twice.tune(1024, store=store, **more, **QUICK).shapes[0].outcomes[0].status
            for more in ({"reference": tuned_kernels.mistaken}, {"reference": tuned_kernels.right}, {})
        ]
        assert judged == ["wrong", "ok", "ok"]


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"candidates": 0}, "candidates=0 is no number of candidates"),
            ({"candidates": "x"}, "candidates='x' is no number of candidates"),
            ({"jobs": -1}, "jobs=-1 is no number of jobs"),
            ({"jobs": 0}, "jobs=0 is no number of jobs"),
            ({"budget_s": "1m"}, "budget_s='1m', and it is a number of 0 or more"),
            ({"budget_s": -1}, "budget_s=-1"),
            ({"timeout_s": 0}, "timeout_s=0"),
            ({"timeout_s": float("nan")}, "timeout_s=nan"),
            ({"tolerance": "x"}, "tolerance='x'"),
            ({"tolerance": -0.1}, "tolerance=-0.1"),
            ({"repeat_ms": -5}, "repeat_ms=-5"),
            ({"reference": 3}, "reference=3 is no function"),
            ({"device": "cuda:0"}, "is not timed on cuda:0|torch sees 0 cuda devices"),
        ],
    )
    def test_what_means_nothing_is_refused_before_a_candidate_is_blamed(self, ranked, store, options, said):
        ranked(*of_block(64))
        with pytest.raises((TuningError, DeviceUnavailable), match=said) as caught:
            twice.tune(1024, store=store, **{**QUICK, **options})
        assert caught.value.hint
        assert store.results() == ()


class Stuck:
    """A site that compiles at once, and never finishes timing anything."""

    device, ships, compile_first, slots, words = "cpu", False, True, 1, "nowhere"

    def __init__(self):
        self.environment = environment_here(core.chip("cpu"))
        self.measuring, self.aborted = False, False

    def compile(self, job):
        done = Future()
        done.set_result(Reply("ok"))
        return done

    def measure(self, job, compiled):
        self.measuring = True
        return Future()

    def abort(self):
        self.aborted = True

    def close(self):
        pass


class TestResuming:
    def test_the_known_best_is_timed_beside_what_is_new(self, ranked, store, monkeypatch):
        """A busier machine must not turn the result over: the old times are not those of now."""
        ranked(*of_block(64, 32))
        first = twice.tune(1024, store=store, **QUICK).shapes[0]
        for outcome in first.outcomes:  # as a machine of another time had it: not to be reached now
            stored = {"median_s": 1e-12 if outcome.tiles["block"] == 64 else 1e-9, "low_s": 1e-12, "high_s": 1e-9}
            store.record(store.results()[0].key, replace(outcome, **stored))
        ranked(*of_block(64, 32, 16))
        again = twice.tune(1024, store=store, **QUICK).shapes[0]
        assert again.reused == 2
        # Both old ones were timed again, the second since its old time would have passed for the best.
        assert all(outcome.median_s > 1e-8 for outcome in again.outcomes)
        assert any(note.startswith("block=64 threads=128 took 1e-06 us in an earlier run") for note in again.notes)
        assert store.results()[0].best.median_s > 1e-8

    def test_what_the_compilers_limit_ended_is_tried_again(self, ranked, store):
        """The limit is no part of what results belong to."""
        flags = [f"-DRUN_{uuid.uuid4().hex}"]  # what was compiled before is in the cache
        ranked(*of_block(64))
        hurried = twice.tune(1024, store=store, compile_flags=flags, options={"timeout_s": 1e-3}, **QUICK).shapes[0]
        assert [outcome.status for outcome in hurried.outcomes] == ["timeout"]
        again = twice.tune(1024, store=store, compile_flags=flags, **QUICK).shapes[0]
        assert [outcome.status for outcome in again.outcomes] == ["ok"]


class TestStopping:
    def test_ctrl_c_keeps_what_was_measured_and_the_next_run_goes_on(self, ranked, store, monkeypatch):
        ranked(*of_block(64, 32, 16, 8, 128))

        class Impatient(Silent):
            def settled(self, outcome, best):
                if outcome.tiles["block"] == 32:
                    signal.raise_signal(signal.SIGINT)

        with monkeypatch.context() as patch:
            patch.setattr("core.tuning.tuner.progress_for", lambda wanted: Impatient())
            with pytest.raises(TuningInterrupted) as caught:
                twice.tune(1024, store=store, **QUICK)
        report = caught.value.report
        assert isinstance(caught.value, KeyboardInterrupt)
        assert report.interrupted
        assert sorted(o.tiles["block"] for o in report.shapes[0].outcomes) == [32, 64]
        assert report.shapes[0].waiting == 3
        assert len(store.results()[0].outcomes) == 2
        rest = twice.tune(1024, store=store, **QUICK)
        assert (rest.shapes[0].reused, len(rest.shapes[0].outcomes), rest.interrupted) == (2, 5, False)

    def test_a_budget_ends_it_and_says_so(self, ranked, store):
        ranked(*of_block(64, 32))
        report = twice.tune([(1024,), (2048,)], store=store, budget_s=0.0, **QUICK)
        assert report.out_of_time
        assert [shape.best for shape in report.shapes] == [None, None]

    def test_what_is_being_timed_is_given_up_soon_after_the_budget(self, ranked, store, monkeypatch):
        """Without a limit of its own it would be waited for: here for ever."""
        ranked(*of_block(64, 32))
        monkeypatch.setattr("core.tuning.tuner._GRACE_S", 0.1)
        site = Stuck()
        monkeypatch.setattr("core.tuning.tuner.site_for", lambda *_, **__: site)
        report = twice.tune(1024, store=store, budget_s=0.5, **QUICK)
        assert site.measuring
        assert site.aborted
        assert report.out_of_time
        assert (report.shapes[0].outcomes, report.shapes[0].waiting) == ((), 2)

    def test_what_would_not_be_done_in_time_is_not_begun_and_the_report_says_why(self, ranked, store, monkeypatch):
        ranked(*of_block(64, 32))
        site = Stuck()
        monkeypatch.setattr("core.tuning.tuner.site_for", lambda *_, **__: site)
        monkeypatch.setattr("core.tuning.shape_run.ShapeRun._needed_s", 3600.0)
        report = twice.tune(1024, store=store, budget_s=600.0, **QUICK)
        assert not site.measuring
        assert site.aborted
        assert report.out_of_time
        assert report.shapes[0].waiting == 2

    def test_no_shape_is_begun_after_the_budget(self, ranked, store, monkeypatch):
        ranked(*of_block(64, 32))
        monkeypatch.setattr("core.tuning.tuner._GRACE_S", 0.1)
        monkeypatch.setattr("core.tuning.tuner.site_for", lambda *_, **__: Stuck())
        monkeypatch.setattr("core.tuning.tuner._Run._share", lambda self, left: self.deadline)
        planned = []
        usual = core.tuning.tuner.plan_shape
        monkeypatch.setattr("core.tuning.tuner.plan_shape", lambda *args: planned.append(args[2]["M"]) or usual(*args))
        report = twice.tune([(1024,), (2048,), (4096,)], store=store, budget_s=0.5, **QUICK)
        assert planned == [1024]
        assert [shape.waiting for shape in report.shapes] == [2, 20, 20]

    def test_a_full_disk_is_a_typed_error_and_the_store_stays_whole(self, ranked, store, monkeypatch):
        ranked(*of_block(64, 32))
        twice.tune(1024, store=store, candidates=1, **QUICK)
        usual = store.record

        def full(key, outcome, *, structural=()):
            if outcome.tiles["block"] == 32:
                connection = store._opened()
                pages = connection.execute("PRAGMA page_count").fetchone()[0]
                connection.execute(f"PRAGMA max_page_count = {pages}")
                object.__setattr__(outcome, "reason", "x" * 200_000)
            usual(key, outcome, structural=structural)

        monkeypatch.setattr(store, "record", full)
        with pytest.raises(TuningStoreError, match="full"):
            twice.tune(1024, store=store, **QUICK)
        store.close()
        assert [o.tiles["block"] for o in store.results()[0].outcomes] == [64]
        with sqlite3.connect(store.path) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


OTHER = """
import json, sys
from core.tuning.results.store import Store
from pathlib import Path
from tests.tuning.tuned_kernels import twice
report = twice.tune([(256,), (512,)], store=Store(Path(sys.argv[1])), candidates=3, target="cpu", cold_l2=False,
                    warmup_ms=1.0, repeat_ms=5.0, jobs=1, progress=False)
json.dump(report.to_json(), sys.stdout)
"""


def test_two_tuners_on_one_store_share_the_work(store):
    command = [sys.executable, "-c", OTHER, str(store.path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as other:
        mine = twice.tune([(512,), (256,)], store=store, candidates=3, **QUICK)
        theirs = json.loads(other.communicate(timeout=120)[0])
    measured = sum(len(s.outcomes) - s.reused for s in mine.shapes)
    measured += sum(len(s["outcomes"]) - s["reused"] for s in theirs["shapes"])
    assert measured == 6
    assert [len(result.measured) for result in store.results()] == [3, 3]
    assert all(shape.best is not None for shape in mine.shapes)
    assert {s["best"]["tiles"]["block"] for s in theirs["shapes"]} == {s.best.tiles["block"] for s in mine.shapes}


class TestRefusals:
    def test_a_chip_that_is_not_here_is_not_timed_and_neither_is_its_simulator(self, store):
        with pytest.raises(DeviceUnavailable, match="metax:c500 is not on this machine") as caught:
            twice.tune(1024, store=store, **{**QUICK, "target": "metax:c500"})
        assert "a simulator's times say nothing" in caught.value.hint
        with pytest.raises(TuningError, match="a simulator is not timed"):
            twice.tune(1024, store=store, simulate=True, **QUICK)

    def test_nothing_to_find(self, store):
        report = twice.tune(1024, store=store, block=64, threads=128, **QUICK)
        assert "every tile parameter is given" in report.shapes[0].error
        with pytest.raises(TuningError, match="there is no shape"):
            twice.tune([], store=store, **QUICK)
        with pytest.raises(TuningError, match="candidates=0"):
            twice.tune(1024, store=store, candidates=0, **QUICK)

    def test_a_misspelt_option_is_named(self, store):
        with pytest.raises(KernelError, match="tune has no option 'candidate'") as caught:
            twice.tune(1024, store=store, candidate=3, **QUICK)
        assert "candidates" in caught.value.hint


def test_the_bar_says_what_is_going_on(capsys):
    bar = progress.Live()
    bar.start("twice", "cpu:host", 2, "cpu")
    bar.shape(1, "M=1024", 3, 0)
    bar.compiled()
    outcome = SimpleNamespace(ok=False, status="crash", tiles={"block": 64}, reason="SIGSEGV", median_s=None)
    bar.settled(outcome, SimpleNamespace(median_s=1e-3, tiles={"block": 32}))
    assert bar._bar.tasks[0].fields["best"] == "best 1 ms with block=32"
    assert bar._bar.tasks[0].completed == 1
    bar.stop()
    assert "crash: block=64: SIGSEGV" in capsys.readouterr().err
