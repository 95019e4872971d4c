"""Cache keys: everything that changes the code changes the key, and nothing else does."""

from __future__ import annotations

import dataclasses
import enum
import os
import re
import subprocess
import sys
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.compiler import keys
from core.compiler.artifacts import CompileOptions, Toolchain
from core.compiler.keys import build_key, canonical, compile_key, digest, own_code_hash
from core.errors import KernelError
from core.hardware.model import Chip, ComputeUnit, MemorySpace
from tests.timing import within

CHIP = Chip(
    vendor="metax",
    name="c500",
    title="MetaX C500",
    architecture="xcore1000",
    codegen={"arch": "xcore1000", "warp": 64},
    units=(ComputeUnit(kind="AP", count=104, lanes_per_wave=64),),
    memories=(MemorySpace(name="shared", scopes=("shared",), owner="block", capacity_bytes=65536),),
)

BASE: dict[str, Any] = {
    "program_fingerprint": "f" * 64,
    "chip": CHIP,
    "backend_name": "tilehal-metax",
    "backend_version": "0.1.0",
    "backend_code_hash": "b" * 64,
    "options": CompileOptions(pass_configs={"tl.disable_tma_lower": True}, compile_flags=("-O3",)),
    "tilelang_version": "0.1.15",
    "extensions": (("in-house-tiles", "1.0", "e" * 64),),
    "core_code_hash": "c" * 64,
}


def key_of(**changes: Any) -> str:
    arguments = {**BASE, **changes}
    return compile_key(arguments.pop("program_fingerprint"), arguments.pop("chip"), **arguments)


def options(**changes: Any) -> CompileOptions:
    return dataclasses.replace(BASE["options"], **changes)


class TestCompileKey:
    def test_is_the_same_for_the_same_and_is_a_cache_key(self):
        assert key_of() == key_of()
        assert re.fullmatch("[0-9a-f]{64}", key_of())

    @pytest.mark.parametrize(
        "change",
        [
            {"program_fingerprint": "0" * 64},
            {"backend_name": "tilehal-metax-fork"},
            {"backend_version": "0.1.1"},
            {"backend_code_hash": "0" * 64},
            {"tilelang_version": "0.1.16"},
            {"core_code_hash": "0" * 64},
            {"extensions": ()},
            {"extensions": (("in-house-tiles", "1.0", "0" * 64),)},
            {"extensions": (("in-house-tiles", "1.1", "e" * 64),)},
            {"extensions": (("other-tiles", "1.0", "e" * 64),)},
            {"options": options(pass_configs={})},
            {"options": options(pass_configs={"tl.disable_tma_lower": False})},
            {"options": options(pass_configs={"tl.disable_tma_lower": 1})},
            {"options": options(pass_configs={"tl.disable_tma_lower": "True"})},
            {"options": options(compile_flags=("-O2",))},
            {"options": options(compile_flags=("-O3", "-g"))},
            {"options": options(fast_math=True)},
            {"options": options(backend={"multi_buffer": False})},
        ],
        ids=str,
    )
    def test_every_input_counts(self, change):
        assert key_of(**change) != key_of()

    def test_every_option_that_can_change_the_code_is_in_it(self):
        """Fails for an option added later that somebody excludes, and for those of the build if they ever count."""
        other = {
            "pass_configs": {"x": 1},
            "compile_flags": ("-x",),
            "fast_math": True,
            "backend": {"x": 1},
            "verbose": True,
            "timeout_s": 60.0,
        }
        assert set(other) == {field.name for field in dataclasses.fields(CompileOptions)}
        base = compile_key("f", CHIP, **_rest(CompileOptions()))
        changed = {
            name
            for name, value in other.items()
            if compile_key("f", CHIP, **_rest(CompileOptions(**{name: value}))) != base
        }
        assert changed == set(other) - {"verbose", "timeout_s"}

    def test_order_of_options_does_not_count_and_order_of_flags_does(self):
        one, two = {"a": 1, "b": 2}, {"b": 2, "a": 1}
        assert key_of(options=options(pass_configs=one)) == key_of(options=options(pass_configs=two))
        assert key_of(options=options(compile_flags=("-a", "-b"))) != key_of(
            options=options(compile_flags=("-b", "-a"))
        )

    def test_extensions_count_in_the_order_they_are_called(self):
        one, two = ("a", "1", "x"), ("b", "1", "y")
        assert key_of(extensions=[one, two]) != key_of(extensions=[two, one])

    def test_two_backends_that_run_together_in_print_do_not_collide(self):
        assert key_of(backend_name="a", backend_version="b1") != key_of(backend_name="ab", backend_version="1")
        assert key_of(extensions=[("a", "b", "c"), ("d", "e", "f")]) != key_of(
            extensions=[("a", "b", "cd"), ("", "e", "f")]
        )


