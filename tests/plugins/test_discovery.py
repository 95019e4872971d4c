"""Plugins are found through package metadata, and listing them runs none of their code."""

from __future__ import annotations

import sys

import pytest

from core.errors import BackendLoadError, TargetNotFound
from core.plugins import Manager, discover, manager, use_manager
from tests.plugins.fakes import DESCRIBES, manager_of, write_backend, write_distribution

EXPLODES = "raise RuntimeError('somebody imported me')"


def test_listing_vendors_imports_no_plugin(site):
    write_backend(site, "acme", EXPLODES)
    write_backend(site, "zenith", EXPLODES)
    assert manager_of(site).vendors() == ("acme", "zenith")


def test_an_entry_tells_package_version_and_requirements(site):
    write_backend(site, "acme", requires=["tilehal>=0.1", "numpy"])
    (entry,) = discover([str(site)])
    assert (entry.role, entry.vendor, entry.package) == ("owner", "acme", "tilehal-acme 1.2.3")
    assert entry.requires == ("tilehal>=0.1", "numpy")


def test_asking_for_a_vendor_loads_it_and_no_other(site):
    acme = write_backend(site, "acme")
    zenith = write_backend(site, "zenith", EXPLODES)
    backend = manager_of(site).backend("acme")
    assert [chip.target for chip in backend.chips()] == ["acme:one", "acme:two"]
    assert acme in sys.modules
    assert zenith not in sys.modules


def test_vendor_names_are_matched_in_any_case(site):
    write_distribution(site, "tilehal-acme", files={"fake_case.py": DESCRIBES.replace("{vendor}", "acme")},
                       backends={"ACME": "fake_case"})  # fmt: skip
    plugins = manager_of(site)
    assert plugins.vendors() == ("acme",)
    assert plugins.backend("Acme") is plugins.backend("acme")


def test_a_plugin_that_the_user_imported_first_is_the_same_plugin(site):
    from importlib import import_module

    module = import_module(write_backend(site, "acme"))
    module.tilehal_chips.__globals__["touched"] = True
    assert manager_of(site).backend("acme").chips()[0].target == "acme:one"
    assert import_module(module.__name__) is module
    assert module.touched


def test_loading_happens_once(site):
    write_backend(
        site, "acme", DESCRIBES + "\nimport builtins\nbuiltins.acme_loads = vars(builtins).get('acme_loads', 0) + 1\n"
    )
    plugins = manager_of(site)
    first = plugins.backend("acme")
    assert plugins.backend("acme") is first
    import builtins

    assert builtins.acme_loads == 1
    del builtins.acme_loads


def test_the_first_copy_of_a_distribution_counts_as_for_imports(tmp_path):
    write_backend(tmp_path / "a", "acme", version="2.0")
    write_backend(tmp_path / "b", "acme", version="1.0")
    entries = discover([str(tmp_path / "a"), str(tmp_path / "b")])
    assert [entry.version for entry in entries] == ["2.0"]


def test_an_unknown_vendor_is_named_with_its_neighbours(site):
    write_backend(site, "acme")
    with pytest.raises(TargetNotFound) as caught:
        manager_of(site).backend("acne")
    assert "acne" in caught.value.message
    assert "acme" in caught.value.hint


class TestOwnership:
    def two_owners(self, site):
        write_backend(site, "acme")
        write_distribution(
            site,
            "acme-official",
            version="9.0",
            files={"fake_official.py": DESCRIBES},
            backends={"acme": "fake_official"},
        )
        return site

    def test_two_owners_are_an_error_that_names_both_and_how_to_choose(self, site):
        plugins = manager_of(self.two_owners(site))
        with pytest.raises(BackendLoadError) as caught:
            plugins.backend("acme")
        assert "tilehal-acme 1.2.3" in caught.value.message
        assert "acme-official 9.0" in caught.value.message
        assert "TILEHAL_LOAD_PLUGINS" in caught.value.hint
        assert "pip uninstall" in caught.value.hint
        assert [failure.vendor for failure in plugins.failures()] == ["acme"]

    def test_neither_owner_is_imported(self, site):
        write_backend(site, "acme", EXPLODES)
        write_distribution(site, "acme-official", files={"fake_two.py": EXPLODES}, backends={"acme": "fake_two"})
        with pytest.raises(BackendLoadError, match="2 packages own"):
            manager_of(site).backend("acme")

    def test_other_vendors_go_on(self, site):
        write_backend(site, "zenith")
        assert manager_of(self.two_owners(site)).backend("zenith").chips()[0].target == "zenith:one"

    def test_the_environment_decides_between_them(self, site, monkeypatch):
        monkeypatch.setenv("TILEHAL_LOAD_PLUGINS", "tilehal_acme")
        assert manager_of(self.two_owners(site)).backend("acme").distribution == "tilehal-acme"


class TestSelection:
    @pytest.mark.parametrize(
        ("variable", "vendors"),
        [
            (None, ("acme", "zenith")),
            ("", ()),
            ("acme", ("acme",)),
            ("tilehal-zenith", ("zenith",)),
            (" Tilehal_Zenith , acme ", ("acme", "zenith")),
            ("nobody", ()),
        ],
    )
    def test_names_of_distributions_or_vendors(self, site, monkeypatch, variable, vendors):
        write_backend(site, "acme")
        write_backend(site, "zenith")
        if variable is not None:
            monkeypatch.setenv("TILEHAL_LOAD_PLUGINS", variable)
        assert manager_of(site).vendors() == vendors

    def test_a_vendor_left_out_is_said_to_be_left_out(self, site, monkeypatch):
        write_backend(site, "acme")
        monkeypatch.setenv("TILEHAL_LOAD_PLUGINS", "")
        plugins = manager_of(site)
        assert plugins.left_out_vendors() == ("acme",)
        with pytest.raises(TargetNotFound, match="TILEHAL_LOAD_PLUGINS leaves it out"):
            plugins.backend("acme")


def test_a_test_can_replace_the_process_manager():
    mine = Manager([])
    before = manager()
    with use_manager(mine):
        assert manager() is mine
    assert manager() is before


def test_the_function_survives_the_import_of_every_module_of_the_package():
    import pkgutil
    from importlib import import_module

    import core.plugins

    for module in pkgutil.iter_modules(core.plugins.__path__):
        import_module(f"core.plugins.{module.name}")
    assert callable(core.plugins.manager)
