"""Shared by the tests of the tile-level view: a kernel's statements as text, and running one in the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tilelang")

from core.conformance.interpreter import interpret
from core.program import Launch, Program
from core.program.printer import body_lines


@pytest.fixture
def lines() -> Callable[[Any], list[str]]:
    """The statements of a kernel's only launch, as text without indentation."""

    def of(prim_func: Any) -> list[str]:
        (launch,) = Program(prim_func).view.launches
        return [line.strip() for line in body_lines(launch.body)]

    return of


@pytest.fixture
def launch() -> Callable[[Any], Launch]:
    """A kernel's only launch."""

    def of(prim_func: Any) -> Launch:
        (found,) = Program(prim_func).view.launches
        return found

    return of


@pytest.fixture
def run() -> Callable[..., list[str]]:
    """Runs a kernel in the interpreter, forwards and backwards, and checks that the order made no difference."""

    def of(prim_func: Any, *arguments: Any, ordered: bool = False, **symbols: int) -> list[str]:
        view = Program(prim_func).view
        copies = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
        printed = interpret(view, arguments, symbols)
        if not ordered:
            interpret(view, copies, symbols, backwards=True)
            for forward, backward in zip(arguments, copies, strict=True):
                if isinstance(forward, np.ndarray):
                    np.testing.assert_array_equal(forward.astype(np.float64), backward.astype(np.float64))
        return printed

    return of
