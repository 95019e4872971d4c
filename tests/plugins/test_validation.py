"""A plugin is taken whole or not at all: one hook that does not match its specification refuses the package."""

from __future__ import annotations

import inspect
from types import SimpleNamespace

import pytest

from core.errors import BackendHookError, BackendLoadError, DescriptorError
from core.hardware import Chip
from core.plugins import HOOK_NAMES, DetectedDevice, Finding, Manager, hookimpl, hookspecs, local_entry
from core.plugins.loading import validated
from core.plugins.results import RESULT_TYPES
from tests.plugins.fakes import DESCRIBES, FakeVendor, manager_of, write_backend, write_distribution


def refusal(site, source: str) -> BackendLoadError:
    write_backend(site, "acme", DESCRIBES + source)
    with pytest.raises(BackendLoadError) as caught:
        manager_of(site).backend("acme")
    assert "tilehal-acme 1.2.3" in caught.value.message
    assert caught.value.details["stage"] == "register"
    return caught.value


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ("@hookimpl\ndef tilehal_lauch(chip): ...\n", "unknown hook 'tilehal_lauch'"),
        ("@hookimpl\ndef tilehal_lower(chip, kernel): ...\n", "{'kernel'} are declared in the hookimpl"),
        ("def tilehal_lower(chip, program, options): ...\n", "lacks @hookimpl"),
        ("@hookimpl(hookwrapper=True)\ndef tilehal_lower(chip): yield\n", "old-style hookwrapper"),
        ("@hookimpl(wrapper=True)\ndef tilehal_lower(chip): return None\n", "not a generator function"),
        ("@hookimpl\ndef tilehal_lower(chip, program, options=None): ...\n", "parameter options, which has a default,"),
        ("@hookimpl\ndef tilehal_lower(chip, **rest): ...\n", "the parameter **rest of its tilehal_lower"),
        ("@hookimpl\ndef tilehal_lower(chip, *, program): ...\n", "the parameter program of its tilehal_lower"),
        ("@hookimpl(specname='tilehal_chips')\ndef more_chips(): return []\n", "implements tilehal_chips twice"),
    ],
)
def test_what_is_refused(site, source, cause):
    assert cause in refusal(site, source).message


def test_a_misspelt_hook_is_named_with_the_right_one(site):
    error = refusal(site, "@hookimpl\ndef tilehal_lauch(chip): ...\n")
    assert "unknown hook 'tilehal_lauch' (did you mean tilehal_launcher?)" in error.message
    assert error.hint.startswith("docs/plugins.md")


def test_a_misspelt_first_hook_is_not_taken_for_a_missing_one(site):
    write_backend(site, "acme", "from core.plugins import hookimpl\n@hookimpl\ndef tilehal_chip(): return []\n")
    with pytest.raises(BackendLoadError, match=r"unknown hook 'tilehal_chip' \(did you mean tilehal_chips\?\)"):
        manager_of(site).backend("acme")


def test_a_module_without_hooks_is_refused(site):
    write_backend(site, "acme", "x = 1")
    with pytest.raises(BackendLoadError, match="implements no hook"):
        manager_of(site).backend("acme")


def test_an_owner_must_know_its_chips(site):
    write_backend(site, "acme", "from core.plugins import hookimpl\n@hookimpl\ndef tilehal_detect(): return []\n")
    with pytest.raises(BackendLoadError, match="does not implement tilehal_chips"):
        manager_of(site).backend("acme")


def test_nothing_of_a_refused_extension_stays():
    @hookimpl
    def tilehal_diagnose(chip):
        return [Finding("bad", "info", "never to be seen")]

    @hookimpl
    def tilehal_lower(chip, kernel):
        return None

    owner = FakeVendor("acme", "one", "two")
    bad = SimpleNamespace(tilehal_diagnose=tilehal_diagnose, tilehal_lower=tilehal_lower)
    backend = Manager([local_entry("acme", owner), local_entry("acme:two", bad, role="extension")]).backend("acme")
    one, two = backend.chips()
    with pytest.raises(BackendLoadError, match="kernel"):
        backend.call("tilehal_diagnose", two)
    assert backend.call("tilehal_diagnose", one) == ()
    assert [package.role for package in backend.packages(one)] == ["owner"]


@pytest.mark.parametrize("hook", ["tilehal_chips", "tilehal_detect"])
def test_an_extension_that_speaks_for_the_vendor_loses_that_hook_and_nothing_else(hook):
    says = Finding("acme-ext", "info", "still called")
    extension = SimpleNamespace(**{hook: hookimpl(lambda: [])}, tilehal_diagnose=hookimpl(lambda chip: [says]))
    entries = [local_entry("acme", FakeVendor("acme")), local_entry("acme", extension, role="extension")]
    plugins = Manager(entries)
    backend = plugins.backend("acme")
    [chip] = backend.chips()
    assert backend.call("tilehal_diagnose", chip) == (says,)
    [failure] = plugins.failures()
    assert failure.error.message.startswith(f"{hook} of ")
    assert "only the owner" in failure.error.message
    assert "what-if target" in failure.error.hint


def test_a_hook_that_an_extension_is_refused_does_not_count_as_implemented():
    """Otherwise a vendor would be said to answer what nobody is asked."""
    owner = SimpleNamespace(tilehal_chips=hookimpl(lambda: [Chip(vendor="acme", name="one", title="One")]))
    extension = SimpleNamespace(
        tilehal_detect=hookimpl(lambda: [DetectedDevice("one", 0, "made up")]),
        tilehal_diagnose=hookimpl(lambda chip: []),
    )
    entry = local_entry("acme", extension, role="extension")
    plugin = validated(entry, extension, "")
    assert (plugin.implemented, plugin.wrapped) == ({"tilehal_diagnose"}, set())
    assert vars(plugin.hooks).keys() == {"tilehal_diagnose"}
    backend = Manager([local_entry("acme", owner), entry]).backend("acme")
    [chip] = backend.chips()
    assert backend.implements("tilehal_diagnose", chip)
    assert not backend.implements("tilehal_detect", chip)
    assert backend.detect() == ()


