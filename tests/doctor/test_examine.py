"""One examination of an installation with many faults: each has its code and cause, and the rest is examined."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from core.cli.main import run
from core.doctor import CODES, examine
from core.plugins.isolation import LOAD_TIMEOUT
from tests.plugins.fakes import DESCRIBES, write_backend, write_distribution

DETECTS = (
    DESCRIBES
    + """
from core.plugins import DetectedDevice, Finding
from core.compiler.artifacts import Toolchain
from core.errors import ToolchainNotFound

@hookimpl
def tilehal_detect():
    return [DetectedDevice("two", 3, "acme-smi: Acme Two")]

@hookimpl
def tilehal_toolchain(chip):
    raise ToolchainNotFound("acc was not found. Looked at: $ACC_HOME (not set)")

@hookimpl
def tilehal_diagnose(chip):
    return [Finding("acme-acc-missing", "warning", f"no acc for {chip.target}", "install it", blocks=("build",))]
"""
)

HOOK_DIES = DESCRIBES + "\nimport os\n@hookimpl\ndef tilehal_detect():\n    os._exit(7)\n"
HOOK_RAISES = DESCRIBES + "\n@hookimpl\ndef tilehal_detect():\n    raise OSError('driver mismatch')\n"
WRONG_CHIPS = "from core.plugins import hookimpl\n@hookimpl\ndef tilehal_chips():\n    return 'chips'\n"


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The report of `examine()` with all of these packages installed."""
    site, second = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("second")
    write_backend(site, "fine", DETECTS)
    write_backend(site, "signed")
    write_backend(site, "raising", "raise ImportError('libacme.so.3 is missing')")
    write_backend(site, "hanging", "import time\ntime.sleep(600)")
    write_backend(site, "exiting", "import os\nos._exit(3)")
    write_backend(site, "future", "raise RuntimeError('imported')", requires=["tilehal>=99"])
    write_backend(site, "hookdies", HOOK_DIES)
    write_backend(site, "hookraises", HOOK_RAISES)
    write_backend(site, "wrongchips", WRONG_CHIPS)
    write_backend(site, "contested")
    write_distribution(site, "other-contested", files={"fake_c.py": ""}, backends={"contested": "fake_c"})
    write_distribution(site, "fine-sign", files={"fake_sign.py": "import nowhere"}, extensions={"signed": "fake_sign"})
    write_distribution(site, "fine-lost", files={"fake_lost.py": ""}, extensions={"fine:nine": "fake_lost"})
    chips = DESCRIBES.replace("{vendor}", "fine")
    write_distribution(site, "fine-chips", files={"fake_chips.py": chips}, extensions={"fine": "fake_chips"})
    write_distribution(site, "lonely", files={"fake_lonely.py": ""}, extensions={"nobody": "fake_lonely"})
    write_backend(second, "fine", version="0.9")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("TILEHAL_LOAD_PLUGINS", raising=False)
        patch.setenv(LOAD_TIMEOUT, "5")
        patch.setenv("TILEHAL_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        patch.syspath_prepend(str(second))
        patch.syspath_prepend(str(site))
        return examine()


def status_of(report, package: str) -> SimpleNamespace:
    (plugin,) = [one for one in report.plugins if one.package == package]
    return SimpleNamespace(status=plugin.status, cause=plugin.cause)


def messages(report, code: str) -> list[str]:
    return [finding.message for finding in report.findings if finding.code == code]


def only(report, code: str, part: str) -> str:
    (message,) = [message for message in messages(report, code) if part in message]
    return message


@pytest.mark.parametrize(
    ("package", "status", "cause"),
    [
        ("tilehal-fine 1.2.3", "loaded", ""),
        ("tilehal-raising 1.2.3", "failed", "libacme.so.3 is missing"),
        ("tilehal-hanging 1.2.3", "failed", "did not finish within 5 s"),
        ("tilehal-exiting 1.2.3", "failed", "exit status 3"),
        ("tilehal-future 1.2.3", "incompatible", "requires tilehal>=99"),
        ("tilehal-wrongchips 1.2.3", "failed", "str 'chips' instead of Sequence[Chip]"),
        ("tilehal-hookdies 1.2.3", "failed", "tilehal_detect ended the process with exit status 7"),
        ("tilehal-contested 1.2.3", "failed", "2 packages own"),
        ("other-contested 1.2.3", "failed", "2 packages own"),
        ("fine-sign 1.2.3", "failed", "No module named 'nowhere'"),
        ("fine-chips 1.2.3", "partly loaded", "only the owner of a vendor answers"),
        ("lonely 1.2.3", "not checked", ""),
        ("tilehal-fine 0.9", "shadowed", "tilehal-fine 1.2.3 comes first"),
    ],
)
def test_what_became_of_each_plugin(report, package, status, cause):
    found = status_of(report, package)
    assert found.status == status
    assert cause in found.cause


@pytest.mark.parametrize(
    ("code", "part"),
    [
        ("plugin-failed", "tilehal-raising"),
        ("plugin-failed", "tilehal-hanging"),
        ("plugin-failed", "tilehal-exiting"),
        ("plugin-failed", "fine-sign"),
        ("plugin-incompatible", "tilehal-future"),
        ("requirement-unmet", "tilehal-future"),
        ("plugin-two-owners", "other-contested"),
        ("plugin-speaks-for-owner", "tilehal_chips of fine-chips 1.2.3 is not called"),
        ("plugin-hook-failed", "tilehal-wrongchips"),
        ("plugin-hook-failed", "driver mismatch"),
        ("plugin-check-died", "hookdies"),
        ("plugin-extends-nobody", "fine:nine"),
        ("plugin-extends-nobody", "'nobody'"),
        ("plugin-shadowed", "0.9"),
        ("acme-acc-missing", "no acc for fine:two"),
    ],
)
def test_each_fault_has_its_code_once(report, code, part):
    assert only(report, code, part)


def test_a_good_backend_is_examined_all_the_same(report):
    (fine,) = [backend for backend in report.backends if backend.vendor == "fine"]
    assert fine.chips == ("fine:one", "fine:two")
    assert fine.detector == ("two #3: acme-smi: Acme Two",)
    assert fine.examined == "fine:two"
    assert fine.toolchain == "acc was not found. Looked at: $ACC_HOME (not set)"


def test_what_a_detector_answered_is_shown_even_when_it_failed(report):
    (backend,) = [backend for backend in report.backends if backend.vendor == "hookraises"]
    assert backend.detector == (
        "failed: tilehal_detect of tilehal-hookraises 1.2.3 failed: raised OSError: driver mismatch",
    )


def test_the_compilers_imports_are_shown_with_file_and_owner(report):
    by_module = {one.module: one for one in report.imports}
    assert [one.status for one in report.imports] == ["ok"] * 4
    assert by_module["tilelang"].distribution.startswith("tilelang 0.1")
    assert by_module["tilelang"].file.endswith("tilelang/__init__.py")
    assert by_module["tvm"].detail == "shipped inside tilelang"
    assert by_module["tvm_ffi"].distribution.startswith("apache-tvm-ffi ")


@pytest.mark.parametrize(
    ("part", "line", "raised"),
    [
        ("tilehal-raising", "raise ImportError('libacme.so.3 is missing')", "ImportError: libacme.so.3 is missing"),
        ("fine-sign", "import nowhere", "ModuleNotFoundError: No module named 'nowhere'"),
        ("driver mismatch", "raise OSError('driver mismatch')", "OSError: driver mismatch"),
    ],
)
def test_code_that_raised_is_shown_with_its_traceback_from_its_own_first_line(report, part, line, raised):
    [found] = [one for one in report.findings if part in one.message and one.code.startswith("plugin-")]
    _, first, source, *_ = found.details["traceback"].splitlines()
    assert first.lstrip().startswith("File ")
    assert "fake_" in first
    assert source.strip() == line
    assert found.details["traceback"].splitlines()[-1] == raised


def test_errors_come_first_and_decide_the_exit_status(report):
    severities = [finding.severity for finding in report.findings]
    assert severities == sorted(severities, key=["error", "warning", "info"].index)
    assert report.problems == severities.count("error") > 0
    assert report.exit_status == 1


def test_it_is_json(report):
    data = json.loads(json.dumps(report.to_json()))
    assert data["problems"] == report.problems
    assert {finding["code"] for finding in data["findings"]} == {finding.code for finding in report.findings}


def test_a_real_backend_next_to_all_this_is_loaded(report):
    assert status_of(report, next(p.package for p in report.plugins if p.target == "cpu")).status == "loaded"


class TestCommand:
    @pytest.fixture(autouse=True)
    def one_backend(self, light, monkeypatch, tmp_path):
        monkeypatch.setenv("TILEHAL_LOAD_PLUGINS", "fine")
        monkeypatch.setenv("TILEHAL_CACHE_DIR", str(tmp_path / "cache"))
        write_backend(light, "fine", DETECTS)

    def test_exit_status_0_and_a_readable_page_when_nothing_is_wrong(self, capsys):
        assert run(["doctor"]) == 0
        printed = capsys.readouterr().out
        for part in ("tilehal-fine 1.2.3", "acme-smi: Acme Two", "acme-acc-missing", "No problem found."):
            assert part in printed

    def test_the_page_shows_the_traceback_of_what_failed_to_load(self, light, monkeypatch, capsys):
        write_backend(light, "raising", "raise ImportError('libacme.so.3 is missing')")
        monkeypatch.setenv("TILEHAL_LOAD_PLUGINS", "raising")
        assert run(["doctor"]) == 1
        printed = capsys.readouterr().out
        assert "Traceback (most recent call last):" in printed
        assert "raise ImportError('libacme.so.3 is missing')" in printed

    def test_a_target_chooses_the_chip(self, capsys):
        assert run(["doctor", "--target", "fine:first", "--json"]) == 0
        (backend,) = json.loads(capsys.readouterr().out)["backends"]
        assert backend["examined"] == "fine:one"

    def test_an_unknown_target_is_a_problem(self, capsys):
        assert run(["doctor", "--target", "fine:nine", "--json"]) == 1
        assert "target-unknown" in capsys.readouterr().out
        assert run(["doctor", "--target", "nosuch", "--json"]) == 1
        assert "target-unknown" in capsys.readouterr().out

    def test_a_name_in_the_selection_that_is_not_installed(self, capsys, monkeypatch):
        monkeypatch.setenv("TILEHAL_LOAD_PLUGINS", "fine,fnie")
        run(["doctor", "--json"])
        assert "'fnie', which is not installed" in capsys.readouterr().out

    def test_no_backend_is_a_problem(self, capsys, monkeypatch):
        monkeypatch.setenv("TILEHAL_LOAD_PLUGINS", "")
        assert run(["doctor", "--json"]) == 1
        codes = [finding["code"] for finding in json.loads(capsys.readouterr().out)["findings"]]
        assert "plugin-none" in codes
        assert "plugin-left-out" in codes


def test_every_code_is_a_lower_case_name_with_a_meaning():
    for code, (severity, meaning) in CODES.items():
        assert code == code.lower()
        assert " " not in code
        assert severity in ("error", "warning", "info")
        assert meaning
