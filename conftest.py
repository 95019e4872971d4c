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
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis.internal.conjecture import engine

from tests.device_turns import device_turn

# No deadline, and no check of how long an example took to make: two workers share two cores, and the first example of a
# test imports torch. The verdict would be the machine's.
hypothesis.settings.register_profile(
    "checks",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=1000, print_blob=True)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE") or "checks"
EXPLORES = PROFILE == "explore"
hypothesis.settings.load_profile(PROFILE)
# Of hypothesis' own five minutes for making a counterexample smaller, one: no setting says it.
engine.MAX_SHRINKING_SECONDS = 60

#: Starts the random numbers of every test; printed by the runs that draw it, for `TILEHAL_TEST_SEED`.
SEED_VARIABLE = "TILEHAL_TEST_SEED"

# For the workers and programs that this process starts. Two workers fill the machine: a thread pool in each only makes
# them wait for each other. And glibc is to keep what is freed: lowering takes and frees megabytes over and over, and a
# tenth of its time and more went into getting them from the kernel.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MALLOC_TRIM_THRESHOLD_", str(2**30))
os.environ.setdefault("MALLOC_MMAP_THRESHOLD_", str(2**25))
os.environ.setdefault("MALLOC_TOP_PAD_", str(2**26))
# Emptying the last-level cache of a server takes tenths of a second a sample, and no test hangs on cold caches' times.
os.environ["TILEHAL_CPU_CACHE_SIZE"] = "1MiB"
# Pytest loads readline, which sets the width of whatever terminal it is run in, and workers inherit that.
os.environ.pop("COLUMNS", None)
os.environ.setdefault(SEED_VARIABLE, str(secrets.randbits(32)) if EXPLORES else "0")


class TorchNumbers:
    """torch's random numbers for hypothesis, which starts them anew for each example and so can repeat one."""

    def seed(self, number: int) -> None:
        torch = sys.modules.get("torch")
        if torch is not None:
            torch.default_generator.manual_seed(zlib.crc32(f"{os.environ[SEED_VARIABLE]} {number}".encode()))

    def getstate(self) -> Any:
        torch = sys.modules.get("torch")
        return None if torch is None else torch.default_generator.get_state()

    def setstate(self, state: Any) -> None:
        if state is not None:
            sys.modules["torch"].default_generator.set_state(state)


NUMBERS = TorchNumbers()
hypothesis.register_random(NUMBERS)


def pytest_report_header() -> str:
    """Says what decides which values the tests try."""
    return f"hypothesis profile {PROFILE!r}, {SEED_VARIABLE}={os.environ[SEED_VARIABLE]}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves tests marked `wide` to runs that explore; skips those marked `gpu` where torch sees no accelerator."""
    if not EXPLORES and "wide" not in config.getoption("markexpr"):
        wide = [item for item in items if item.get_closest_marker("wide")]
        config.hook.pytest_deselected(items=wide)
        items[:] = [item for item in items if not item.get_closest_marker("wide")]
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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Tests of several workers take turns on the accelerator; those marked `alone` have it to themselves."""
    if not item.get_closest_marker("gpu") or item.get_closest_marker("skip"):
        return (yield)
    with device_turn(alone=item.get_closest_marker("alone") is not None):
        return (yield)


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
