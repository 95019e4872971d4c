"""How many clusters run at once, asked of a driver that looks at the launch it is asked about."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Any

import pytest

from core.errors import LaunchError
from core.runtime.clusters import active_clusters
from core.runtime.plan import CLUSTER_DIMENSION

UNITS = 132


class Counting:
    """A driver of a device with 132 units that clusters share freely; nothing runs outside its context."""

    def __init__(self, refuse: str = "") -> None:
        self.refuse = refuse
        self.inside = False
        self.attributes: dict[int, int] = {}
        self.loaded: list[str] = []

    def context(self, index: int) -> ctypes.c_void_p:
        return ctypes.c_void_p(index + 1)

    @contextlib.contextmanager
    def current(self, context: ctypes.c_void_p) -> Iterator[None]:
        self.inside = context.value == 4
        yield
        self.inside = False

    def call(self, name: str, *arguments: Any) -> None:
        assert self.inside
        if name == self.refuse:
            raise LaunchError(f"{name}: invalid value")
        if name in ("cuModuleLoadData", "cuModuleUnload"):
            self.loaded.append(name)
        if name == "cuFuncSetAttribute":
            self.attributes[arguments[1]] = arguments[2]
        if name == "cuOccupancyMaxActiveClusters":
            number, config = arguments[0]._obj, arguments[2]._obj
            (attribute,) = (config.attributes[i] for i in range(config.count))
            assert attribute.id == CLUSTER_DIMENSION
            size = attribute.value[0]
            assert tuple(attribute.value[1:3]) == (1, 1)
            assert config.grid[0] % size == 0
            assert (config.block[0], config.shared_bytes) == (384, 190 * 1024)
            number.value = UNITS // size


def test_clusters_are_counted_by_their_blocks() -> None:
    driver: Any = Counting()
    found = active_clusters(3, range(1, 9), threads=384, shared_bytes=190 * 1024, driver=driver)
    assert found == {size: UNITS // size for size in range(1, 9)}
    assert driver.attributes[8] == 190 * 1024
    assert driver.loaded == ["cuModuleLoadData", "cuModuleUnload"]


def test_a_refusal_is_an_error_and_leaves_nothing_loaded() -> None:
    driver: Any = Counting(refuse="cuOccupancyMaxActiveClusters")
    with pytest.raises(LaunchError, match="cuOccupancyMaxActiveClusters"):
        active_clusters(3, [2], threads=384, shared_bytes=190 * 1024, driver=driver)
    assert driver.loaded == ["cuModuleLoadData", "cuModuleUnload"]
