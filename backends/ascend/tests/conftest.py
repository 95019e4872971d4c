"""What the Ascend tests share: the chips of both families, and whether Huawei's compiler is installed."""

from __future__ import annotations

import pytest

from backends.ascend.toolchain import find_compiler
from core.errors import ToolchainNotFound
from core.hardware import Chip
from core.target import resolve

CHIPS = ("ascend:910b3", "ascend:950pr_9589")


def chip_of(target: str) -> Chip:
    return resolve(target).chip


@pytest.fixture(params=CHIPS, ids=lambda target: target.partition(":")[2])
def target(request: pytest.FixtureRequest) -> str:
    """One chip of each family."""
    name: str = request.param
    return name


@pytest.fixture
def compiler(target: str) -> None:
    """Skips where Huawei's compiler is not installed."""
    try:
        find_compiler(chip_of(target))
    except ToolchainNotFound as error:
        pytest.skip(f"ascendnpu-ir is not installed: {error.hint}")
