from __future__ import annotations

import pytest

from tests.plugins.fakes import write_distribution


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder on `sys.path` to install packages into."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return folder


@pytest.fixture
def light(site):
    """Packages of the right names that import at once; a test replaces the one it is about."""
    write_distribution(site, "torch", version="2.13.0", files={"torch/__init__.py": "__version__ = '2.0'"})
    write_distribution(site, "apache-tvm-ffi", version="0.1.12", files={"tvm_ffi/__init__.py": ""})
    write_distribution(
        site,
        "tilelang",
        version="0.1.15",
        files={
            "tilelang/__init__.py": "from tilelang.inner import tvm",
            "tilelang/inner/tvm.py": "",
            "tilelang/inner/__init__.py": "",
        },
    )
    return site