def _rest(compile_options: CompileOptions) -> dict[str, Any]:
    names = ("backend_name", "backend_version", "backend_code_hash", "tilelang_version")
    return {**{name: BASE[name] for name in names}, "options": compile_options}


class TestChip:
    @pytest.mark.parametrize(
        "change",
        [
            {"vendor": "metax2"},
            {"name": "c550"},
            {"architecture": "xcore1500"},
            {"codegen": {"arch": "xcore1000", "warp": 32}},
            {"units": (ComputeUnit(kind="AP", count=103, lanes_per_wave=64),)},
            {"memories": (MemorySpace(name="shared", scopes=("shared",), owner="block", capacity_bytes=131072),)},
            {"features": ("async_copy",)},
            {"modified": ("shared=128KiB",)},
        ],
        ids=str,
    )
    def test_every_figure_counts(self, change):
        assert key_of(chip=CHIP.model_copy(update=change)) != key_of()

    @pytest.mark.parametrize(
        "change", [{"title": "C500 (OAM)"}, {"aliases": ("c500x",)}, {"notes": ("two sources differ",)}], ids=str
    )
    def test_prose_does_not(self, change):
        assert key_of(chip=CHIP.model_copy(update=change)) == key_of()

    def test_two_chips_that_make_the_same_tvm_target_do_not_collide(self):
        # As TVM sees them these are one: the same architecture and warp. They still differ in what fits.
        twin = CHIP.model_copy(update={"name": "c500-lite", "units": (ComputeUnit(kind="AP", count=52),)})
        assert twin.codegen == CHIP.codegen
        assert key_of(chip=twin) != key_of()


class TestBuildKey:
    TOOLCHAIN = Toolchain("nvcc", "12.9", "/usr/local/cuda/bin/nvcc", ("nvcc", "-o", "x"))

    def test_lowered_key_toolchain_machine_and_extras_count(self):
        base = build_key("a" * 64, self.TOOLCHAIN)
        others = [
            build_key("b" * 64, self.TOOLCHAIN),
            build_key("a" * 64, dataclasses.replace(self.TOOLCHAIN, name="clang")),
            build_key("a" * 64, dataclasses.replace(self.TOOLCHAIN, version="13.0")),
            build_key("a" * 64, dataclasses.replace(self.TOOLCHAIN, path="/opt/nvcc")),
            build_key("a" * 64, "nvcc 12.9"),
            build_key("a" * 64, self.TOOLCHAIN, cpu_features=["avx2"]),
            build_key("a" * 64, self.TOOLCHAIN, cpu_features=["avx2", "avx512f"]),
            build_key("a" * 64, self.TOOLCHAIN, extra={"CPATH": "/opt"}),
        ]
        assert len({base, *others}) == len(others) + 1

    def test_how_the_compiler_was_called_last_time_does_not_count(self):
        other = dataclasses.replace(self.TOOLCHAIN, command=())
        assert build_key("a" * 64, other) == build_key("a" * 64, self.TOOLCHAIN)

    def test_order_of_cpu_features_does_not_count(self):
        one, two = (build_key("a" * 64, "gcc", cpu_features=f) for f in (["avx2", "fma"], ["fma", "avx2", "fma"]))
        assert one == two

    def test_is_never_the_key_of_what_it_is_built_from(self):
        assert build_key(key_of(), "gcc") != key_of()


