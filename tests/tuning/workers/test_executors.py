"""Candidates compiled by an executor of the user's, and tuned on a dask cluster of two kinds of workers."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from types import SimpleNamespace
from typing import ClassVar

import pytest

import core
from core.errors import DeviceUnavailable, TuningError
from core.tiling.verdict import Verdict
from core.tuning.progress import Silent
from core.tuning.workers import tasks
from tests.tuning.tuned_kernels import twice

QUICK = {"target": "cpu", "cold_l2": False, "warmup_ms": 1.0, "repeat_ms": 5.0, "progress": False}


BLOCKS = (64, 32, 16)


@pytest.fixture(autouse=True)
def ranked(monkeypatch):
    """The ranking is three candidates."""
    ways = [{"block": block, "threads": 128} for block in BLOCKS]
    verdicts = tuple(Verdict(one, dict.fromkeys(one, "default"), "ranked", "") for one in ways)
    ranking = SimpleNamespace(candidates=verdicts, refused=(), shape=SimpleNamespace(dtypes=("float32",)))
    monkeypatch.setattr(core.tiling.KernelFactory, "rank", lambda self, **arguments: ranking)


def statuses(report):
    return {outcome.tiles["block"]: outcome.status for outcome in report.shapes[0].outcomes}


EXPECTED = dict.fromkeys(BLOCKS, "ok")


@pytest.mark.usefixtures("kept_children")
def test_an_executor_compiles_and_this_machine_measures(store):
    class Counting(ThreadPoolExecutor):
        submitted: ClassVar[list] = []

        def submit(self, function, /, *args, **kwargs):
            self.submitted.append(function)
            return super().submit(function, *args, **kwargs)

    with Counting(1) as executor:
        report = twice.tune(1024, executor=executor, store=store, **QUICK)
    assert Counting.submitted == [tasks.compile_task] * 3
    assert statuses(report) == EXPECTED


def test_what_is_no_executor_is_refused(store):
    with pytest.raises(TuningError, match="has no submit"):
        twice.tune(1024, executor="dask", store=store, **QUICK)


def test_an_executor_that_answers_something_else_is_told_so(store):
    class Odd(ThreadPoolExecutor):
        def submit(self, function, /, *args, **kwargs):
            return super().submit(lambda: 42)

    with Odd(1) as executor, pytest.raises(TuningError, match="the executor answered 42"):
        twice.tune(1024, executor=executor, store=store, **QUICK)


@pytest.mark.skipif(find_spec("distributed") is None, reason="dask.distributed is not installed: tilehal[dask]")
class TestDask:
    @pytest.fixture(scope="class")
    @classmethod
    def cluster(cls, tmp_path_factory):
        """A worker that holds the chip and one that does not, each with a cache of its own; `kill(name)` ends one."""
        from distributed import Client, Nanny, Scheduler, SpecCluster

        options = {"nthreads": 1, "host": "127.0.0.1", "dashboard": False, "memory_limit": 0}
        scheduler = {"cls": Scheduler, "options": {"host": "127.0.0.1", "port": 0, "dashboard": False}}
        workers = {
            name: {
                "cls": Nanny,
                "options": {
                    **options,
                    "resources": resources,
                    "env": {"TILEHAL_CACHE_DIR": str(tmp_path_factory.mktemp(name))},
                },
            }
            for name, resources in (("holder", {"cpu:host": 1}), ("other", {}))
        }
        with SpecCluster(scheduler=scheduler, workers=workers, silence_logs=50) as cluster, Client(cluster) as client:
            client.wait_for_workers(2, timeout=60)
            names = {worker["name"]: address for address, worker in client.scheduler_info()["workers"].items()}
            pids = client.run(os.getpid)

            def kill(name):
                os.kill(pids[names[name]], signal.SIGKILL)

            yield SimpleNamespace(client=client, kill=kill)

    def test_without_a_worker_that_holds_the_chip_it_says_how_to_start_one(self, cluster, store):
        with pytest.raises(DeviceUnavailable, match="says that it holds cuda:h200; their labels: cpu:host") as caught:
            twice.tune(1024, executor=cluster.client, store=store, **{**QUICK, "target": "cuda:h200"})
        assert '--resources "cuda:h200=1"' in caught.value.hint

    def test_a_worker_that_is_killed_costs_time_and_no_candidate(self, cluster, store, monkeypatch):
        class Killing(Silent):
            killed = False

            def compiled(self):
                if not self.killed:
                    self.killed = True
                    cluster.kill("other")

        bar = Killing()
        monkeypatch.setattr("core.tuning.tuner.progress_for", lambda wanted: bar)
        report = twice.tune(1024, executor=cluster.client, store=store, **QUICK)
        assert bar.killed
        assert statuses(report) == EXPECTED
        (result,) = store.results()
        assert len(result.measured) == 3
