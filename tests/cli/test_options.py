"""What a command line gives and nothing takes is refused, before any work."""

from __future__ import annotations

import re

import pytest

from core.cli.main import run


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("describe cuda --dtype float16", "a description has no use for --dtype"),
        ("describe cuda --compare --sources", "--compare has no use for --sources"),
        ("describe cuda --verify --compare", "--verify has no use for --compare"),
        ("describe cuda --roofline x.svg --json", "--roofline has no use for --json"),
        ("describe --schema cuda", "--schema has no use for targets"),
        ("describe --list --dtype float16", "name the targets, or use --list alone"),
        ("tune --list --candidates 3 --warm", "--list has no use for --candidates and --warm"),
        ("tune --import x.json --target cpu", "--import has no use for --target"),
        ("tune --clear --fastest 3", "--clear has no use for --fastest"),
        ("tune k.py:f --fastest 3", "--fastest goes with --export"),
        ("bench --from x.json --target cpu gemm", "--from has no use for operator and --target"),
        ("bench --jobs 0", "--jobs"),
        ("compile k.py:f --output x.cpp", "--output is where --emit writes"),
        ("portability k.py:f --target ,", "--target names no chip"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(words, said, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert run(words.split()) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("words", ["cuda --json --sources", "--compare cuda metax --json", "--schema --json"])
def test_an_option_that_says_what_is_so_anyway_is_not(words, capsys):
    assert run(["describe", *words.split()]) == 0


@pytest.mark.parametrize(
    "words", ["bench --picture", "baseline compare live live --picture", "describe cuda --roofline"]
)
@pytest.mark.parametrize("name", ["x.txt", "x"])
def test_a_picture_of_no_format_is_refused_before_anything_is_measured(words, name, tmp_path, capsys):
    assert run([*words.split(), str(tmp_path / name)]) == 2
    assert re.search(r"cannot\W+be\W+drawn", capsys.readouterr().err)
    assert list(tmp_path.iterdir()) == []
