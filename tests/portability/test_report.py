"""What each chip makes of each line of a kernel."""

from __future__ import annotations

import json

import pytest

import core
from core.hardware import Chip, MemorySpace
from core.portability import Remark, Status, report
from core.portability.model import worst
from core.portability.tracing import traced_program
from core.program import Program
from tests.portability import kernels
from tests.portability.kernels import line_of
from tests.users_ask.kernels import in_shared


def judged(prim_func, *targets):
    return report(Program(prim_func), [core.chip(target) for target in targets])


def remarks_at(found, target: str, mark: str) -> tuple[Remark, ...]:
    return found.chip(core.chip(target).target).line(line_of(mark)).remarks


def verdict(prim_func, target: str, mark: str) -> tuple[Status, tuple[str, ...]]:
    """The status of the marked line and the rules behind it."""
    line = judged(prim_func, target).chips[0].line(line_of(mark))
    return line.status, tuple(remark.rule for remark in line.remarks)


@pytest.mark.parametrize(
    ("dtype", "accumulator", "target", "status", "rules"),
    [
        ("float16", "float32", "cuda:h200", Status.NATIVE, ()),
        ("float16", "float32", "metax:c500", Status.NATIVE, ()),
        ("float16", "float32", "ascend:910b3", Status.NATIVE, ()),
        ("float16", "float32", "cpu", Status.EMULATED, ("no-matrix-instruction",)),
        ("float16", "float16", "cuda:h200", Status.NATIVE, ()),
        ("float16", "float16", "metax:c500", Status.REFUSED, ("unsupported-op",)),
        ("float8_e4m3fn", "float32", "cuda:h200", Status.NATIVE, ()),
        ("float8_e4m3fn", "float32", "cuda:a100", Status.REFUSED, ("unsupported-op",)),
        ("float8_e4m3fn", "float32", "ascend:910b3", Status.EMULATED, ("no-matrix-instruction",)),
        ("float32", "float32", "cuda:h200", Status.EMULATED, ("float32-product",)),
        ("float32", "float32", "metax:c500", Status.NATIVE, ()),
        ("int8", "int32", "cuda:a100", Status.NATIVE, ()),
        ("int16", "int32", "cuda:h200", Status.EMULATED, ("no-matrix-instruction",)),
    ],
)
def test_a_product_is_native_where_the_chip_has_its_instruction(dtype, accumulator, target, status, rules):
    assert verdict(kernels.product(dtype, accumulator), target, "multiplied") == (status, rules)


def test_a_refused_accumulator_says_what_to_change():
    [remark] = remarks_at(judged(kernels.product("float16", "float16"), "metax:c500"), "metax:c500", "multiplied")
    assert "accumulate these in float32" in remark.message
    assert "give c the dtype float32" in remark.hint


@pytest.mark.parametrize(
    ("kernel", "mark", "target", "status", "rules"),
    [
        (kernels.sliced_reduce, "sliced", "cuda:h200", Status.REFUSED, ("sliced-reduce",)),
        (kernels.sliced_reduce, "sliced", "cpu", Status.NATIVE, ()),
        (kernels.safe_value, "with a safe value", "cuda:h200", Status.EMULATED, ("safe-value-without-tma",)),
        (kernels.safe_value, "with a safe value", "cuda:a100", Status.NATIVE, ()),
        (kernels.symbolic, "symbolic rows", "cuda:h200", Status.EMULATED, ("symbolic-rows-without-tma",)),
        (kernels.narrow_integers, "narrow", "cuda:h200", Status.EMULATED, ("narrow-integers",)),
        (
            kernels.product_from_fragment,
            "from a fragment",
            "cuda:h200",
            Status.REFUSED,
            ("product-operand-in-fragment",),
        ),
        (kernels.product_from_fragment, "from a fragment", "metax:c500", Status.NATIVE, ()),
        (kernels.four_bit, "four bits", "cpu", Status.REFUSED, ("unsupported-op",)),
    ],
)
def test_what_stock_lowering_changes_shows(kernel, mark, target, status, rules):
    assert verdict(kernel(), target, mark) == (status, rules)


