"""`tilehal targets`."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

import core
from core.cli.main import run
from core.hardware import Chip, ComputeUnit
from core.plugins import DetectedDevice, Manager, hookimpl, local_entry, use_manager
from tests.plugins.fakes import FakeVendor


@pytest.fixture
def plugins():
    bad = SimpleNamespace(tilehal_detect=hookimpl(lambda: []))
    vendor = FakeVendor("acme", "one", "two", devices=[DetectedDevice("one", 0, "acme-smi")])
    entries = [local_entry("acme", vendor, distribution="tilehal-acme", version="1.0"), local_entry("bad", bad)]
    with use_manager(Manager(entries)) as manager:
        yield manager


def test_chips_that_can_do_the_same_share_a_line(plugins, capsys):
    assert run(["targets"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "acme:one * ONE and 1 more no 1 no 1 no 1 no 1" in lines
    assert not any("acme:two" in line for line in lines)


def test_a_vendor_that_is_not_there_is_named(plugins, capsys):
    assert run(["targets", "nosuch"]) == 2
    assert "there is acme" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("target", ["acme:two", "ACME:TWO", "acme:two+clock=1GHz"])
def test_one_chip_is_listed_by_the_name_it_has_everywhere(plugins, capsys, target):
    two = Chip(vendor="acme", name="two", title="TWO", units=(ComputeUnit(kind="core", count=1, clock_hz=2e9),))
    backend = SimpleNamespace(tilehal_chips=hookimpl(lambda: [two.model_copy(update={"name": "one"}), two]))
    with use_manager(Manager([local_entry("acme", backend)])):
        assert run(["targets", target, "--json"]) == 0
    assert [info["target"] for info in json.loads(capsys.readouterr().out)] == ["acme:two"]


def test_a_chip_that_is_not_there_is_answered_with_those_that_are(plugins, capsys):
    assert run(["targets", "acme:tow"]) == 2
    assert "did you mean acme:two" in " ".join(capsys.readouterr().err.replace("│", " ").split())


@pytest.mark.parametrize("arguments", [["targets", "--all"], ["targets", "acme"]])
def test_one_line_a_chip_and_each_reason_once(plugins, capsys, arguments):
    assert run(arguments) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "acme:one * ONE no 1 no 1 no 1 no 1" in lines
    assert "acme:two TWO no 1 no 1 no 1 no 1" in lines
    assert "1 tilehal-acme 1.0 does not implement tilehal_lower" in lines


def test_a_failed_backend_is_listed_with_its_cause(plugins, capsys):
    run(["targets"])
    printed = " ".join(capsys.readouterr().out.split())
    assert "bad no 2 no 2 no 2 no 2" in printed
    assert "does not implement tilehal_chips" in printed


def test_json_has_what_python_has(plugins, capsys):
    from core.target import targets

    assert run(["targets", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [info.to_json() for info in targets()]


def test_no_backend_at_all_says_what_to_do(capsys):
    with use_manager(Manager([])):
        assert run(["targets"]) == 0
    assert "Install one" in capsys.readouterr().out


def test_a_narrow_terminal_breaks_no_target_and_no_heading(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "60")
    assert run(["targets"]) == 0
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    table = lines[1 : lines.index("", 1)]
    assert table[0].split() == ["target", "chip", "compile", "build", "run", "simulate"]
    assert max(map(len, table)) <= 60
    named = [line.split()[0] for line in table[2:] if not line.startswith("  ")]
    assert named
    assert set(named) <= {info.target for info in core.targets()}
