"""A package that raises, hangs or ends the process on import is reported with its cause; everything else works."""

from __future__ import annotations

import pytest

from core.errors import BackendLoadError
from core.plugins.isolation import LOAD_TIMEOUT
from core.target import resolve
from tests.plugins.fakes import DESCRIBES, manager_of, write_backend, write_distribution

BAD_IMPORTS = {
    "raises": ("raise ImportError('libacme.so.3: cannot open shared object file')", "libacme.so.3"),
    "exits": ("import sys\nsys.exit(4)", "raised SystemExit: 4"),
    "hangs": ("import time\nprint('connecting to the licence server', flush=True)\ntime.sleep(600)", "did not finish"),
    "dies": ("import os\nos._exit(13)", "ended the process with exit status 13"),
    "aborts": ("import os\nos.abort()", "SIGABRT"),
}


@pytest.fixture
def trial_imports(monkeypatch):
    monkeypatch.setenv(LOAD_TIMEOUT, "60")  # what works finishes in any case


@pytest.mark.parametrize("kind", BAD_IMPORTS)
def test_its_target_raises_with_the_cause_and_others_work(site, trial_imports, kind, monkeypatch):
    source, cause = BAD_IMPORTS[kind]
    write_backend(site, "bad", source)
    write_backend(site, "good")
    plugins = manager_of(site)
    with monkeypatch.context() as patch:
        if kind == "hangs":
            patch.setenv(LOAD_TIMEOUT, "1")
        with pytest.raises(BackendLoadError) as caught:
            resolve("bad:one", manager=plugins)
    assert "tilehal-bad 1.2.3" in caught.value.message
    assert cause in caught.value.message
    assert resolve("good:two", manager=plugins).chip.target == "good:two"
    assert [failure.vendor for failure in plugins.failures()] == ["bad"]


def test_the_real_exception_is_chained(site, trial_imports):
    write_backend(site, "bad", BAD_IMPORTS["raises"][0])
    with pytest.raises(BackendLoadError) as caught:
        manager_of(site).backend("bad")
    assert isinstance(caught.value.__cause__, ImportError)


def test_what_it_printed_before_it_hung_is_shown(site, monkeypatch):
    monkeypatch.setenv(LOAD_TIMEOUT, "3")  # many times what a slow machine takes to come as far as the message
    write_backend(site, "bad", BAD_IMPORTS["hangs"][0])
    with pytest.raises(BackendLoadError, match="connecting to the licence server"):
        manager_of(site).backend("bad")


def test_a_failed_package_is_not_tried_again(site, trial_imports, tmp_path):
    runs = tmp_path / "runs"
    write_backend(site, "bad", f"with open({str(runs)!r}, 'a') as file:\n    file.write('x')\n{BAD_IMPORTS['dies'][0]}")
    plugins = manager_of(site)
    messages: list[str] = []
    for _ in range(2):
        with pytest.raises(BackendLoadError) as caught:
            plugins.backend("bad")
        messages.append(caught.value.message)
        assert runs.read_text() == "x"
    assert messages[0] == messages[1]


def test_a_good_package_is_tried_once_per_content(site, trial_imports, tmp_path):
    runs = tmp_path / "runs"
    write_backend(site, "acme", DESCRIBES + f"with open({str(runs)!r}, 'a') as file:\n    file.write('x')\n")
    manager_of(site).backend("acme")
    assert runs.read_text() == "xx"  # The trial, and the import.
    assert len(list((tmp_path / "cache" / "plugins").iterdir())) == 1


def test_without_a_cache_every_process_tries_and_nothing_is_written(site, trial_imports, tmp_path, monkeypatch):
    monkeypatch.setenv("TILEHAL_DISABLE_CACHE", "1")
    write_backend(site, "acme")
    assert manager_of(site).backend("acme").chips()
    assert not (tmp_path / "cache").exists()


def test_a_timeout_that_is_no_number_is_said(site, monkeypatch):
    monkeypatch.setenv(LOAD_TIMEOUT, "soon")
    write_backend(site, "acme")
    with pytest.raises(BackendLoadError, match="'soon' is not a number of seconds"):
        manager_of(site).backend("acme")


def test_a_package_that_asks_for_itself_while_it_is_imported(site):
    write_backend(site, "acme", "from core.plugins import manager\nmanager().backend('acme')\n")
    plugins = manager_of(site)
    from core.plugins import use_manager

    with use_manager(plugins), pytest.raises(BackendLoadError, match="its own import asks for the target"):
        plugins.backend("acme")


def test_a_module_that_is_not_there(site):
    write_distribution(site, "tilehal-gone", files={}, backends={"gone": "fake_gone.plugin"})
    with pytest.raises(BackendLoadError, match="No module named 'fake_gone'") as caught:
        manager_of(site).backend("gone")
    assert "reinstall tilehal-gone" in caught.value.hint


def test_a_shadowed_module_is_shown(site, tmp_path, monkeypatch):
    write_distribution(site, "tilehal-acme", files={"acme_vendor/__init__.py": "", "acme_vendor/plugin.py": DESCRIBES},
                       backends={"acme": "acme_vendor.plugin"})  # fmt: skip
    mine = tmp_path / "mine"
    (mine / "acme_vendor").mkdir(parents=True)
    (mine / "acme_vendor" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(mine))
    with pytest.raises(BackendLoadError) as caught:
        manager_of(site).backend("acme")
    assert str(mine / "acme_vendor") in caught.value.hint
