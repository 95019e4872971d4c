"""What a document looks like: on a terminal, in a page, in a picture."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from core.bench.case import suite
from core.bench.goals import judge
from core.bench.picture import draw_operators
from core.bench.rendering import BEGIN, END, about, into_page, markdown, renderables, typed
from core.errors import BenchError
from tests.bench.documents import all_rows, document, row

CASE = suite("small", ["softmax"])[0]


def printed(document, width=160):
    out = Console(file=io.StringIO(), width=width)
    for part in renderables(document):
        out.print(part)
    return out.file.getvalue()


@pytest.fixture
def measured():
    found = document(all_rows())
    case = suite("small", ["softmax"])[0]
    found["rows"].append(row(case, {"copy": 0.9}, triton={"status": "not measured", "reason": "no Triton"}))
    found["goals"] = [goal.to_json() for goal in judge(found)]
    return found


def test_a_terminal_gets_every_row_with_its_ratio(measured):
    text = printed(measured)
    assert text.count("cuBLAS") >= 18
    assert "1.020x [1.018, 1.022]" in text
    assert "Triton: no Triton (64x256)" in text
    assert "slowed by: power limit in 20% of the readings" in text
    assert "not met" in text


def test_a_contender_without_a_figure_in_any_row_is_named_once_with_its_reason():
    found = document([])
    absent = {"status": "not measured", "reason": "Triton has no CPU backend"}
    found["rows"] = [row(case, {"copy": 0.9}, triton=absent) for case in suite("small", ["softmax"])]
    screen = printed(found)
    for text in (screen, markdown(found)):
        assert text.count("Triton has no CPU backend") == 1
        assert text.count("not measured") == 1


def test_triton_stands_in_a_row_twice_and_the_second_has_a_figure_without_a_goal(measured):
    screen = printed(measured, width=200)
    for text in (screen, markdown(measured)):
        assert "1.020x Triton over 4, 1.020x Triton overlapped over 4" in text
        assert re.search(r"no goal *\|? softmax: geometric mean beside Triton overlapped", text)
    cells = [line.split(" | ")[1] for line in markdown(measured).splitlines() if line.startswith("|") and "x " in line]
    assert cells.count("Triton") == cells.count("Triton overlapped") == 12


def test_markdown_has_the_command_a_table_for_each_operator_and_the_goals(measured):
    text = markdown(measured)
    assert text.startswith("```text\ntilehal bench\n```")
    assert [line[4:] for line in text.splitlines() if line.startswith("### ")] == [
        *("gemm", "softmax", "layernorm", "rmsnorm", "attention", "mla", "goals")
    ]
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        widths = {line.count("|") for line in block.strip().splitlines()}
        assert len(widths) == 1, block
    first = next(line for line in text.splitlines() if line.startswith("| 4096x4096x4096 float16 | ours"))
    seconds = measured["rows"][0]["contenders"]["tilehal"]["cold"]["median_s"]
    rate = 2 * 4096**3 / seconds / 1e12
    assert f"| {seconds * 1e6:.4g} |" in first
    assert f"{rate:.4g} TFLOP/s | 90.0% |" in first


def test_ceilings_say_what_they_are_of(measured):
    assert "4000 GB/s (a copy), 4200 GB/s (a sum, which only reads), 700 TFLOP/s float16" in "\n".join(about(measured))
    del measured["ceilings"]["read_bytes_per_s"]  # of an earlier run
    assert "4000 GB/s (a copy), 700 TFLOP/s float16" in "\n".join(about(measured))


def test_a_command_is_told_without_where_its_files_lay(measured):
    words = ["tilehal", "bench", "mla", "--json", "/elsewhere/bench.json", "--picture=/a b/c d.svg", "--seed=5"]
    told = "tilehal bench mla --json bench.json '--picture=c d.svg' --seed=5"
    assert typed(words) == told
    relative = ["tilehal", "bench", "--markdown", "docs/performance.md"]
    assert typed(relative) == "tilehal bench --markdown docs/performance.md"
    measured["command"] = "tilehal bench mla --json /elsewhere/bench.json '--picture=/a b/c d.svg' --seed=5"
    assert markdown(measured).startswith(f"```text\n{told}\n```")


def test_a_page_keeps_what_stands_around_the_marks():
    page = f"# Title\n\n{BEGIN}\nold\n{END}\n\nend\n"
    once = into_page(page, "new\n")
    assert once == f"# Title\n\n{BEGIN}\n\nnew\n\n{END}\n\nend\n"
    assert into_page(once, "new\n") == once
    assert into_page("# Title\n", "new") == f"# Title\n\n{BEGIN}\n\nnew\n\n{END}\n"
    assert into_page("", "new") == f"{BEGIN}\n\nnew\n\n{END}\n"


def test_the_picture_has_a_point_for_each_row_and_is_the_same_each_time(measured, tmp_path):
    draw_operators(measured, tmp_path / "a.svg")
    draw_operators(measured, tmp_path / "b.svg")
    text = (tmp_path / "a.svg").read_text()
    assert "cuda:h200: NVIDIA H200<" in text
    assert text == (tmp_path / "b.svg").read_text()
    for label in ("gemm, cuBLAS", "softmax, ours", "attention, cuDNN", "mla, ours", "700 TOP/s float16, 4 TB/s"):
        assert label in text


def test_nothing_measured_is_no_picture(tmp_path):
    case = suite("small", ["gemm"])[0]
    lost = row(case, {})
    lost["contenders"] = {"tilehal": {"status": "failed", "reason": "lost"}}
    with pytest.raises(BenchError, match="no row was measured"):
        draw_operators(document([lost]), tmp_path / "a.svg")


def test_rows_that_were_timed_on_a_busy_cpu_are_marked_and_said_to_be():
    found = document([])
    found["rows"] = [
        {**row(case, {"copy": 0.9}), "others_share": share}
        for case, share in zip(suite("small", ["softmax"]), (0.42, 0.03), strict=True)
    ]
    screen = printed(found, width=200)
    for text in (screen, markdown(found)):
        assert "other processes took up to 42% of its time while 1 of 2 rows were timed on it" in text
        assert "64x256 (busy)" in text
        assert "100x130 (busy)" not in text
    for calm in ({"others_share": None}, {"others_share": 0.09}, {}):
        quiet = {**found, "rows": [{**row(CASE, {"copy": 0.9}), **calm}]}
        assert "busy" not in markdown(quiet)


def test_the_host_s_time_says_which_cpu_it_is_of():
    figures = {"median_us": 3.214, "low_us": 3.2, "high_us": 3.3, "p99_us": 4.0}
    launch = {"host_time_per_call": {"a way": figures}, "not_measured": {"another": "it is not installed"}}
    cpu = {"cpus": 16, "loop_us": 401.1, "slowest_us": 700.4, "moves": 0}
    said = "on the quietest of 16 CPUs: a loop of Python took 401 us there, and 700 us on the slowest"
    for moves, times in ((1, "1 time"), (3, "3 times")):
        moved = {**launch, "cpu": {**cpu, "moves": moves}}
        assert f"{said}; moved {times} to stay on a quiet one" in markdown(document([], moved))
    for chosen in (cpu, None):
        found = document([], {**launch, "cpu": chosen})
        found["goals"] = []
        page, screen = markdown(found), printed(found)
        assert "| a way | 3.21 | 3.20 to 3.30 | 4.00 |" in page
        assert "another not measured: it is not installed" in page
        assert (f"\n\n* {said}\n" in page) is (said in " ".join(screen.split())) is (chosen is cpu)
