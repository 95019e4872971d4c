"""A folder of the user's that stands where ours is expected."""

from __future__ import annotations

from core.doctor.paths import path_findings


def codes(folder):
    return {finding.code: finding for finding in path_findings(folder)}


def package(folder, name):
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").touch()
    return folder / name


def test_an_ordinary_folder_shadows_nothing(tmp_path):
    assert codes(tmp_path) == {}


def test_a_core_that_comes_first_on_the_path(site, tmp_path):
    mine = package(site, "core")
    assert str(mine) in codes(tmp_path)["host-shadowed"].message


def test_a_regular_package_named_backends_hides_the_namespace_wherever_it_is_on_the_path(tmp_path, monkeypatch):
    import sys

    package(tmp_path / "last", "backends")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "last")])
    assert "backends/__init__.py" in codes(tmp_path)["backends-shadowed"].message


def test_a_folder_named_core_without_init_shadows_nothing(site, tmp_path):
    (site / "core").mkdir()
    (site / "core" / "notes.txt").touch()
    assert codes(tmp_path) == {}


def test_what_a_python_started_here_would_import(tmp_path):
    package(tmp_path, "core")
    (tmp_path / "backends.py").touch()
    found = [finding for finding in path_findings(tmp_path) if finding.code == "host-shadow-nearby"]
    assert [finding.details["file"] for finding in found] == [
        str(tmp_path / "core" / "__init__.py"), str(tmp_path / "backends.py"),
    ]  # fmt: skip


def test_running_uninstalled_is_said(tmp_path, monkeypatch):
    from importlib import metadata

    def absent(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", absent)
    assert "without being installed" in codes(tmp_path)["host-not-installed"].message