class TestPerThreadCode:
    def test_runs_where_there_are_threads(self):
        found = judged(kernels.per_thread(64), "cuda:h200")
        assert found.status is Status.NATIVE

    @pytest.mark.parametrize("target", ["cpu", "ascend:910b3"])
    def test_is_refused_where_a_block_runs_as_a_whole(self, target):
        found = judged(kernels.per_thread(64), target)
        assert [r.rule for r in remarks_at(found, target, "split")] == ["thread-index"]
        assert {r.rule for r in remarks_at(found, target, "shuffled")} == {"thread-index", "opaque-construct"}
        assert found.status is Status.REFUSED

    def test_a_construct_of_one_vendor_is_unknown_on_another(self):
        found = judged(kernels.per_thread(64), "metax:c500")
        assert found.chips[0].line(line_of("shuffled")).status is Status.UNKNOWN

    def test_32_for_the_width_of_a_wave_is_a_warning_where_it_is_64(self):
        found = judged(kernels.per_thread(32), "metax:c500", "cuda:h200")
        [split] = remarks_at(found, "metax:c500", "split")
        assert (split.rule, split.warning, split.status, split.level) == ("wave-width", True, Status.NATIVE, "warning")
        assert "tx // 32" in split.message
        assert "64" in split.message
        assert remarks_at(found, "cuda:h200", "split") == ()

    def test_64_is_no_assumption_of_32(self):
        assert remarks_at(judged(kernels.per_thread(64), "metax:c500"), "metax:c500", "split") == ()

    def test_a_32_that_is_no_wave_is_not_warned_of(self):
        found = judged(kernels.scaled(32), "metax:c500")
        assert [remark for line in found.chips[0].lines for remark in line.remarks] == []


class TestPipelines:
    @pytest.mark.parametrize(
        ("target", "status"),
        [
            ("metax:c500", Status.EMULATED),  # it has asynchronous copies, which only an option uses
            ("cuda:h200", Status.NATIVE),
            ("ascend:910b3", Status.NATIVE),
            ("cpu", Status.NATIVE),
        ],
    )
    @pytest.mark.parametrize("stages", [1, 3])
    def test_stages_are_emulated_where_copies_are_synchronous(self, target, status, stages):
        [chip] = judged(kernels.product("float16", stages=stages), target).chips
        pipelining = [r for line in chip.lines for r in line.remarks if r.rule == "pipelining"]
        assert worst(r.status for r in pipelining) is status

    def test_without_stages_nothing_is_emulated(self):
        [chip] = judged(kernels.product("float16", stages=0), "metax:c500").chips
        assert "pipelining" not in {r.rule for line in chip.lines for r in line.remarks}


def test_a_memory_the_descriptor_does_not_know_is_not_native():
    shared = MemorySpace(name="shared", owner="block", scopes=("shared",), capacity_bytes=65536)
    chip = Chip(vendor="acme", name="one", title="One", memories=(shared,))
    [found] = report(Program(kernels.product("float16")), [chip]).chips
    unserved = {
        r.message.split()[0]: r.status for line in found.lines for r in line.remarks if r.rule == "unserved-scope"
    }
    assert unserved == {"c": Status.UNKNOWN}


class TestCapacity:
    def test_each_memory_with_what_it_needs_and_has(self):
        found = judged(kernels.product("float16", stages=3), "metax:c500", "ascend:910b3", "cuda:h200")
        memories = {(c.target, m.memory): m for c in found.chips for m in c.memories}
        shared = memories["cuda:h200", "shared"]
        assert shared.needed_bytes == 3 * (64 * 32 + 32 * 64) * 2
        assert (shared.limit_bytes, shared.fits) == (232448, True)
        registers = memories["cuda:h200", "registers"]
        assert (registers.limit_bytes, registers.spills, registers.fits) == (None, True, None)
        assert registers.room_bytes == 128 * 255 * 4  # of 128 threads
        assert memories["metax:c500", "registers"].room_bytes == 524_288  # what a thread may have is unknown
        assert memories["ascend:910b3", "l0c"].needed_bytes == 64 * 64 * 4

    def test_too_much_is_refused_with_what_would_fit(self):
        found = judged(kernels.product("float16", stages=9), "metax:c500", "cuda:h200")
        [memory] = [m for m in found.chip("metax:c500").memories if m.memory == "shared"]
        assert memory.fits is False
        assert memory.hint == "it fits with num_stages=8 instead of 9"
        assert found.chip("metax:c500").status is Status.REFUSED
        assert found.chip("cuda:h200").status is Status.NATIVE

    def test_where_the_chips_compiler_plans_memory_too_much_is_not_called_native(self):
        found = judged(in_shared(200), "ascend:910b3")
        [memory] = found.chips[0].memories
        assert (memory.needed_bytes, memory.limit_bytes, memory.fits) == (204_800, 196_608, False)
        assert found.status is Status.UNKNOWN
        assert judged(in_shared(90), "ascend:910b3").status is Status.NATIVE

    def test_a_what_if_chip_is_judged_as_described(self):
        target = "metax:c500+shared=128KiB"
        found = judged(kernels.product("float16", stages=9), target)
        assert found.chips[0].target == target
        assert found.status is Status.EMULATED  # of the pipeline; the room suffices
        assert all(memory.fits is not False for memory in found.chips[0].memories)


