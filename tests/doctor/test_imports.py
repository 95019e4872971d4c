"""Whose torch, tilelang, tvm and tvm_ffi are imported; an import that aborts is survived and reported."""

from __future__ import annotations

from core.doctor.distributions import in_use, installed
from core.doctor.imports import examine_imports
from tests.plugins.fakes import write_distribution


def examine(timeout_s: float = 60):
    found = examine_imports(tuple(in_use(installed()).values()), timeout_s)
    return {one.module: one for one in found.reports}, {one.code: one for one in found.findings}


def test_the_usual_case_has_no_finding(light):
    reports, findings = examine()
    assert findings == {}
    assert (reports["torch"].status, reports["torch"].distribution, reports["torch"].detail) == (
        "ok",
        "torch 2.13.0",
        "2.0",
    )
    assert reports["tvm"].detail == "shipped inside tilelang"


def test_a_process_that_has_imported_tilelang_finds_the_same(light, monkeypatch):
    # What importing tilelang leaves behind: its own `tvm` first on the path, here and for child processes.
    inside = light / "tilelang" / "3rdparty" / "tvm" / "python"
    (inside / "tvm").mkdir(parents=True)
    (inside / "tvm" / "__init__.py").write_text("raise ImportError('needs the libraries of tilelang')")
    monkeypatch.syspath_prepend(str(inside))
    monkeypatch.setenv("PYTHONPATH", str(inside))
    monkeypatch.setenv("TVM_LIBRARY_PATH", str(light / "tilelang" / "lib"))
    _, findings = examine()
    assert findings == {}


def test_an_import_that_aborts_the_process(light):
    (light / "tvm_ffi" / "__init__.py").write_text(
        "import sys, os\nprint('ABI mismatch', file=sys.stderr, flush=True)\nos.abort()"
    )
    reports, findings = examine()
    assert reports["tvm_ffi"].status == "died"
    assert "SIGABRT" in findings["import-died"].message
    assert "ABI mismatch" in findings["import-died"].details["output"]
    assert reports["torch"].status == "ok"


def test_an_import_that_raises(light):
    (light / "tilelang" / "__init__.py").write_text("raise OSError('libcudart.so.12: cannot open')")
    reports, findings = examine()
    assert reports["tilelang"].status == "failed"
    assert "OSError: libcudart.so.12" in findings["import-failed"].message


def test_an_import_that_hangs(light):
    (light / "torch" / "__init__.py").write_text("import time\ntime.sleep(100)")
    reports, findings = examine(timeout_s=1)
    assert reports["torch"].status == "timeout"
    assert "did not finish within 1 s" in findings["import-timeout"].message


def test_leftovers_without_metadata_that_win_the_import(light, tmp_path, monkeypatch):
    leftovers = tmp_path / "leftovers" / "tilelang"
    leftovers.mkdir(parents=True)
    (leftovers / "__init__.py").write_text("import sys, types; tvm = types.ModuleType('tvm'); tvm.__file__ = __file__")
    monkeypatch.syspath_prepend(str(leftovers.parent))
    _, findings = examine()
    assert str(leftovers) in findings["import-unowned"].message


def test_a_fork_under_another_name(light, tmp_path, monkeypatch):
    fork = tmp_path / "fork"
    write_distribution(
        fork,
        "tilelang-acme",
        files={"tilelang/__init__.py": "import types; tvm = types.ModuleType('tvm'); tvm.__file__ = __file__"},
    )
    monkeypatch.syspath_prepend(str(fork))
    _, findings = examine()
    assert "tilelang comes from tilelang-acme 1.2.3" in findings["import-fork"].message
    assert findings["import-two-owners"].details["distributions"] == ["tilelang", "tilelang-acme"]


def test_apache_tvm_that_breaks_tilelang_when_it_comes_first(light):
    write_distribution(light, "apache-tvm", version="0.25.0", files={"tvm/__init__.py": ""})
    (light / "tilelang" / "__init__.py").write_text(
        "import sys\n"
        "if 'tvm' in sys.modules: raise ImportError('undefined symbol CodeGenCE')\n"
        "from tilelang.inner import tvm"
    )
    _, findings = examine()
    message = findings["tvm-beside-tilelang"].message
    assert "apache-tvm 0.25.0" in message
    assert "`import tvm` before `import tilelang` fails: ImportError: undefined symbol CodeGenCE" in message


def test_a_tilelang_that_uses_a_foreign_tvm(light):
    write_distribution(light, "apache-tvm", version="0.25.0", files={"tvm/__init__.py": ""})
    (light / "tilelang" / "__init__.py").write_text("import tvm")
    reports, findings = examine()
    assert "tvm-inside-tilelang" in findings
    assert reports["tvm"].distribution == "apache-tvm 0.25.0"


def test_what_came_from_a_folder_or_repository_is_said(light):
    info = light / "tilelang-0.1.15.dist-info"
    (info / "direct_url.json").write_text('{"url": "https://example.org/fork.git", "vcs_info": {}}')
    _, findings = examine()
    assert "https://example.org/fork.git" in findings["import-from-source"].message


def test_without_tilelang_it_is_missing_and_nothing_raises(monkeypatch, light):
    import core.doctor.imports as module

    monkeypatch.setattr(module, "locate", lambda name: () if name in ("tilelang", "tvm") else module_locate(name))
    reports, findings = examine()
    assert reports["tilelang"].status == "missing"
    assert "nothing can be compiled" in findings["import-missing"].message


def module_locate(name):
    from core.plugins.fingerprint import locate

    return locate(name)
