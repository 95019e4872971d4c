"""The content hash of a plugin's package, found without importing it."""

from __future__ import annotations

import sys

from core.plugins.fingerprint import code_hash, code_root, locate
from tests.plugins.fakes import write_distribution

FILES = {
    "acme_space/metax/__init__.py": "raise RuntimeError('imported')",
    "acme_space/metax/plugin.py": "raise RuntimeError('imported')",
    "acme_space/metax/chips.toml": "a = 1",
}


def test_locating_imports_nothing(site):
    write_distribution(site, "acme", files=FILES)
    assert [spec.name for spec in locate("acme_space.metax.plugin")] == [
        "acme_space", "acme_space.metax", "acme_space.metax.plugin",
    ]  # fmt: skip
    assert "acme_space.metax" not in sys.modules


def test_the_root_is_the_outermost_regular_package_not_the_shared_namespace(site):
    write_distribution(site, "acme", files=FILES)
    assert code_root("acme_space.metax.plugin") == site / "acme_space" / "metax"


def test_a_single_module_is_its_own_root(site):
    write_distribution(site, "acme", files={"acme_single.py": "x = 1"})
    assert code_root("acme_single") == site / "acme_single.py"


def test_any_file_of_the_package_changes_the_hash_and_bytecode_does_not(site):
    write_distribution(site, "acme", files=FILES)
    before = code_hash("acme_space.metax.plugin")
    package = site / "acme_space" / "metax"
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "plugin.cpython-311.pyc").write_bytes(b"x")
    assert code_hash("acme_space.metax.plugin") == before
    (package / "chips.toml").write_text("a = 2")
    assert code_hash("acme_space.metax.plugin") != before


def test_another_package_of_the_namespace_does_not_matter(site):
    write_distribution(site, "acme", files=FILES)
    before = code_hash("acme_space.metax.plugin")
    write_distribution(site, "other", files={"acme_space/other/__init__.py": "x = 1"})
    assert code_hash("acme_space.metax.plugin") == before


def test_moving_bytes_between_files_changes_the_hash(site):
    write_distribution(site, "a", files={"acme_a/__init__.py": "", "acme_a/x.py": "12", "acme_a/y.py": "3"})
    write_distribution(site, "b", files={"acme_b/__init__.py": "", "acme_b/x.py": "1", "acme_b/y.py": "23"})
    assert code_hash("acme_a") != code_hash("acme_b")
