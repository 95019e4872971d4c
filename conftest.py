"""What all tests share, `tests/` and every backend's own: the `gpu` marker, a cache, hypothesis settings."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

# No deadline: two workers share two cores, and the first example of a test imports torch. In CI the same examples
# every time, so that a change is judged by what it did; by hand, new ones.
hypothesis.settings.register_profile("local", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips tests marked `gpu` where torch sees no accelerator."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    import torch

    if not torch.cuda.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="no accelerator on this machine"))


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Kernels go to a cache folder of this run: what the user has cached is neither used nor changed."""
    folder = tmp_path_factory.mktemp("tilehal-cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILEHAL_CACHE_DIR", str(folder))
        yield folder
