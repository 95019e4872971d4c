"""Who is called for a chip: its owner and the extensions that match it, highest priority first."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace

import pytest

from core.compiler.artifacts import Toolchain
from core.errors import BackendHookError, BackendLoadError
from core.plugins import Finding, Manager, hookimpl, local_entry
from tests.plugins.fakes import DESCRIBES, FakeVendor, manager_of, write_backend, write_distribution


class Owner(FakeVendor):
    @hookimpl
    def tilehal_toolchain(self, chip):
        return Toolchain("owner-cc", "1")

    @hookimpl
    def tilehal_diagnose(self, chip):
        return [Finding("owner", "info", f"owner on {chip.name}")]


def saying(name: str, priority: int = 1) -> SimpleNamespace:
    """An extension whose one finding is its name."""

    @hookimpl
    def tilehal_diagnose(chip):
        return [Finding(name, "info", name)]

    return SimpleNamespace(tilehal_diagnose=tilehal_diagnose, priority=priority)


def backend_of(owner, **extensions):
    """A backend of an owner and of extensions, given as `distribution=(target, plugin)`."""
    entries = [local_entry(owner.vendor, owner, distribution="owner")]
    entries += [
        local_entry(target, plugin, role="extension", distribution=name)
        for name, (target, plugin) in extensions.items()
    ]
    return Manager(entries).backend(owner.vendor)


def codes(backend, chip):
    return [finding.code for finding in backend.call("tilehal_diagnose", chip)]


class TestOrder:
    def test_results_of_a_collecting_hook_come_highest_priority_first(self):
        backend = backend_of(
            Owner("acme"),
            low=("acme", saying("low", -5)),
            high=("acme", saying("high", 10)),
            middle=("acme", saying("middle")),
        )
        assert codes(backend, backend.chips()[0]) == ["high", "middle", "owner", "low"]

    def test_equal_priorities_are_ordered_by_name_whatever_the_order_of_installation(self):
        extensions = {"b": ("acme", saying("b")), "a": ("acme", saying("a"))}
        one = backend_of(Owner("acme"), **extensions)
        other = backend_of(Owner("acme"), **dict(reversed(extensions.items())))
        assert codes(one, one.chips()[0]) == codes(other, other.chips()[0])

    def test_an_extension_answers_before_the_owner_where_one_result_is_wanted(self):
        @hookimpl
        def tilehal_toolchain(chip):
            return Toolchain("extension-cc", "2")

        backend = backend_of(Owner("acme"), ext=("acme", SimpleNamespace(tilehal_toolchain=tilehal_toolchain)))
        assert backend.call("tilehal_toolchain", backend.chips()[0]).name == "extension-cc"

    def test_none_passes_to_the_next(self):
        @hookimpl
        def tilehal_toolchain(chip):
            return None

        backend = backend_of(Owner("acme"), ext=("acme", SimpleNamespace(tilehal_toolchain=tilehal_toolchain)))
        assert backend.call("tilehal_toolchain", backend.chips()[0]).name == "owner-cc"


class TestMatching:
    def test_an_extension_of_one_chip_is_not_called_for_another(self):
        backend = backend_of(Owner("acme", "one", "two"), ext=("acme:two", saying("ext")))
        one, two = backend.chips()
        assert codes(backend, one) == ["owner"]
        assert codes(backend, two) == ["ext", "owner"]
        assert codes(backend, one) == ["owner"]

    def test_aliases_and_case_count(self):
        backend = backend_of(Owner("acme", "one", aliases=["First"]), ext=("ACME:first", saying("ext")))
        assert codes(backend, backend.chips()[0]) == ["ext", "owner"]

    def test_an_extension_loads_only_when_its_chip_is_asked_for(self, site):
        write_backend(site, "acme")
        write_distribution(site, "acme-tiles", files={"fake_tiles.py": "raise RuntimeError('loaded')"},
                           extensions={"acme:two": "fake_tiles"})  # fmt: skip
        backend = manager_of(site).backend("acme")
        one, two = backend.chips()
        assert not backend.implements("tilehal_diagnose", one)
        with pytest.raises(BackendLoadError, match="acme-tiles") as caught:
            backend.implements("tilehal_diagnose", two)
        assert isinstance(caught.value.__cause__, RuntimeError)

    def test_a_broken_extension_is_never_skipped_silently(self, site):
        # Somebody's wrapper that signs every build must not vanish because it failed to import.
        write_backend(site, "acme")
        write_distribution(site, "acme-sign", files={"fake_sign.py": "import nowhere_to_be_found"},
                           extensions={"acme": "fake_sign"})  # fmt: skip
        backend = manager_of(site).backend("acme")
        for _ in range(2):
            with pytest.raises(BackendLoadError, match=r"acme-sign 1\.2\.3, which extends"):
                backend.call("tilehal_diagnose", backend.chips()[0])

    def test_an_extension_of_nobody_is_no_owner(self):
        plugins = Manager([local_entry("acme", saying("ext"), role="extension")])
        assert plugins.vendors() == ()


class TestWrappers:
    def test_an_extension_works_around_the_owners_result(self):
        @hookimpl(wrapper=True)
        def tilehal_toolchain(chip):
            inner = yield
            return Toolchain(f"signed {inner.name}", inner.version)

        backend = backend_of(Owner("acme"), sign=("acme", SimpleNamespace(tilehal_toolchain=tilehal_toolchain)))
        assert backend.call("tilehal_toolchain", backend.chips()[0]) == Toolchain("signed owner-cc", "1")

    def test_around_a_collecting_hook_the_wrapper_sees_the_list_of_results(self):
        @hookimpl(wrapper=True)
        def tilehal_diagnose(chip):
            return [*(yield), [Finding("more", "info", "more")]]

        backend = backend_of(Owner("acme"), ext=("acme", SimpleNamespace(tilehal_diagnose=tilehal_diagnose)))
        assert codes(backend, backend.chips()[0]) == ["owner", "more"]

    def test_a_wrapper_alone_implements_nothing(self):
        @hookimpl(wrapper=True)
        def tilehal_build(chip):
            return (yield)

        backend = backend_of(Owner("acme"), ext=("acme", SimpleNamespace(tilehal_build=tilehal_build)))
        assert not backend.implements("tilehal_build", backend.chips()[0])

    def test_a_wrapper_that_drops_the_result_is_named(self):
        @hookimpl(wrapper=True)
        def tilehal_toolchain(chip):
            yield

        backend = backend_of(Owner("acme"), ext=("acme", SimpleNamespace(tilehal_toolchain=tilehal_toolchain)))
        with pytest.raises(BackendHookError, match="gave no result for acme:one; asked: owner 0, ext 0"):
            backend.call("tilehal_toolchain", backend.chips()[0])

    def test_an_error_inside_is_not_blamed_on_the_wrapper(self):
        class Failing(Owner):
            @hookimpl
            def tilehal_toolchain(self, chip):
                raise ZeroDivisionError("owner's fault")

        @hookimpl(wrapper=True)
        def tilehal_toolchain(chip):
            return (yield)

        backend = backend_of(Failing("acme"), ext=("acme", SimpleNamespace(tilehal_toolchain=tilehal_toolchain)))
        with pytest.raises(BackendHookError) as caught:
            backend.call("tilehal_toolchain", backend.chips()[0])
        assert caught.value.details["distribution"] == "owner"
        assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_hook_nobody_implements_is_refused_with_what_the_target_can_do():
    backend = backend_of(Owner("acme"))
    chip = backend.chips()[0]
    assert not backend.implements("tilehal_lower", chip)
    with pytest.raises(BackendHookError, match="does not implement tilehal_lower"):
        backend.call("tilehal_lower", chip, program=None, options=None)


def test_an_unknown_hook_is_the_callers_mistake():
    with pytest.raises(ValueError, match="tilehal_lauch"):
        backend_of(Owner("acme")).implements("tilehal_lauch")


def test_packages_name_all_that_take_part_in_calling_order():
    backend = backend_of(Owner("acme", "one", "two"), ext=("acme:two", saying("ext")))
    one, two = backend.chips()
    assert [package.distribution for package in backend.packages(one)] == ["owner"]
    assert [package.distribution for package in backend.packages(two)] == ["ext", "owner"]
    assert backend.fingerprint(one) != backend.fingerprint(two)


def test_many_threads_load_once_and_agree():
    owner = FakeVendor("acme")
    plugins = Manager([local_entry("acme", owner)])
    barrier = threading.Barrier(8)
    seen = []

    def ask():
        barrier.wait()
        backend = plugins.backend("acme")
        seen.append((backend, backend.chips(), backend.detect()))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(backend) for backend, _, _ in seen}) == 1
    assert len({id(chips) for _, chips, _ in seen}) == 1
    assert owner.detections == 1


def test_loading_an_extension_does_not_wait_for_an_import_that_asks_the_same_backend(site, monkeypatch):
    """One thread imports beta, which asks acme; another loads an extension of acme meanwhile."""
    write_backend(site, "acme")
    extension = "from core.plugins import hookimpl\n@hookimpl\ndef tilehal_diagnose(chip):\n    return []\n"
    write_distribution(site, "acme-ext", files={"fake_ext.py": extension}, extensions={"acme": "fake_ext"})
    asks = "import fake_meeting\nfake_meeting.ask()\n"
    write_backend(site, "beta", asks + DESCRIBES)
    plugins = manager_of(site)
    acme = plugins.backend("acme")
    chip = acme.chips()[0]
    importing, loading, answers = threading.Event(), threading.Event(), []

    def ask():
        importing.set()
        assert loading.wait(10)
        answers.append(acme.implements("tilehal_diagnose", chip))

    def load(entry, load=acme._load):
        loading.set()
        return load(entry)

    monkeypatch.setitem(sys.modules, "fake_meeting", SimpleNamespace(ask=ask))
    monkeypatch.setattr(acme, "_load", load)
    first = threading.Thread(target=lambda: answers.append(plugins.backend("beta").vendor), daemon=True)
    second = threading.Thread(target=lambda: answers.append(acme.implements("tilehal_diagnose", chip)), daemon=True)
    first.start()
    assert importing.wait(10)
    second.start()
    for thread in (first, second):
        thread.join(timeout=20)
    assert not first.is_alive()
    assert not second.is_alive()
    assert sorted(map(str, answers)) == ["True", "True", "beta"]


def test_every_call_is_traced_on_request(monkeypatch, capsys):
    backend = backend_of(Owner("acme"))
    chip = backend.chips()[0]
    backend.call("tilehal_toolchain", chip)
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("TILEHAL_TRACE_PLUGINS", "1")
    backend.call("tilehal_toolchain", chip)
    (line,) = capsys.readouterr().err.splitlines()
    assert " ms  tilehal_toolchain(acme:one)  owner 0" in line
