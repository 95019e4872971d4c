"""Kernels as JSON and files, and back."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.compiler import serialize
from core.compiler.artifacts import BuiltKernel, LoweredKernel, Resources, Toolchain
from core.errors import BackendHookError
from core.runtime.signature import ScalarArgument, Signature, TensorArgument
from tests.compiler.cache_samples import builder, lowered_kernel


def files_in(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def round_trip(kernel: LoweredKernel, folder: Path) -> LoweredKernel:
    folder.mkdir()
    serialize.write_lowered(kernel, folder)
    return serialize.read_lowered(files_in(folder))


class TestLowered:
    def test_comes_back_equal_field_by_field(self, tmp_path):
        kernel = lowered_kernel()
        again = round_trip(kernel, tmp_path / "k")
        for field in dataclasses.fields(LoweredKernel):
            assert getattr(again, field.name) == getattr(kernel, field.name), field.name
        assert isinstance(again.entry_points, tuple)
        assert isinstance(again.grid[0], tuple)
        assert isinstance(again.block[0], tuple)

    def test_the_sample_leaves_no_field_at_its_default(self):
        # Else the test above would not notice a field that is not written.
        kernel = dataclasses.replace(lowered_kernel(), evidence="simulated")
        for field in dataclasses.fields(LoweredKernel):
            assert getattr(kernel, field.name) not in ((), {}, "", Resources(), "source only"), field.name

    def test_every_evidence_and_resource_is_kept(self, tmp_path):
        every = {field.name: index + 1 for index, field in enumerate(dataclasses.fields(Resources))}
        resources = Resources(**{**every, "memory_bytes": {"shared": 7}})
        kernel = dataclasses.replace(lowered_kernel(), resources=resources, evidence="simulated")
        assert round_trip(kernel, tmp_path / "k") == kernel

    def test_the_source_is_a_file_that_an_editor_opens(self, tmp_path):
        suffixes = {}
        for language in ("cuda", "c++", "mlir", "maca", "rust"):
            kernel = dataclasses.replace(lowered_kernel(source="// ü\r\n\tx\n"), language=language)
            again = round_trip(kernel, tmp_path / language)
            assert again.source == kernel.source
            (file,) = (tmp_path / language).glob("source*")
            assert file.read_bytes() == "// ü\r\n\tx\n".encode()
            suffixes[language] = file.suffix
        assert suffixes == {"cuda": ".cu", "c++": ".cpp", "mlir": ".mlir", "maca": ".maca", "rust": ".txt"}

    def test_names_of_attachments_never_become_paths(self, tmp_path):
        names = ("../../outside", "/etc/passwd", "a/b/c", "", "kernel.json", "source.cpp", "x" * 400)
        kernel = dataclasses.replace(lowered_kernel(), attachments={name: name.encode() for name in names})
        assert round_trip(kernel, tmp_path / "k") == kernel
        assert {path.parent for path in tmp_path.rglob("*") if path.is_file()} == {
            tmp_path / "k",
            tmp_path / "k" / "attachments",
        }

    @pytest.mark.parametrize(
        ("metadata", "place", "what"),
        [
            ({"a": [1, {2}]}, r"metadata\['a'\]\[1\]", "builtins.set"),
            ({"a": b"x"}, r"metadata\['a'\]", "builtins.bytes"),
            ({"a": {1: 2}}, r"metadata\['a'\]", "the key 1, a int"),
        ],
    )
    def test_what_json_would_change_or_refuse_is_named(self, metadata, place, what):
        kernel = dataclasses.replace(lowered_kernel(), metadata=metadata)
        with pytest.raises(BackendHookError, match=rf"LoweredKernel\.{place} holds (a )?{what}"):
            serialize.lowered_to_json(kernel)

    def test_another_schema_is_not_read(self, tmp_path):
        round_trip(lowered_kernel(), tmp_path / "k")
        files = files_in(tmp_path / "k")
        data = json.loads(files["kernel.json"])
        for schema in (0, serialize.SCHEMA + 1, None, "1"):
            files["kernel.json"] = json.dumps({**data, "schema": schema}).encode()
            with pytest.raises(serialize.UnknownSchema):
                serialize.read_lowered(files)

    def test_what_is_no_record_is_damage_and_not_another_schema(self, tmp_path):
        for content in (b"", b"[1]", b"null", b"{", b"\xff"):
            with pytest.raises(ValueError, match=r".*"):
                serialize.read_lowered({"kernel.json": content})


class TestDigest:
    @pytest.mark.parametrize(
        "change",
        [
            {"source": "other"},
            {"entry_points": ("other",)},
            {"attachments": {"include/helper.h": b"#define X\r\n", "table": b""}},
            {"attachments": {"helper.h": b"#define X\r\n", "table": bytes(range(256))}},
            {"metadata": {}},
            {"grid": ()},
            {"signature": Signature("other", ())},
        ],
        ids=str,
    )
    def test_everything_counts(self, change):
        kernel = lowered_kernel()
        assert serialize.lowered_digest(dataclasses.replace(kernel, **change)) != serialize.lowered_digest(kernel)

    def test_is_the_same_after_a_round_trip(self, tmp_path):
        kernel = lowered_kernel()
        assert serialize.lowered_digest(round_trip(kernel, tmp_path / "k")) == serialize.lowered_digest(kernel)


class TestBuilt:
    def test_comes_back_equal_in_its_new_place(self, tmp_path):
        kernel = lowered_kernel()
        work, place = tmp_path / "work", tmp_path / "place"
        work.mkdir()
        made = builder(kernel)(work)
        serialize.write_built(made, work)
        work.rename(place)
        again = serialize.read_built((place / "built.json").read_bytes(), kernel, place)
        command = ("g++", "-o", f"{place}/kernel.so")
        assert again == dataclasses.replace(
            made, directory=place, toolchain=dataclasses.replace(made.toolchain, command=command)
        )

    def test_only_for_the_source_it_was_built_from(self, tmp_path):
        made = builder(lowered_kernel())(tmp_path)
        serialize.write_built(made, tmp_path)
        record = (tmp_path / "built.json").read_bytes()
        assert serialize.read_built(record, lowered_kernel(source="other"), tmp_path) is None

    def test_metadata_is_held_to_json_too(self, tmp_path):
        made = dataclasses.replace(builder(lowered_kernel())(tmp_path), metadata={"x": 1j})
        with pytest.raises(BackendHookError, match=r"BuiltKernel\.metadata\['x'\] holds a builtins.complex"):
            serialize.write_built(made, tmp_path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
EXTENT = st.integers(1, 10**12) | st.sampled_from(["M", "2*M", "(N + 7)//8"])
TENSORS = st.builds(
    TensorArgument,
    name=st.text(min_size=1, max_size=5),
    dtype=st.sampled_from(["float16", "float8_e4m3fn", "bool"]),
    shape=st.lists(EXTENT, max_size=4).map(tuple),
    strides=st.none() | st.lists(EXTENT, max_size=4).map(tuple),
    is_output=st.booleans(),
    reads=st.booleans(),
    writes=st.booleans(),
)
SIGNATURES = st.builds(
    Signature,
    name=st.text(max_size=5),
    arguments=st.lists(TENSORS | st.builds(ScalarArgument, st.text(max_size=3), st.just("int32")), max_size=3).map(
        tuple
    ),
    symbols=st.lists(st.text(max_size=3), max_size=2).map(tuple),
    outputs=st.lists(st.integers(0, 5), max_size=2).map(tuple),
)
TEXTS = st.lists(st.text(max_size=5), max_size=3).map(tuple)
KERNELS = st.builds(
    LoweredKernel,
    target=st.text(max_size=8),
    route=st.text(max_size=8),
    language=st.sampled_from(["cuda", "c++", "mlir", "other"]),
    source=st.text(max_size=40),
    entry_points=TEXTS,
    signature=SIGNATURES,
    grid=st.lists(TEXTS, max_size=2).map(tuple),
    block=st.lists(st.tuples(*[st.integers(1, 1024)] * 3), max_size=2).map(tuple),
    rewrites=TEXTS,
    attachments=st.dictionaries(st.text(max_size=4), st.binary(max_size=8), max_size=3),
    metadata=st.dictionaries(st.text(max_size=4), JSON, max_size=3),
)


@given(KERNELS)
def test_any_kernel_comes_back_equal(tmp_path_factory, kernel: LoweredKernel):
    folder = tmp_path_factory.mktemp("kernels") / "k"
    assert round_trip(kernel, folder) == kernel


@given(
    st.builds(
        Toolchain,
        name=st.text(max_size=4),
        version=st.text(max_size=4),
        path=st.text(max_size=4),
        command=st.lists(
            st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=5), max_size=3
        ).map(tuple),
    )
)
def test_any_toolchain_comes_back_equal(tmp_path_factory, toolchain: Toolchain):
    folder = tmp_path_factory.mktemp("built")
    kernel = lowered_kernel()
    built = BuiltKernel(kernel, toolchain, {}, folder, Resources())
    serialize.write_built(built, folder)
    assert serialize.read_built((folder / "built.json").read_bytes(), kernel, folder) == built
