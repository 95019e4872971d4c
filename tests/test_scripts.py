"""`scripts/`: programs that people start by hand, mostly on a GPU, still fit the package they call.

What needs a GPU there runs here on the CPU, on small problems, with a stand-in for what torch offers of CUDA; the
kernels are the CPU's. Their figures mean nothing: what is tested is that every call is still taken.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import gzip
import importlib
import json
import logging
import queue
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

import core
import core.bench.measuring
import core.tuning.measure
from core.errors import BuildFailed
from core.ops import _calling, functional
from core.runtime.kernel import Kernel
from core.tiling.factory import KernelFactory
from tests.packaging.layout import ROOT

SCRIPTS = sorted(path.stem for path in (ROOT / "scripts").glob("*.py"))
#: Run by `make`, without arguments: `tests/test_bootstrap.py`.
BY_MAKE = "bootstrap"
#: What others of them import; they start nothing.
LIBRARIES = {"feasibility_cases", "mla_launches"}
PROGRAMS = [name for name in SCRIPTS if name not in {BY_MAKE, *LIBRARIES}]
EXPLORERS = [name for name in PROGRAMS if name.startswith("explore_")]


def script(name: str) -> Any:
    """The script as a module."""
    return importlib.import_module(f"scripts.{name}")


# ---------------------------------------------------------------------------------------------------- starting them

#: Runs each program as `python PATH --help` does, one after the other; prints what was wrong, by name.
HELP = """
import contextlib, io, json, runpy, sys, traceback
failures = {}
before = list(sys.path[1:])
for path in sys.argv[1:]:
    name = path.rpartition("/")[2]
    # What an earlier one found by a path of its own, the next has to find itself.
    for module in [m for m in sys.modules if m.partition(".")[0] in ("scripts", "tests")]:
        del sys.modules[module]
    sys.path[:] = [path.rpartition("/")[0], *before]
    arguments, sys.argv = sys.argv, [path, "--help"]
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            runpy.run_path(path, run_name="__main__")
        failures[name] = "it did not stop after its help"
    except SystemExit as end:
        if end.code or name not in said.getvalue():
            failures[name] = f"status {end.code}: {said.getvalue()}"
    except BaseException:
        failures[name] = traceback.format_exc()
    sys.argv = arguments