class Color(enum.Enum):
    RED = 1
    GREEN = 2


class OtherColor(enum.Enum):
    RED = 1


class Name(enum.StrEnum):
    X = "tl.x"


@dataclasses.dataclass
class Point:
    x: int
    y: Any = 0


class TestCanonical:
    def test_values_that_look_alike_stay_apart(self):
        alike = [
            None, False, True, 0, 1, 0.0, -0.0, 1.0, "", "1", "1.0", "True", "None", b"1", [], [1], [[1]], {}, {"a": 1},
            {"a": None}, {1}, Path("1"), Color.RED, Color.GREEN, OtherColor.RED, Name.X, "tl.x", Point(1), Point(1, 1),
            {"x": 1, "y": 0}, float("inf"), float("-inf"), float("nan"), "inf", {"$path": "1"}, {"$float": "inf"},
            {"$enum": ["x", "RED"]}, {"$$path": "1"}, {"$bytes": "31"}, {"$set": [1]}, 10**30, 1e30,
        ]  # fmt: skip
        texts = [canonical(value) for value in alike]
        assert len(set(texts)) == len(texts)

    def test_values_that_mean_the_same_are_the_same(self):
        assert canonical((1, 2)) == canonical([1, 2])
        assert canonical({"a": 1, "b": 2}) == canonical({"b": 2, "a": 1})
        assert canonical({3, 1, 2}) == canonical(frozenset({2, 3, 1}))
        assert canonical({Name.X: 1}) == canonical({"tl.x": 1})
        assert canonical(PurePosixPath("a/b")) == canonical(Path("a/b"))

    def test_numpys_numbers_are_numbers(self):
        numpy = pytest.importorskip("numpy")
        assert canonical(numpy.int64(3)) == canonical(3)
        assert canonical(numpy.float64(0.5)) == canonical(0.5)

    def test_floats_are_exact(self):
        assert canonical(0.1) != canonical(0.1 + 2**-56)

    @pytest.mark.parametrize(
        ("value", "place", "kind"),
        [
            ({"a": [object()]}, "value['a'][0]", "builtins.object"),
            ({"f": len}, "value['f']", "builtins.builtin_function_or_method"),
            (int, "value", "builtins.type"),
            ({"p": Point(1, lambda: 0)}, "value['p'].y", "builtins.function"),
            ({"z": 1j}, "value['z']", "builtins.complex"),
        ],
    )
    def test_an_object_without_a_stable_form_is_refused_with_its_place(self, value, place, kind):
        with pytest.raises(KernelError) as caught:
            canonical(value)
        assert caught.value.details == {"place": place, "type": kind}
        assert caught.value.message == f"{place} is a {kind}, which has no stable form to key the cache by"

    def test_in_pass_configs_the_option_is_named(self):
        with pytest.raises(KernelError, match=re.escape("options.pass_configs['tl.x'] is a builtins.object")):
            key_of(options=options(pass_configs={"tl.x": object()}))

    @pytest.mark.parametrize("value", [{1: "a"}, {None: 1}, {("a",): 1}])
    def test_keys_must_be_strings(self, value):
        with pytest.raises(KernelError, match="only strings name an option"):
            canonical(value)

    def test_a_value_that_contains_itself_is_refused(self):
        loop: list[Any] = []
        loop.append(loop)
        with pytest.raises(KernelError, match=r"value\[0\] contains itself"):
            canonical(loop)
        shared = [1]
        assert canonical([shared, shared]) == "[[1],[1]]"

    def test_an_option_given_twice_is_refused(self):
        with pytest.raises(KernelError, match=r"names 'tl\.x' twice"):
            canonical({Name.X: 1, "tl.y": 2} | {_Plain("tl.x"): 3})


class _Plain(str):
    """Equal to no other string as a mapping key, so that one mapping can hold both spellings of an option."""

    __slots__ = ()

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8) | st.binary(max_size=4)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
CONFIGS = st.dictionaries(st.text(min_size=1, max_size=6), VALUES, max_size=4)