def test_an_extension_with_nothing_but_chips_leaves_the_owners_alive():
    extension = SimpleNamespace(tilehal_chips=hookimpl(lambda: []))
    plugins = Manager([local_entry("acme", FakeVendor("acme")), local_entry("acme", extension, role="extension")])
    backend = plugins.backend("acme")
    assert backend.call("tilehal_diagnose", backend.chips()[0]) == ()
    assert [failure.error.details["stage"] for failure in plugins.failures()] == ["owner-hook"]


@pytest.mark.parametrize("name", ["acme:one", "auto", "tilehal", "ac me", ""])
def test_an_owners_name_must_be_a_vendor(site, name):
    write_distribution(site, "tilehal-odd", files={"fake_odd.py": DESCRIBES}, backends={name: "fake_odd"})
    plugins = manager_of(site)
    with pytest.raises(BackendLoadError, match="entry point's name is wrong"):
        plugins.backend(plugins.vendors()[0])


@pytest.mark.parametrize("priority", ["high", 1.5, True, None])
def test_a_priority_is_an_int(priority):
    extension = SimpleNamespace(tilehal_diagnose=hookimpl(lambda chip: []), priority=priority)
    entries = [local_entry("acme", FakeVendor("acme")), local_entry("acme", extension, role="extension")]
    backend = Manager(entries).backend("acme")
    with pytest.raises(BackendLoadError, match="not an int"):
        backend.packages(backend.chips()[0])


class TestResults:
    def test_the_table_covers_every_hook_and_agrees_with_the_annotations(self):
        assert set(RESULT_TYPES) == set(HOOK_NAMES)
        for name, expected in RESULT_TYPES.items():
            annotation = inspect.signature(getattr(hookspecs, name)).return_annotation
            assert annotation == str(expected).replace(" or ", " | ")

    def backend(self, **hooks):
        owner = FakeVendor("acme")
        for name, function in hooks.items():
            setattr(owner, name, hookimpl(function))
        return Manager([local_entry("acme", owner, distribution="tilehal-acme", version="3")]).backend("acme")

    @pytest.mark.parametrize(
        ("value", "fault"),
        [
            ("nothing", "it returned str 'nothing' instead of Sequence[Finding]"),
            (7, "it returned int 7 instead of Sequence[Finding]"),
            (iter(()), "instead of Sequence[Finding]"),
            ([Finding("a", "info", "b"), "text"], "item 1 of what it returned is str 'text', not Finding"),
        ],
    )
    def test_a_wrong_type_names_package_version_and_hook(self, value, fault):
        backend = self.backend(tilehal_diagnose=lambda chip: value)
        with pytest.raises(BackendHookError) as caught:
            backend.call("tilehal_diagnose", backend.chips()[0])
        assert "tilehal_diagnose of tilehal-acme 3 failed" in caught.value.message
        assert fault in caught.value.message

    def test_a_string_is_no_lowered_kernel(self):
        backend = self.backend(tilehal_lower=lambda chip, program, options: "source")
        with pytest.raises(BackendHookError, match="str 'source' instead of LoweredKernel"):
            backend.call("tilehal_lower", backend.chips()[0], program=None, options=None)

    def test_any_other_exception_is_wrapped_and_chained(self):
        def fails(chip):
            raise KeyError("sm")

        backend = self.backend(tilehal_diagnose=fails)
        with pytest.raises(BackendHookError, match="raised KeyError: 'sm'") as caught:
            backend.call("tilehal_diagnose", backend.chips()[0])
        assert isinstance(caught.value.__cause__, KeyError)

    def test_a_hook_that_exits_does_not_end_the_program(self):
        def leaves(chip):
            raise SystemExit(3)

        backend = self.backend(tilehal_diagnose=leaves)
        with pytest.raises(BackendHookError, match="raised SystemExit: 3"):
            backend.call("tilehal_diagnose", backend.chips()[0])

    def test_our_own_errors_pass_unchanged(self):
        error = DescriptorError("no such figure", hint="measure it")

        def fails(chip):
            raise error

        backend = self.backend(tilehal_diagnose=fails)
        with pytest.raises(DescriptorError) as caught:
            backend.call("tilehal_diagnose", backend.chips()[0])
        assert caught.value is error


class TestChips:
    @pytest.mark.parametrize(
        ("chips", "fault"),
        [
            ([], "no chip"),
            ([Chip(vendor="other", name="one", title="One")], "says its vendor is 'other'"),
            (
                [Chip(vendor="acme", name="a", title="A", aliases=("X",)), Chip(vendor="acme", name="x", title="X")],
                "'a' and 'x' are both called 'x'",
            ),
        ],
    )
    def test_a_vendors_chips_are_its_own_and_tell_apart(self, chips, fault):
        owner = SimpleNamespace(tilehal_chips=hookimpl(lambda: chips))
        with pytest.raises(BackendHookError, match=fault):
            Manager([local_entry("acme", owner)]).backend("acme").chips()


def test_detection_answers_devices():
    owner = FakeVendor("acme", devices=[DetectedDevice("one", 0, "the driver says so")])
    assert Manager([local_entry("acme", owner)]).backend("acme").detect()[0].evidence == "the driver says so"
