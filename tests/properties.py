"""How much of a test's space a run covers, whichever profile it has (see the root's conftest.py)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

import pytest
from hypothesis import Phase, settings

Parameter = TypeVar("Parameter")

#: 1 by default, 10 in a run that explores.
FACTOR = settings.default.max_examples // 100


def examples(count: int) -> settings:
    """`count` examples, and in proportion where the profile asks for more."""
    return settings(max_examples=count * FACTOR)


def compiling(count: int) -> settings:
    """The same for a property whose every example compiles a kernel.

    The first counterexample is reported as it is: looking for a smaller one takes hundreds of examples, and so minutes.
    A run that explores looks for one minute.
    """
    phases = [phase for phase in settings.default.phases if phase not in (Phase.shrink, Phase.explain)]
    return settings(examples(count), phases=phases if FACTOR == 1 else settings.default.phases)


def first_of_each(parameters: Iterable[Parameter], key: Callable[[Parameter], Hashable]) -> list[Any]:
    """Parameters for `pytest.mark.parametrize`: of those with one key, all but the first are left to exploring runs."""
    seen: set[Hashable] = set()
    found = []
    for parameter in parameters:
        known = key(parameter) in seen
        seen.add(key(parameter))
        found.append(pytest.param(parameter, marks=pytest.mark.wide if known else ()))
    return found