def _typed(value: Any) -> Any:
    """`value` with its types, so that comparing tells 1 from True and 0.0 from -0.0: an independent oracle."""
    if isinstance(value, dict):
        return {"dict": {key: _typed(item) for key, item in value.items()}}
    if isinstance(value, list):
        return ["list", *map(_typed, value)]
    return (type(value).__name__, repr(value))


class TestProperties:
    @given(VALUES, VALUES)
    def test_equal_text_exactly_when_equal_value(self, one, two):
        assert (canonical(one) == canonical(two)) is (_typed(one) == _typed(two))

    @given(CONFIGS, CONFIGS)
    def test_any_change_of_options_changes_the_key(self, one, two):
        same = key_of(options=options(pass_configs=one)) == key_of(options=options(pass_configs=two))
        assert same is (_typed(one) == _typed(two))

    @given(st.data())
    def test_any_changed_field_changes_the_key(self, data):
        texts = [name for name, value in BASE.items() if isinstance(value, str)]
        name = data.draw(st.sampled_from(texts))
        value = data.draw(st.text(max_size=70))
        assert (key_of(**{name: value}) == key_of()) is (value == BASE[name])

    @given(st.lists(st.tuples(st.text(max_size=3), st.text(max_size=3), st.text(max_size=3)), max_size=3))
    def test_any_change_of_extensions_changes_the_key(self, extensions):
        assert (key_of(extensions=extensions) == key_of()) is (tuple(extensions) == BASE["extensions"])

    @given(CONFIGS)
    def test_options_in_another_place_are_another_key(self, config):
        here = key_of(options=options(pass_configs=config, backend={}))
        there = key_of(options=options(pass_configs={}, backend=config))
        assert (here == there) is (config == {})


def test_keys_do_not_depend_on_the_process():
    """The same under three hash seeds, where sets and dicts of strings come in different orders."""
    script = (
        "from core.compiler.keys import digest; from pathlib import Path\n"
        "letters, mapping = {'a', 'b', 'c', 'dd', 'e'}, {'z': 1, 'a': 2}\n"
        "print(digest({'s': letters, 'f': [0.1, float('nan')], 'p': Path('x'), 'n': mapping}))"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=Path(__file__).resolve().parents[2],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("0", "1", "4242")
    }
    # Written down once: another Python or machine must find what this one stored.
    assert printed == {"6374b9f37800a7eca250dfee404c3025bf62a9e6ef5476531d2b029ee9bdb4e1"}
    value = {"n": {"a": 2, "z": 1}, "s": set("abce") | {"dd"}, "p": Path("x"), "f": [0.1, float("nan")]}
    assert digest(value) in printed


class TestOwnCodeHash:
    def copy(self, tmp_path: Path, monkeypatch) -> Path:
        """A small `core` whose keys module we pretend to be."""
        root = tmp_path / "core"
        (root / "compiler" / "__pycache__").mkdir(parents=True)
        for name in ("__init__.py", "compiler/keys.py", "compiler/prelude.h"):
            (root / name).write_text(name)
        monkeypatch.setattr(keys, "__file__", str(root / "compiler" / "keys.py"))
        return root

    def test_any_file_counts_by_name_and_content_and_byte_code_does_not(self, tmp_path, monkeypatch):
        root = self.copy(tmp_path, monkeypatch)
        compute = own_code_hash.__wrapped__
        seen = [compute()]
        (root / "compiler" / "__pycache__" / "keys.cpython-311.pyc").write_bytes(b"x")
        (root / "compiler" / ".keys.py.swp").write_bytes(b"x")
        assert compute() == seen[0]
        for change in (
            lambda: (root / "compiler" / "prelude.h").write_text("other"),
            lambda: (root / "new.py").touch(),
            lambda: (root / "new.py").rename(root / "newer.py"),
            lambda: (root / "newer.py").unlink(),
        ):
            change()
            seen.append(compute())
        assert len(set(seen[:4])) == 4
        assert seen[4] == seen[1]

    def test_is_computed_once_and_quickly(self):
        with within(0.1):  # a few ms
            first = own_code_hash.__wrapped__()
        assert own_code_hash() == first
        assert own_code_hash() is own_code_hash()