print(json.dumps(failures))
"""


def test_every_program_starts_from_any_folder_and_shows_its_help(tmp_path: Path) -> None:
    paths = [str(ROOT / "scripts" / f"{name}.py") for name in PROGRAMS]
    command = [sys.executable, "-c", HELP, *paths]
    finished = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout.splitlines()[-1]) == {}


class _Parsed(Exception):
    """A command line was understood; nothing runs."""


@pytest.mark.parametrize(
    "path", [*(ROOT / "scripts").glob("*.py"), *(ROOT / "demo").glob("*.py")], ids=lambda p: p.name
)
def test_every_option_has_help(path: Path) -> None:
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    options = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument"]
    silent = [ast.unparse(call.args[0]) for call in options if "help" not in [word.arg for word in call.keywords]]
    assert not silent


def parsed(name: str, words: list[str], monkeypatch: pytest.MonkeyPatch) -> argparse.Namespace:
    """What the program makes of a command line; SystemExit where it does not take it."""
    take = argparse.ArgumentParser.parse_args

    def stop(self: argparse.ArgumentParser) -> None:
        raise _Parsed(take(self, words))

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", stop)
    with pytest.raises(_Parsed) as found:
        script(name).main()
    options: argparse.Namespace = found.value.args[0]
    return options


#: A command line in a code block; between backticks, perhaps over two lines; in the marker of what a script writes.
FORMS = (
    r"^[^`\n]*python scripts/(\w+)\.py([^`\n#]*)",
    r"`[^`\n]*scripts/(\w+)\.py([^`]*)`",
    r"\(scripts/(\w+)\.py([^)`]*)\)",
)


def commands() -> Iterator[tuple[str, str]]:
    """(script, arguments) of every command line that a page or a script's own text shows."""
    texts = [page.read_text() for page in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"))]
    texts += [ast.get_docstring(ast.parse(path.read_text())) or "" for path in (ROOT / "scripts").glob("*.py")]
    for text in texts:
        for form in FORMS:
            for name, arguments in re.findall(form, text, re.MULTILINE):
                yield name, " ".join(arguments.split())


def test_every_command_that_is_shown_is_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = {(name, arguments) for name, arguments in commands() if name in PROGRAMS and arguments}
    assert len(shown) >= 25
    assert {name for name, _ in shown} >= {"check_operators", "gpu_sweep", *EXPLORERS}
    for name, arguments in sorted(shown):
        words = arguments.replace("[", "").replace("]", "").split()
        with monkeypatch.context() as patch:
            try:
                parsed(name, words, patch)
            except SystemExit:
                pytest.fail(f"scripts/{name}.py {arguments}: {capsys.readouterr().err}")


@pytest.mark.parametrize("name", EXPLORERS)
def test_what_explores_compiles_without_a_device_when_told_to(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert parsed(name, ["--dry"], monkeypatch).dry


# -------------------------------------------------------------------------------------- configurations that are tried


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Compiles nothing: checks every argument and tile parameter, and traces one kernel of each variant.

    What was asked for, in order: (kernel, variant).
    """
    found: list[tuple[str, str]] = []
    kernel = SimpleNamespace(resources=SimpleNamespace(actual=None))

    def compile_factory(self: KernelFactory, *args: Any, target: str, build: bool, **given: Any) -> Any:
        arguments, tiles = self.arguments(args, given), self.given_tiles(given)
        assert core.chip(target)
        assert build
        assert set(tiles) == set(self.parameters), "a rule would choose the rest"
        one = (self.name, str(tiles.get("variant")))
        if one not in found:
            self.trace(arguments, tiles)
        found.append(one)
        return kernel

    def compile_program(program: Any, *, target: str, build: bool, **_: Any) -> Any:
        assert core.chip(target)
        assert build
        found.append(("program", program.attrs["global_symbol"]))
        return kernel

    monkeypatch.setattr(KernelFactory, "compile", compile_factory)
    monkeypatch.setattr(core, "compile", compile_program)
    return found


def once_each(labels: list[str]) -> None:
    assert labels
    assert len(set(labels)) == len(labels), "two configurations are shown alike"


def test_every_attention_that_is_explored_is_a_kernel(asked: list[tuple[str, str]]) -> None:
    explore = script("explore_attention")
    for shape in explore.SHAPES.values():
        tried = list(explore.configurations(shape["dim"], 132))
        once_each([explore.label(tiles) for tiles in tried])
        for tiles in tried:
            explore.compiled(shape, tiles, "cuda:h200")
    assert {variant for _, variant in asked} == {"overlapped", "ping_pong", "pipelined"}


def test_every_latent_attention_that_is_explored_is_a_kernel(asked: list[tuple[str, str]]) -> None:
    explore = script("explore_mla")
    for name in explore.SHAPES:
        tried = explore.configurations(name)
        for tiles in tried:
            explore.kernel_of(name, tiles, "cuda:h200")
            assert explore.read_bytes(explore.SHAPES[name], tiles) > 0
        once_each([explore.label(tiles) for tiles in tried])
    assert {variant for kernel, variant in asked if kernel == "mla_decode"} == {
        "pipelined",
        "two_groups",
        "two_groups_in_turn",
    }


def test_every_launch_of_latent_attention_that_is_taken_apart_is_a_kernel(asked: list[tuple[str, str]]) -> None:
    explore = script("explore_mla")
    for name in explore.APART_SPLITS:
        tried = explore.launches_apart(name)
        once_each([explore.label(tiles) for tiles in tried])
        assert all(explore.read_bytes(explore.SHAPES[name], tiles) > 0 for tiles in tried)
    # These are traced to be asked for.
    for launch in ("attend", "combine"):
        explore.kernel_of(name, next(tiles for tiles in tried if tiles.get("launch") == launch), "cuda:h200")
    assert [kernel for kernel, _ in asked] == ["program", "program"]


def test_every_product_that_is_explored_is_a_kernel(asked: list[tuple[str, str]]) -> None:
    explore = script("explore_gemm")
    for number, shape in enumerate(explore.SHAPES):
        layout = ("nn", "nt", "tn", "tt")[number % 4]
        options = argparse.Namespace(layout=layout, dtype="bfloat16", target="cuda:h200")
        tried = explore.configs(*shape, 132)
        once_each([explore.label(config) for config in tried])
        traced = set()
        for config in tried:
            # These two are traced to be asked for: one of each kind and shape.
            if config["kind"] in ("warpgroups", "split") and config["kind"] in traced:
                continue
            traced.add(config["kind"])
            explore.kernel_for(shape, config, options)
    assert {variant for kernel, variant in asked if kernel == "gemm"} == {"tiled", "warp_specialized"}
    assert sum(kernel == "program" for kernel, _ in asked) >= len(explore.SHAPES)


def test_every_row_operator_that_is_explored_is_a_kernel(asked: list[tuple[str, str]]) -> None:
    explore = script("explore_rows")
    for operator in explore.OPERATORS:
        for shape in explore.SHAPES:
            tried = list(explore.configs(operator, shape[1], 132))
            once_each([explore.label(config) for config in tried])
            assert {explore.kind(config) for config in tried} == set(explore.VARIANTS)
            for config in tried:
                explore.kernel_for(operator, shape, config, "cuda:h200")
    assert set(asked) == {(name, variant) for name in explore.OPERATORS for variant in ("staged", "direct", "bulk")}


def test_every_kernel_whose_registers_are_compared_is_one(asked: list[tuple[str, str]]) -> None:
    compare = script("compare_registers")
    for kernel in compare.kernels(["rows", "products", "attention"]):
        module, _, name = kernel["operator"].partition(".")
        factory = getattr(importlib.import_module(f"core.ops.{module}"), name)
        factory.compile(**kernel["arguments"], **kernel["tiles"], target=kernel["target"], build=True)
    assert {name for name, _ in asked} == {"softmax", "layernorm", "rmsnorm", "add_rmsnorm", "gemm", "attention"}


def test_registers_are_estimated_where_nothing_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    compare = script("compare_registers")
    taken = SimpleNamespace(registers_per_thread=40, spill_store_bytes=0)
    built = SimpleNamespace(resources=SimpleNamespace(actual=taken))
    monkeypatch.setattr(KernelFactory, "compile", lambda *_, **__: built)
    row = compare.compare(next(compare.kernels(["rows"])))
    assert 16 <= row["estimated"] <= 255
    assert (row["taken"], row["spilled"]) == (40, 0)


def test_every_shape_whose_first_choice_is_shown_is_taken_whole_and_reduced() -> None:
    choices = script("first_choices")
    for operator, arguments in choices.shapes():
        factory = choices.factory_of(operator)
        factory.arguments((), arguments)
        tiles = dict.fromkeys(factory.parameters, 64)
        choice = choices.Choice("metax:c500", operator, arguments, tiles, 1, 0, "memory", 1.0, {})
        factory.arguments((), choices.reduced(choice))


def test_a_first_choice_is_made_and_shown(tmp_path: Path) -> None:
    choices = script("first_choices")
    choice = choices.choose("metax:c500", "softmax", {"M": 256, "N": 512}, build=False, simulate=False)
    assert choice.sound
    page = tmp_path / "page.md"
    page.write_text(f"before\n{choices.BEGIN} -->\nold\n{choices.END}\nafter\n")
    choices.write(page, [choice])
    text = page.read_text()
    assert text.startswith(f"before\n{choices.BEGIN} -->\n\n| operator |")
    assert text.endswith(f"\n\n{choices.END}\nafter\n")
    assert "| softmax | M=256 N=512 |" in text
    assert "old" not in text


def test_every_case_that_is_swept_is_a_kernel() -> None:
    sweep = script("gpu_sweep")
    labels = []
    for case in sweep.cases():
        factory, arguments = sweep.factory_and_arguments(case)
        factory.arguments((), arguments)
        labels.append(case.label)
    once_each(labels)


def test_configurations_are_drawn_and_the_record_still_reads() -> None:
    feasibility, cases = script("feasibility"), script("feasibility_cases")
    for operator, _, arguments in cases.cases([], []):
        cases.factory_of(operator).arguments((), arguments)
    drawn = list(cases.drawn("softmax", "cuda:a100", {"M": 65536, "N": 500}, count=2))
    assert {one.accepted for one in drawn} == {True, False}
    assert feasibility._program(drawn[0].operator, drawn[0].arguments, drawn[0].tiles).signature


# ------------------------------------------------------------------------------------------- what runs on the device


class _Event:
    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing
        self.at = 0.0

    def record(self) -> None:
        self.at = time.perf_counter()

    def synchronize(self) -> None:
        assert self.at

    def elapsed_time(self, end: _Event) -> float:
        return (end.at - self.at) * 1e3 + 1e-3


class _Graph:
    """What is called while it is recorded runs at once; a replay does nothing."""

    def replay(self) -> None:
        pass


class _OnCpu(TorchFunctionMode):
    """Puts what is asked for on `cuda` on the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = dict(kwargs or {})
        if str(given.get("device", "")).startswith("cuda"):
            given["device"] = "cpu"
        return func(*args, **given)


def briefly(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that measures: on the CPU, and hardly at all."""

    def call(work: Any, device: Any, **options: Any) -> Any:
        assert torch.device(device).type in ("cpu", "cuda")
        return function(work, "cpu", **{**options, "warmup_ms": 0.0, "repeat_ms": 0.1, "least_samples": 2})

    return call


@pytest.fixture
def cuda_is_the_cpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """torch's CUDA as far as the scripts use it, on the CPU; measuring takes no time."""
    stand_ins = {"Event": _Event, "CUDAGraph": _Graph, "graph": contextlib.nullcontext, "synchronize": lambda: None}
    for name, stand_in in stand_ins.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    monkeypatch.setattr(torch.nn.attention, "sdpa_kernel", contextlib.nullcontext)
    for name in ("measure", "measure_together"):
        monkeypatch.setattr(core.tuning.measure, name, briefly(getattr(core.tuning.measure, name)))
    rotated = core.bench.measuring.rotated
    monkeypatch.setattr(core.bench.measuring, "rotated", lambda one, _: rotated(one, torch.device("cpu")))
    with _OnCpu():
        yield


def events(said: str) -> list[dict[str, Any]]:
    """What a child said: a JSON object a line."""
    return [json.loads(line) for line in said.splitlines()]


def test_attention_is_checked_timed_and_shown(
    cuda_is_the_cpu: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    explore = script("explore_attention")
    shape = {"batch": 1, "heads": 2, "kv_heads": 1, "M": 64, "N": 64, "dim": 64, "causal": True}
    monkeypatch.setitem(explore.SHAPES, "small", shape)
    tiles = explore.configuration(64, 64, 1, 128, "pipelined", 0)
    row = explore.compile_row("small", tiles, "cpu")
    assert row["status"] == "built", row
    capsys.readouterr()
    assert explore.child("small", [tiles], [], "cpu", None) == 0
    said = events(capsys.readouterr().out)
    assert [event["event"] for event in said] == ["preparing", "start", "done", "final"]
    assert set(said[-1]["times"]) == {explore.CUDNN, explore.FLASH, explore.label(tiles)}
    monkeypatch.setattr(explore, "run_child", lambda *_: said)
    final = explore.time_shape("small", [row], argparse.Namespace(), None)
    assert row["status"] == "ok", row
    explore.report("small", [row], final)
    assert f"x cuDNN  spread {final['times'][explore.FLASH]['spread']:.3f}  {explore.FLASH}" in capsys.readouterr().out


def test_latent_attention_is_checked_timed_and_shown(
    cuda_is_the_cpu: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    explore = script("explore_mla")
    monkeypatch.setitem(explore.SHAPES, "small", {"batch": 2, "M": 16, "N": 128})
    apart = {"launch": "combine", "splits": 2, "together": 2, "parts": 1, "threads": 128}
    tried = [explore._tiles(16, 64, 1, 64, "pipelined", 2), apart]
    rows = [explore.compile_row({"shape": "small", "tiles": tiles}, "cpu") for tiles in tried]
    assert [row["status"] for row in rows] == ["built", "built"], rows
    capsys.readouterr()
    ceilings = {"bytes_per_s": 1e10, "read_bytes_per_s": 1e10, "ops_per_s": {"float16": 1e11}}
    monkeypatch.setattr("core.bench.ceilings.measure_ceilings", lambda *_, **__: ceilings)
    assert explore.child({"rows": {"small": rows}, "target": "cpu"}) == 0
    said = events(capsys.readouterr().out)
    assert [row["status"] for row in rows] == ["right", "right"], rows
    assert said[-1]["event"] == "measured"
    assert set(said[-1]["times"]["kernels"]) == {explore.label(tiles) for tiles in tried}
    explore.report("small", rows, said[-1]["times"])
    assert "of bound" in capsys.readouterr().out


def test_what_the_launches_of_latent_attention_say_is_concluded() -> None:
    explore = script("explore_mla")
    for name in explore.APART_SPLITS:
        tried = explore.launches_apart(name)
        kernels = {explore.label(one): {"median_s": 1e-5 * (2 + number)} for number, one in enumerate(tried)}
        assert len(explore.conclusion(name, kernels)) == 4
        kernels.popitem()
        assert len(explore.conclusion(name, kernels)) == 1


def test_products_are_checked_timed_and_settled(cuda_is_the_cpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    explore = script("explore_gemm")
    monkeypatch.setattr(explore, "ROTATED_BYTES", 4e4)
    options = argparse.Namespace(layout="nt", dtype="float16", target="cpu")
    shape, config = (32, 64, 64), explore._tiles("32x32x32", 1, 128)
    assert explore.prepare((shape, config, options))["status"] == "built"
    said: list[dict[str, Any]] = []
    work = [{"shape": list(shape), "todo": [config], "good": []}]
    explore.time_shape(work[0], options, said.append)
    assert [next(iter(event)) for event in said] == ["start", "shape", "final"], said
    assert said[1]["status"] == "ok", said
    explore.settle(work, said[1])
    assert (work[0]["todo"], len(work[0]["good"])) == ([], 1)
    explore.settle(work, said[2])
    assert work == []
    assert set(explore.clusters_of_device()) == {"error"} or torch.cuda.is_available()
    assert explore.environment()["torch"] == torch.__version__


def test_rows_are_checked_timed_and_shown(cuda_is_the_cpu: None, capsys: pytest.CaptureFixture[str]) -> None:
    explore = script("explore_rows")
    config = explore.configuration("staged", 512, 4, 128)
    built = explore.prepare(("layernorm", (64, 512), config, "cpu"))
    assert explore.fits(built, "layernorm", (64, 512)), built
    item = {"operator": "layernorm", "shape": [64, 512], "configs": [config]}
    said: list[dict[str, Any]] = []
    explore.measure_row(item, argparse.Namespace(target="cpu"), said.append)
    assert [next(iter(event)) for event in said] == ["start", "start", "done"], said
    assert set(said[-1]["finals"]) >= {explore.COPY, explore.label(config)}
    explore.print_built([built], everything=True)
    explore.print_finals([{**item, **said[-1]}])
    assert capsys.readouterr().out.count(explore.label(config)) == 2


def test_a_candidate_is_swept(cuda_is_the_cpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = script("gpu_sweep")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("SWEEP_TARGET", "cpu")
    monkeypatch.setattr(sweep, "ROTATED_BYTES", 1e5)
    case = sweep.Case("attention", {"batch": 1, "heads": 2, "kv_heads": 1, "length": 64, "dim": 32, "causal": False})
    built = sweep._compile(case, sweep.enumerate_case(case, 0.1)[0]["tiles"])
    assert built["status"] == "built", built
    work: queue.Queue[Any] = queue.Queue()
    results: queue.Queue[Any] = queue.Queue()
    for item in ((7, case, built), None):
        work.put(item)
    sweep._timing_child(0, work, results)
    assert results.get()[:3] == ("start", 0, 7)
    kind, _, _, row = results.get()
    assert (kind, row["status"]) == ("done", "ok"), row
    assert sweep.environment()["target"] == "cpu"


def test_a_kernel_of_the_corpus_is_evaluated_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = script("gpu_corpus")
    monkeypatch.setattr(logging, "disable", lambda _: None)
    name = next(name for name in corpus.entries() if name.startswith("control."))
    assert corpus.child([name], "cpu", "cpu", tmp_path / "results") == 0
    (outcome,) = events((tmp_path / "results").read_text())
    assert outcome["expected"], outcome
    corpus.show(outcome)
    assert name in capsys.readouterr().out
    assert corpus.environment(argparse.Namespace(target="cpu", device="cpu"))["torch"] == torch.__version__


# ---------------------------------------------------------------------------------------------- every operator, built


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`check_operators.py`, which builds in a thread instead of processes."""
    module = script("check_operators")
    monkeypatch.setattr(module, "ProcessPoolExecutor", lambda jobs, mp_context: ThreadPoolExecutor(1))
    return module


def run_check(check: Any, monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["check_operators.py", "--target", "cpu", "--cases", "1", "--jobs", "1", *words])
    status: int = check.main()
    return status


def test_every_operator_is_checked(check: Any) -> None:
    functions = set(functional.__all__) - {"forget", "kernels"}
    # What the others are made of, and what is made of them.
    assert {name.partition(",")[0] for name in check.MAKERS} == functions - {"activation", "gated_activation", "linear"}
    for case in check.cases(0, 2, []):
        tensors = check.inputs(case, "cpu", 0) if case.operator != "gemm" else {}
        assert set(tensors) in (set(), set(case.shapes))


def test_what_computes_right_passes_and_what_does_not_fails(
    check: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--operators", "relu", "gelu_and_mul", "--json", str(tmp_path / "rows.json"))
    assert run_check(check, monkeypatch, *words) == 0
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert [row["status"] for row in rows] == ["ok", "ok"]
    right = check.reference
    monkeypatch.setattr(check, "reference", lambda *call: right(*call) * 1.1)
    assert run_check(check, monkeypatch, *words) == 1
    assert "wrong relu" in capsys.readouterr().out


def test_what_does_not_build_is_named_and_fails(
    check: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    build = Kernel.build

    def fails(self: Kernel) -> Any:
        if self.program.name == "softmax":
            raise BuildFailed("planted", hint="none")
        return build(self)

    monkeypatch.setattr(_calling, "_kernels", {})
    monkeypatch.setattr(Kernel, "__call__", lambda *_: pytest.fail("it ran"))
    assert run_check(check, monkeypatch, "--build-only", "--operators", "relu") == 0
    assert "built 1 of 1" in capsys.readouterr().out
    monkeypatch.setattr(Kernel, "build", fails)
    assert run_check(check, monkeypatch, "--build-only", "--operators", "relu", "softmax") == 1
    said = capsys.readouterr().out
    assert said.startswith("does not build: softmax ")
    assert "BuildFailed: planted" in said
    assert "built 1 of 2" in said


def test_a_call_inside_building_builds_for_a_chip_that_is_not_here_and_runs_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built: list[str] = []
    monkeypatch.setattr(_calling, "_kernels", {})
    monkeypatch.setattr(Kernel, "build", lambda self: built.append(self.target))
    x, out = torch.randn(4, 64).half(), torch.full((4, 64), 7.0).half()
    with _calling.building():
        assert functional.relu(x, out=out, target="cuda:h200") is out
        assert functional.relu(x, target="cuda:h200").shape == x.shape
    assert built == ["cuda:h200", "cuda:h200"]
    assert (out == 7).all()
    with pytest.raises(core.TileHALError), _calling.building():
        functional.relu(x, target="no-such-chip")
    assert not _calling._calling.builds_only


# ---------------------------------------------------------------------------------------------------------- figures


def test_what_ranking_costs_is_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    costs = script("measure_ranking")
    for module, arguments, _ in costs.OPERATORS.values():
        getattr(importlib.import_module(f"core.ops.{module}"), module).arguments(arguments, {})
    monkeypatch.setenv("TILEHAL_CACHE_DIR", str(tmp_path))  # is put back
    row = costs.measure("softmax", "metax:c500", 1)
    assert row.traces > 1
    assert row.process_s < row.first_s


def test_what_compiling_costs_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    costs = script("measure_compile")
    monkeypatch.setenv("TILEHAL_CACHE_DIR", str(tmp_path))
    found = costs.cached_compile(1)
    assert [one.samples for one in found] == [1, 1]
    costs.show(found, 0.0)
    assert "core.compile, cached" in capsys.readouterr().out


def test_the_record_of_what_fits_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    record = ROOT / "tests" / "tiling" / "data" / "feasibility.json.gz"
    rows = json.loads(gzip.decompress(record.read_bytes()))
    assert script("feasibility").report(rows)
    assert "accepted that do not build, fit or launch: 0" in capsys.readouterr().out
    worse = [{**row, "outcome": "over"} if row["accepted"] else row for row in rows]
    assert not script("feasibility").report(worse)


def test_both_kernels_of_the_planted_slowdown_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    planted = script("baseline_planted")
    monkeypatch.setenv(planted.VARIABLE, "1.1")
    plain, longer = (
        factory.trace({"M": 4, "N": 128}, {"threads": 128}).prim_func.script()
        for factory in (planted.steady, planted.slowed)
    )
    assert f"range({planted.STEPS})" in plain
    assert f"range({round(planted.STEPS * 1.1)})" in longer


def test_a_topic_of_the_metax_page_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    import tests.kernels

    case = tests.kernels.all_kernels("control")[0]
    on_the_cpu = case.compile("cpu")
    monkeypatch.setattr(type(case), "compile", lambda *_, simulate: on_the_cpu)
    monkeypatch.setattr(tests.kernels, "TOPICS", ("control",))
    monkeypatch.setattr(tests.kernels, "all_kernels", lambda: [case])
    assert "| control | 1 | 1 |" in script("metax_corpus").table()
