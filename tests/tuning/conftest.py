from __future__ import annotations

import pytest

from core.tuning.environment import Environment
from core.tuning.results.records import Key
from core.tuning.results.store import Store
from core.tuning.workers.children import Children


@pytest.fixture(autouse=True)
def own_store(tmp_path, monkeypatch):
    """Neither the user's store nor their policy reaches a test, and a test's results reach no one."""
    monkeypatch.setenv("TILEHAL_TUNING_STORE", str(tmp_path / "own" / "tuned.sqlite"))
    monkeypatch.delenv("TILEHAL_TUNED", raising=False)


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "store.sqlite")
    yield store
    store.close()


@pytest.fixture
def environment():
    return Environment("driver: One; 8 x SM", "570.1", "nvcc 12.8", "0.1.15", ("tilehal 0.1.0", "tilehal-one 0.1.0"))


@pytest.fixture
def key(environment):
    return Key("matmul", "f" * 16, '{"K":64,"M":128,"dtype":"float16"}', ("float16",), "cuda:h200", environment)


class KeptChildren(Children):
    """Serves one run after the other.

    A child's imports take seconds, which a user pays once and these tests would pay ten times over.
    """

    def again(self):
        self._stopped = False
        return self

    def close(self):
        pass


@pytest.fixture(scope="session")
def children():
    kept = KeptChildren()
    yield kept
    Children.close(kept)


@pytest.fixture(scope="module")
def kept_children(children):
    """Tuning runs of the module use these children."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("core.tuning.workers.sites.Children", children.again)
        patch.setattr("core.tuning.workers.tasks.shared_children", children.again)
        yield
