"""What a child does with one candidate, without the child."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import core
from core.errors import TuningError
from core.tuning.workers import running
from core.tuning.workers.jobs import Conditions, CrossCheckJob, FinalJob, MeasureJob, Subject
from core.tuning.workers.shipping import pack
from tests.tuning.tuned_kernels import planted, right

FINE, WRONG = {"block": 64, "way": "fine"}, {"block": 64, "way": "wrong"}


@pytest.fixture
def subject():
    return Subject(pack(planted), {"M": 1024}, core.chip("cpu"))


@pytest.fixture
def conditions():
    running._prepared.clear()
    return Conditions("a problem", "cpu", cold_l2=False, warmup_ms=1.0, repeat_ms=5.0)


class TestCrossCheck:
    @pytest.fixture
    def check(self, subject, conditions):
        def check(tiles, smaller=None):
            return running.cross_check(CrossCheckJob(subject, smaller, tiles, conditions, 60.0))

        return check

    def test_the_cpu_backend_tells_right_from_wrong(self, check):
        assert (check(FINE).verdict, check(FINE).reason) == ("ok", "the CPU backend")
        found = check(WRONG)
        assert found.verdict == "wrong"
        assert found.reason.startswith("the CPU backend disagrees: B: ")

    def test_what_would_take_long_is_checked_at_a_smaller_shape_or_not_at_all(self, check, subject, monkeypatch):
        monkeypatch.setattr(running, "CPU_FLOPS", 10.0)
        small = Subject(subject.factory, {"M": 256}, subject.chip)
        assert check(FINE, small).reason == "the CPU backend at M=256"
        assert check(WRONG, small).reason.startswith("the CPU backend at M=256 disagrees")
        assert check(FINE).reason.startswith("not checked: the CPU would take too long over ")

    def test_what_the_cpu_backend_does_not_compile_is_no_candidate_s_fault(self, check, monkeypatch):
        def refuse(*_, **__):
            raise core.UnsupportedOp("no such thing on a CPU")

        monkeypatch.setattr(running, "built", refuse)
        assert check(FINE).reason == "not checked: the CPU backend does not compile it: no such thing on a CPU"


class TestMeasuring:
    def measure(self, subject, conditions, tiles):
        return running.measure_candidate(MeasureJob(subject, tiles, conditions, 60.0))

    def test_a_candidate_is_compared_with_the_trusted_one(self, subject, conditions):
        trusting = Conditions(**{**fields(conditions), "trusted": FINE})
        assert self.measure(subject, trusting, {**FINE, "block": 32}).verdict == "ok"
        assert self.measure(subject, trusting, WRONG).verdict == "wrong"

    def test_or_with_the_user_s_reference(self, subject, conditions):
        asked = Conditions(**{**fields(conditions), "reference": pack(right)})
        assert self.measure(subject, asked, FINE).verdict == "ok"
        assert self.measure(subject, asked, WRONG).verdict == "wrong"

    def test_what_is_clearly_slower_is_not_measured_to_the_end(self, subject, conditions):
        patient = Conditions(**{**fields(conditions), "repeat_ms": 100.0})
        (whole,) = self.measure(subject, patient, FINE).timings
        hurried = Conditions(**{**fields(patient), "best_s": whole.median_s / 3})
        (short,) = self.measure(subject, hurried, FINE).timings
        assert short.samples < whole.samples / 2

    def test_finalists_are_timed_in_turn(self, subject, conditions):
        job = FinalJob(subject, [FINE, {**FINE, "way": "slow"}], conditions, 60.0, [None, None])
        fast, slow = running.measure_finalists(job).timings
        assert slow.median_s > 10 * fast.median_s
        assert fast.samples == slow.samples

    def test_buffers_for_cold_caches_are_made_once_for_all_candidates(self, subject, conditions, monkeypatch):
        """Making them takes far longer than timing a candidate, and a budget would go there."""
        monkeypatch.setenv("TILEHAL_CPU_CACHE_SIZE", "64KiB")
        cold = Conditions(**{**fields(conditions), "cold_l2": True})
        made = []
        usual = running.buffer_sets
        monkeypatch.setattr(running, "buffer_sets", lambda *args: made.append(usual(*args)) or made[-1])
        others = []
        monkeypatch.setattr(running, "prepared", lambda *args: others.append(args))
        for tiles in (FINE, {**FINE, "block": 32}):
            (timing,) = self.measure(subject, cold, tiles).timings
            assert timing.method == "wall, cold"
        job = FinalJob(subject, [FINE, {**FINE, "block": 32}], cold, 60.0, [None, None])
        assert len(running.measure_finalists(job).timings) == 2
        assert len(made) == 1
        assert others == []
        # Each finalist has buffers of its own: none finds in the caches what another left there.
        kernel = running.built(subject, FINE)
        works = running._final_works([kernel, kernel], running._prepared[0], cold)
        first, second = ({call.args[0].data_ptr() for call in work} for work in works)
        assert first
        assert first.isdisjoint(second)

    def test_buffers_that_a_call_reads_and_writes_are_not_shared(self, conditions):
        argument = SimpleNamespace(reads=True, writes=True)
        kernel = SimpleNamespace(program=SimpleNamespace(signature=SimpleNamespace(arguments=[argument])))
        cold = Conditions(**{**fields(conditions), "cold_l2": True})
        assert running._shared_sets(kernel, running._Prepared("", []), cold) is None

    def test_inputs_that_cannot_be_random_can_be_given(self, subject, conditions):
        def values(M):
            import torch

            return {"A": torch.full((M,), 7.0)}

        given = Conditions(**{**fields(conditions), "values": pack(values)})
        assert self.measure(subject, given, FINE).verdict == "ok"
        assert running._prepared[0].arguments[0].unique().tolist() == [7.0]
        other = Conditions(**{**fields(conditions), "problem": "another", "values": pack({"Q": 1})})
        with pytest.raises(TuningError, match="planted has no parameter 'Q'"):
            self.measure(subject, other, FINE)


def fields(conditions):
    return {name: getattr(conditions, name) for name in Conditions.__slots__}
