"""Logging is off while TileLang works, and as it was afterwards, however many threads compile."""

from __future__ import annotations

import logging
import threading

import pytest

from core._tilelang.silence import silent


def test_nothing_is_logged_inside_and_everything_afterwards(caplog: pytest.LogCaptureFixture) -> None:
    with silent():
        logging.getLogger("tilelang").error("a dump")
    logging.getLogger("tilelang").error("a fault")
    assert caplog.messages == ["a fault"]


def test_it_is_undone_after_an_error() -> None:
    before = logging.root.manager.disable
    with pytest.raises(RuntimeError), silent():
        raise RuntimeError
    assert logging.root.manager.disable == before


def test_threads_that_overlap_leave_logging_as_it_was() -> None:
    before = logging.root.manager.disable
    first_in, second_in, first_out = threading.Event(), threading.Event(), threading.Event()

    def first() -> None:
        with silent():
            first_in.set()
            assert second_in.wait(10)
        first_out.set()

    def second() -> None:
        assert first_in.wait(10)
        with silent():
            second_in.set()
            assert first_out.wait(10)
            assert logging.root.manager.disable == logging.CRITICAL

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert first_out.is_set()
    assert logging.root.manager.disable == before
