"""The store: what is written is found again under its key and no other, and a bad file or disk is a typed error."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
import warnings
from dataclasses import replace

import pytest

from core.errors import TuningStoreError
from core.tuning.results import schema
from core.tuning.results.records import Outcome, Result
from core.tuning.results.store import Store, default_store
from tests.timing import median_s

FAST = Outcome({"block": 64, "threads": 128}, "ok", 1e-3, 0.9e-3, 1.1e-3, 30, compile_s=2.5, place=3, predicted_s=8e-4)
SLOW = Outcome({"block": 32, "threads": 128}, "ok", 2e-3, place=0)
CRASHED = Outcome({"block": 256, "threads": 128}, "crash", reason="SIGSEGV", details={"signal": 11}, place=1)


class TestReading:
    def test_everything_of_an_outcome_comes_back_the_fastest_first_and_failures_with_their_cause(self, store, key):
        for outcome in (SLOW, CRASHED, FAST):
            store.record(key, outcome, structural=["K"])
        found = Store(store.path).lookup(key)
        assert found == Result(key, (FAST, SLOW, CRASHED), ("K",))
        assert found.best == FAST
        assert found.failures == (CRASHED,)

    @pytest.mark.parametrize(
        "change",
        [
            {"kernel": "matmul2"},
            {"fingerprint": "0" * 16},
            {"arguments": '{"K":64,"M":129,"dtype":"float16"}'},
            {"chip": "cuda:h100"},
            {"options": '{"fast_math":true}'},
        ],
    )
    def test_another_key_has_nothing(self, store, key, change):
        store.record(key, FAST)
        assert store.lookup(replace(key, **change)) is None

    @pytest.mark.parametrize(
        "change",
        [
            {"device": "driver: Two; 8 x SM"},
            {"driver": "580.2"},
            {"toolchain": "nvcc 13.0"},
            {"tilelang": "0.1.16"},
            {"plugins": ("tilehal 0.1.0", "tilehal-one 0.2.0")},
        ],
    )
    def test_another_environment_has_nothing_of_its_own_and_can_be_shown(self, store, key, environment, change):
        store.record(key, FAST)
        elsewhere = replace(key, environment=replace(environment, **change))
        assert store.lookup(elsewhere) is None
        assert [result.key for result in store.same_arguments(elsewhere)] == [key]
        (name,) = change
        assert list(elsewhere.environment.differences(environment)) == [name]

    def test_a_candidate_measured_again_replaces_what_was_known(self, store, key):
        store.record(key, FAST)
        store.record(key, replace(FAST, median_s=5e-3))
        (outcome,) = store.lookup(key).outcomes
        assert outcome.median_s == 5e-3

    def test_another_process_s_results_are_seen_at_once(self, store, key):
        store.record(key, SLOW)
        assert store.lookup(key).best == SLOW
        Store(store.path).record(key, FAST)
        assert store.lookup(key).best == FAST

    def test_headings_are_all_arguments_of_a_kernel_without_outcomes(self, store, key):
        other = replace(key, arguments='{"K":64,"M":256,"dtype":"float16"}')
        store.add([Result(key, (FAST,)), Result(other, (SLOW,)), Result(replace(key, kernel="else"), (SLOW,))])
        assert [(heading.key, heading.outcomes) for heading in store.headings(key)] == [(key, ()), (other, ())]

    def test_a_look_up_makes_no_file(self, tmp_path, key):
        store = Store(tmp_path / "folder" / "store.sqlite")
        assert store.lookup(key) is None
        assert store.results() == ()
        assert store.clear() == 0
        assert not (tmp_path / "folder").exists()

    def test_it_takes_less_than_a_millisecond(self, store, key):
        # 200 shapes with 20 candidates each: a kernel tuned thoroughly.
        candidates = tuple(replace(FAST, tiles={"block": block, "threads": 128}) for block in range(20))
        keys = [replace(key, arguments=f'{{"K":64,"M":{m},"dtype":"float16"}}') for m in range(200)]
        store.add(Result(one, candidates) for one in keys)
        wanted = iter(keys)
        found = []
        assert median_s(lambda: found.append(store.lookup(next(wanted))), 30) < 1e-3
        assert {len(one.outcomes) for one in found} == {20}

    def test_a_child_made_by_fork_uses_a_connection_of_its_own(self, store, key):
        store.record(key, FAST)
        read, write = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # newer Pythons warn of any fork while there are threads
            child = os.fork()
        if child == 0:
            try:
                os.write(write, b"%d" % len(store.lookup(key).outcomes))
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert os.read(read, 10) == b"1"


def _write_many(path, key, start):
    store = Store(path)
    for block in range(start, start + 60):
        store.record(key, replace(FAST, tiles={"block": block, "threads": 128}))


class TestWriting:
    def test_two_processes_at_once_lose_nothing(self, store, key):
        context = multiprocessing.get_context("spawn")
        writers = [context.Process(target=_write_many, args=(store.path, key, start)) for start in (0, 30, 60)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join(30)
        assert [writer.exitcode for writer in writers] == [0, 0, 0]
        assert sorted(outcome.tiles["block"] for outcome in store.lookup(key).outcomes) == list(range(120))

    def test_clear_takes_a_kernel_a_vendor_or_everything(self, store, key):
        keys = [key, replace(key, kernel="softmax"), replace(key, chip="cuda:h100"), replace(key, chip="cudax:h1")]
        store.add(Result(one, (FAST,)) for one in keys)
        assert store.clear(kernel="softmax") == 1
        assert store.clear(chip="cuda") == 2
        assert [result.key.chip for result in store.results()] == ["cudax:h1"]
        assert store.clear() == 1
        assert store.results() == ()

    def test_an_import_leaves_newer_measurements_alone(self, store, key):
        store.record(key, replace(FAST, measured_at=200.0))
        older, newer = (replace(FAST, median_s=9.0, measured_at=at) for at in (100.0, 300.0))
        assert store.add([Result(key, (older,))], keep_newer=True) == 0
        assert store.lookup(key).best.median_s == 1e-3
        assert store.add([Result(key, (newer,))], keep_newer=True) == 1
        assert store.lookup(key).best.median_s == 9.0


class TestTrouble:
    def test_a_full_disk_is_said_and_leaves_nothing_half_written(self, store, key):
        store.record(key, FAST)
        connection = store._opened()
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")
        large = replace(SLOW, reason="x" * 100_000)
        with pytest.raises(TuningStoreError, match="full") as caught:
            store.add([Result(key, (replace(SLOW, tiles={"block": 1}), large))])
        assert "make room" in caught.value.hint
        assert store.lookup(key).outcomes == (FAST,)
        assert Store(store.path).lookup(key).outcomes == (FAST,)
        connection.execute("PRAGMA max_page_count = 1000000")
        store.record(key, large)
        assert len(store.lookup(key).outcomes) == 2

    def test_a_store_of_a_newer_version_is_refused_and_left_as_it_is(self, store, key):
        store.record(key, FAST)
        store.close()
        with sqlite3.connect(store.path) as connection:
            connection.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
        for call in (lambda: store.lookup(key), lambda: store.record(key, SLOW)):
            with pytest.raises(TuningStoreError, match="newer TileHAL") as caught:
                call()
            assert "update tilehal" in caught.value.hint

    def test_an_older_one_is_brought_up_whole_or_not_at_all(self, store, key, monkeypatch):
        store.record(key, FAST)
        store.close()
        broken = {**schema.MIGRATIONS, 2: ("ALTER TABLE outcomes ADD COLUMN more TEXT", "NO SUCH STATEMENT")}
        monkeypatch.setattr(schema, "MIGRATIONS", broken)
        monkeypatch.setattr(schema, "VERSION", 2)
        with pytest.raises(TuningStoreError):
            store.lookup(key)
        monkeypatch.setattr(schema, "MIGRATIONS", {**broken, 2: broken[2][:1]})
        assert store.lookup(key).outcomes == (FAST,)
        with sqlite3.connect(store.path) as connection:
            assert connection.execute("PRAGMA user_version").fetchone() == (2,)
            assert "more" in [row[1] for row in connection.execute("PRAGMA table_info(outcomes)")]

    @pytest.mark.parametrize(
        ("content", "said"),
        [(b"a text file, nothing else. " * 200, "not a database"), (None, "no store of tuned results")],
    )
    def test_a_file_that_is_something_else_is_not_touched(self, tmp_path, key, content, said):
        path = tmp_path / "other.sqlite"
        if content is None:
            with sqlite3.connect(path) as connection:
                connection.execute("CREATE TABLE bookmarks (url TEXT)")
        else:
            path.write_bytes(content)
        before = path.read_bytes()
        with pytest.raises(TuningStoreError, match=said):
            Store(path).record(key, FAST)
        assert path.read_bytes() == before

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ("UPDATE outcomes SET tiles = '{'", "Expecting property name"),
            ("UPDATE outcomes SET details = '['", "Expecting value"),
            ("UPDATE outcomes SET median_s = 'soon'", "an outcome of 'ok' and 'soon' s"),
            ("UPDATE outcomes SET status = 'great'", "an outcome of 'great'"),
            ("UPDATE environments SET facts = '[]'", "is malformed"),
            ("UPDATE problems SET dtypes = 'float16'", "Expecting value"),
            ("DROP TABLE outcomes", "no such table"),
        ],
    )
    def test_contents_that_are_damaged_are_said_to_be(self, store, key, change, said):
        store.record(key, FAST)
        store.close()
        connection = sqlite3.connect(store.path)
        connection.execute(change)
        connection.commit()
        connection.close()
        with pytest.raises(TuningStoreError, match=said) as caught:
            store.lookup(key)
        assert "it is damaged: move it away" in caught.value.hint

    @pytest.mark.parametrize("suffixes", [("",), ("", "-wal", "-shm")])
    def test_a_file_that_was_removed_is_made_anew(self, store, key, suffixes):
        store.record(key, FAST)
        for suffix in suffixes:
            store.path.with_name(store.path.name + suffix).unlink()
        assert store.lookup(key) is None
        store.record(key, CRASHED)
        assert Store(str(store.path)).lookup(key).outcomes == (CRASHED,)

    def test_a_file_that_took_its_place_is_left_alone(self, store, key, tmp_path):
        store.record(key, FAST)
        for suffix in ("", "-wal", "-shm"):
            store.path.with_name(store.path.name + suffix).unlink()
        other = Store(store.path)
        other.record(key, SLOW)
        with pytest.raises(TuningStoreError, match="was replaced while this process had it open"):
            store.record(key, CRASHED)
        assert other.lookup(key).outcomes == (SLOW,)

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
    def test_a_folder_that_may_not_be_written_is_named(self, tmp_path, key):
        tmp_path.chmod(0o500)
        with pytest.raises(TuningStoreError, match="unable to open"):
            Store(tmp_path / "store.sqlite").record(key, FAST)


def test_the_user_s_store_is_where_the_variable_says(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEHAL_TUNING_STORE", str(tmp_path / "mine.sqlite"))
    assert default_store().path == tmp_path / "mine.sqlite"
    assert default_store() is default_store()
    monkeypatch.delenv("TILEHAL_TUNING_STORE")
    assert default_store().path.name == "tuned.sqlite"
