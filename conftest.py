"""What all tests share, `tests/` and every backend's: the `gpu` marker, a cache, random numbers, hypothesis' profiles.

A run gives the same verdict twice: hypothesis tries the same examples, and tensors of random values hold the same ones.
`HYPOTHESIS_PROFILE=explore` (`make explore`) tries new examples, ten times as many, on new values.
"""

from __future__ import annotations

import gc
import os
import secrets
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

# No deadline: two workers share two cores, and the first example of a test imports torch.
hypothesis.settings.register_profile("checks", deadline=None, derandomize=True, database=None)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=1000, print_blob=True)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE") or "checks"
hypothesis.settings.load_profile(PROFILE)

#: Starts the random numbers of every test; printed by the runs that draw it, for `TILEHAL_TEST_SEED`.
SEED_VARIABLE = "TILEHAL_TEST_SEED"

# For this process and, where there are any, the workers and programs it starts. Two workers fill the machine: a thread
# pool in each of them only makes them wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault(SEED_VARIABLE, str(secrets.randbits(32)) if PROFILE == "explore" else "0")


def pytest_report_header() -> str:
    """Says what decides which values the tests try."""
    return f"hypothesis profile {PROFILE!r}, {SEED_VARIABLE}={os.environ[SEED_VARIABLE]}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips tests marked `gpu` where torch sees no accelerator."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    import torch

    if not torch.cuda.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="no accelerator on this machine"))


def pytest_collection_finish() -> None:
    """Takes what collecting made, a million objects that stay, out of what the garbage collector goes through."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test draws the same random numbers whatever ran before it."""
    torch = sys.modules.get("torch")  # A test that imports it finds it freshly seeded.
    if torch is not None:
        seed = zlib.crc32(f"{os.environ[SEED_VARIABLE]} {item.nodeid}".encode())
        torch.default_generator.manual_seed(seed)
        if torch.cuda.is_initialized():
            torch.cuda.manual_seed_all(seed)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Kernels go to a cache folder of this run: what the user has cached is neither used nor changed.

    All workers share it, as all processes of a user do.
    """
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "tilehal-cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILEHAL_CACHE_DIR", str(folder))
        yield folder
