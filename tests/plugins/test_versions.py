"""A package made for another TileHAL or TileLang is refused before any of its code runs."""

from __future__ import annotations

import pytest

from core.errors import BackendLoadError
from core.plugins import Entry
from core.plugins.versions import mismatches
from tests.plugins.fakes import manager_of, write_backend

INSTALLED = {"tilehal": "0.1.0", "tilelang": "0.1.15+cu128"}


def entry(*requires: str) -> Entry:
    return Entry("owner", "acme", "fake_acme", "tilehal-acme", "1.0", requires)


@pytest.mark.parametrize(
    ("requirement", "refused"),
    [
        ("tilehal>=0.1,<0.2", False),
        ("tilehal>=0.2", True),
        ("TileHAL<0.1", True),
        ("tilelang==0.1.15", False),  # A local version (+cu128) is the same release.
        ("tilelang<0.1.15", True),
        ("numpy>=99", False),  # Somebody else's business.
        ("tilehal>=99; extra == 'dev'", False),
        ("tilehal>=99; python_version < '3'", False),
        ("tilelang", False),
    ],
)
def test_ranges(requirement, refused):
    assert bool(mismatches(entry(requirement), INSTALLED.get)) is refused


def test_a_pre_release_of_the_host_counts():
    assert not mismatches(entry("tilehal>=0.2.0.dev0"), {"tilehal": "0.2.0.dev3"}.get)


def test_an_absent_tilelang_is_no_mismatch():
    assert not mismatches(entry("tilelang>=0.1"), {"tilehal": "0.1.0"}.get)


def test_an_unreadable_requirement_on_the_host_is_a_mismatch():
    (found,) = mismatches(entry("tilehal >>= 1"), INSTALLED.get)
    assert "cannot be read" in str(found)


def test_the_code_is_not_imported(site):
    write_backend(site, "acme", "raise SystemExit('imported')", requires=["tilehal>=99"])
    plugins = manager_of(site)
    with pytest.raises(BackendLoadError) as caught:
        plugins.backend("acme")
    assert "it requires tilehal>=99, and tilehal" in caught.value.message
    assert "tilehal-acme 1.2.3" in caught.value.message
    assert caught.value.details["stage"] == "versions"
    assert caught.value.__cause__ is None
