"""Files of one distribution overwritten, deleted or shipped by another, told from RECORD."""

from __future__ import annotations

import pytest

from core.doctor.distributions import in_use, installed
from core.doctor.files import file_findings
from tests.plugins.fakes import write_distribution


@pytest.fixture
def findings(site):
    """A function that examines the packages in `site` only."""

    def examine():
        ours = [one for one in in_use(installed()).values() if one.folder == site]
        return list(file_findings(ours))

    return examine


def test_an_intact_installation_has_no_finding(site, findings):
    write_distribution(site, "tilelang", files={"tilelang/__init__.py": "x = 1"})
    write_distribution(site, "acme", files={"acme/__init__.py": ""}, backends={"acme": "acme"})
    assert findings() == []


def test_an_overwritten_file_is_told_by_its_hash(site, findings):
    write_distribution(site, "tilelang", files={"tilelang/__init__.py": "x = 1", "tilelang/jit.py": "y"})
    (site / "tilelang" / "__init__.py").write_text("x = 2")
    (finding,) = findings()
    assert finding.code == "file-overwritten"
    assert finding.message == "tilelang/__init__.py of tilelang 1.2.3 differs from what it installed"
    assert "--force-reinstall" in finding.hint


def test_a_deleted_file_is_missing(site, findings):
    write_distribution(site, "tilelang", files={"tilelang/__init__.py": "", "tilelang/jit.py": "y"})
    (site / "tilelang" / "jit.py").unlink()
    (finding,) = findings()
    assert (finding.code, finding.details["files"]) == ("file-missing", ["tilelang/jit.py"])


def test_a_vendor_that_ships_files_of_the_compiler(site, findings):
    write_distribution(site, "acme", files={"acme.py": "", "tilelang/acme.py": ""}, backends={"acme": "acme"})
    (finding,) = findings()
    assert finding.code == "plugin-ships-host-files"
    assert "acme 1.2.3 ships tilelang/acme.py inside tilelang" in finding.message


def test_two_distributions_with_the_same_file_are_both_named(site, findings):
    write_distribution(site, "tilelang", files={"tilelang/__init__.py": "one", "tilelang/a.py": ""})
    write_distribution(site, "tilelang-acme", files={"tilelang/__init__.py": "two"})
    shared, overwritten = sorted(findings(), key=lambda finding: finding.code, reverse=True)
    assert shared.code == "file-shared"
    assert "tilelang 1.2.3 and tilelang-acme 1.2.3" in shared.message
    # The second wheel overwrote the first one's file.
    assert overwritten.code == "file-overwritten"
    assert overwritten.details["distribution"] == "tilelang"


def test_other_peoples_packages_are_none_of_our_business(site, findings):
    write_distribution(site, "numpy", files={"numpy/__init__.py": "x"})
    (site / "numpy" / "__init__.py").write_text("y")
    assert findings() == []


def test_many_files_are_counted(site, findings):
    write_distribution(site, "tilelang", files={f"tilelang/f{n}.py": "x" for n in range(9)})
    for n in range(9):
        (site / "tilelang" / f"f{n}.py").write_text("y")
    (finding,) = findings()
    assert "and 4 more files" in finding.message
    assert len(finding.details["files"]) == 9