def test_what_no_target_can_mean_is_refused_by_all_and_the_rest_is_still_judged():
    found = judged(kernels.past_the_end(), "cpu", "cuda:h200", "ascend:910b3")
    for chip in found.chips:
        assert chip.line(line_of("past the end")).status is Status.REFUSED
        assert chip.line(line_of("still judged")).status is Status.NATIVE


def test_every_statement_has_its_line_with_what_stands_there():
    chip = judged(kernels.product("float16"), "cuda:h200").chips[0]
    assert chip.line(line_of("multiplied")).constructs == ("gemm",)
    assert chip.line(line_of("copied")).constructs == ("copy",)
    assert [line.location.line for line in chip.lines] == sorted(line.location.line for line in chip.lines)
    with pytest.raises(KeyError):
        chip.line(1)


def test_a_chip_that_cannot_be_compiled_for_says_so():
    from core.plugins import Manager, local_entry, use_manager
    from tests.plugins.fakes import FakeVendor

    with use_manager(Manager([local_entry("acme", FakeVendor("acme", "one"), distribution="tilehal-acme")])):
        [chip] = judged(kernels.scaled(2), "acme:one").chips
    assert "tilehal-acme" in chip.compiles
    assert judged(kernels.scaled(2), "cpu").chips[0].compiles == ""


class TestAgreesWithCompiling:
    """The report may never be kinder than `core.compile`."""

    @pytest.mark.parametrize(
        "kernel",
        [
            kernels.sliced_reduce(),
            kernels.product_from_fragment(),
            kernels.past_the_end(),
            kernels.product("float16", "float32", 40),
        ],
    )
    def test_what_is_refused_here_does_not_compile(self, kernel):
        refusals = [line for line in judged(kernel, "cuda:h200").chips[0].lines if line.status is Status.REFUSED]
        with pytest.raises(core.TileHALError) as caught:
            core.compile(kernel, target="cuda:h200", build=False)
        assert caught.value.location in [line.location for line in refusals]

    @pytest.mark.parametrize("target", ["cpu", "cuda:h200", "cuda:a100"])
    @pytest.mark.parametrize(
        "kernel",
        [
            kernels.product("float16"),
            kernels.product("float32"),
            kernels.product("int16", "int32"),
            kernels.safe_value(),
            kernels.narrow_integers(),
            kernels.symbolic(),
        ],
    )
    def test_what_is_not_refused_here_compiles(self, kernel, target):
        assert judged(kernel, target).status in (Status.NATIVE, Status.EMULATED)
        assert core.compile(kernel, target=target, build=False).get_kernel_source()

    def test_emulation_is_what_provenance_tells(self):
        remark = remarks_at(judged(kernels.product("int16", "int32"), "cuda:a100"), "cuda:a100", "multiplied")[0]
        kernel = core.compile(kernels.product("int16", "int32"), target="cuda:a100", build=False)
        assert any(rewrite.startswith(remark.message) for rewrite in kernel.provenance.rewrites)


class TestTilesOfAFactory:
    def test_are_chosen_so_that_every_chip_holds_them(self):
        chips = [core.chip("cuda:h200"), core.chip("metax:c500")]
        program, tiles = traced_program(kernels.tiled, (4096,), {}, chips)
        assert set(tiles) == {"block_M", "threads"}
        assert report(program, chips, tiles=tiles).status is Status.NATIVE

    def test_those_given_are_kept_and_not_listed(self):
        program, tiles = traced_program(kernels.tiled, (), {"M": 4096, "block_M": 192}, [core.chip("cpu")])
        assert set(tiles) == {"threads"}
        assert program.footprint().launches[0].uses[0].bytes == 192 * 4


def test_as_json():
    found = judged(kernels.product("float16", stages=9), "metax:c500", "cpu")
    data = json.loads(json.dumps(found.to_json()))
    assert [chip["target"] for chip in data["chips"]] == ["metax:c500", core.chip("cpu").target]
    assert data["status"] == "refused"
    [line] = [line for line in data["chips"][1]["lines"] if line["line"] == line_of("multiplied")]
    assert line["status"] == "emulated"
    assert line["constructs"] == ["gemm"]
    assert line["remarks"][0]["rule"] == "no-matrix-instruction"
