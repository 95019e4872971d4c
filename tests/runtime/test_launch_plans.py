"""What a kernel's launch asks of the driver, compiled and interpreted: checked on a driver that writes it down."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import tilelang.language as T

import core
from core.codegen import native
from core.codegen.host import build_launch
from core.compiler import LoweredKernel
from core.runtime.plan import DriverPlan, UnusablePlan, names_of
from tests.runtime import launch_kernels
from tests.runtime.standin import Driver
from tests.runtime.workspace_kernels import split_k

A, B, C = 0x100000, 0x200000, 0x300000
KERNELS = ("scaled", "product", "several", "clustered", "whole_grid", "dependent", "handed_on", "parts")
#: Per kernel, its calls: (stream, pointers and numbers, symbolic dimensions).
CALLS: dict[str, list[tuple[int, list[Any]]]] = {
    "scaled": [
        (0x5, [A, 1.5, 3, C, 10]),
        (0, [A, 2.0, 1, C, 0]),
        (0, [A, 2.0, 70000, C, 4]),
        (0, [A, 1.0, 1, C, 2**31]),
        (0, [A, 1.5, 3, C + 4, 10]),
        (0, [A + 8, 1.5, 3, C + 16, 10]),
        (0, [A + 16, 1.5, 3, C + 16, 10]),
    ],
    "product": [
        (0x5, [A, B, C, 200]),
        (0x5, [A, B, C, 200]),
        (0x5, [A + 256, B, C, 300]),
        (0x5, [A + 2, B, C, 200]),
        (0xC0, [A, B, C, 200]),
    ],
    "several": [(0, [A, 4, 130]), (0, [A, 3, 130]), (0, [A, 4, 0]), (0, [A + 4, 4, 130])],
    "clustered": [(0, [A])],
    "whole_grid": [(0, [A])],
    "dependent": [(0, [A])],
    "handed_on": [(0x5, [A, C, 10]), (0x5, [A, C, 0]), (0x6, [A, C, 11]), (0, [A, C, 2**31 - 2**24])],
    "parts": [(0x5, [A, B, C, 100]), (0x5, [A, B, C, 101]), (0, [A, B, C, 2**31 - 1])],
    "uneven": [(0, [A, B, C, rows]) for rows in (200, 201, 202)],
}
LETTERS = {
    "scaled_kernel": "ppiif",
    "product_kernel": "mmpi",
    "several_kernel_1": "pii",
    "several_kernel": "pi",
    "clustered_kernel": "p",
    "whole_grid_kernel": "p",
    "dependent_kernel": "p",
    "handed_on_kernel": "pppi",
    "handed_on_kernel_1": "pppi",
    "parts_of_k_kernel": "mmmi",
    "parts_of_k_kernel_1": "pmi",
}

RUN = """
import json, os, sys
from pathlib import Path
from core.runtime.compiled import load
from core.runtime.interpreted import PlannedKernel
from core.runtime.plan import DriverPlan
from core.runtime.signature import Signature
from core.errors import TileHALError

log = Path(os.environ["STANDIN_LOG"])

def calls():
    lines = log.read_text().splitlines() if log.exists() else []
    log.unlink(missing_ok=True)
    return lines

result = {}
for name, item in json.loads(Path(sys.argv[1]).read_text()).items():
    signature, plan = Signature.from_json(item["signature"]), DriverPlan.from_json(item["plan"])
    for how in ("compiled", "interpreted"):
        if how == "compiled":
            takes = load(Path(item["library"]), signature, "cuda", b"IMAGE of the kernel").raw
        else:
            takes = PlannedKernel(signature, plan, b"IMAGE of the kernel", limits=item["limits"], required=11040,
                                  capability=90, exact=True)
        found = []
        for device, (stream, values) in enumerate(item["calls"]):
            error = None
            try:
                takes(device % 2, stream, *values)
            except (RuntimeError, TileHALError) as caught:
                error = str(caught)
            found.append({"lines": calls(), "error": error})
        del takes
        result[f"{name} {how}"] = {"calls": found, "end": calls()}
print(json.dumps(result))
"""


def lower(name: str) -> LoweredKernel:
    if name == "parts":
        return parts()
    return core.compile(getattr(launch_kernels, name)(), target="cuda:h200", build=False).lowered


def parts() -> LoweredKernel:
    """Through scratch memory by tensor maps. An odd M has a stride that the map of A cannot have."""
    lowered = core.compile(split_k(T.dynamic("M"), 64, 128, parts=2), target="cuda:h200", build=False).lowered
    plan = DriverPlan.from_json(lowered.metadata[native.PLAN])
    plan = replace(plan, maps=(replace(plan.maps[0], strides=("256 + 8*(M % 2)",)), *plan.maps[1:]))
    return replace(lowered, metadata={**lowered.metadata, native.PLAN: plan.to_json()})


def with_uneven_strides(product: LoweredKernel) -> LoweredKernel:
    """The same launch with a first map of three axes: 200 rows have strides that maps can have, 201 and 202 one not."""
    plan = DriverPlan.from_json(product.metadata[native.PLAN])
    strides = ("512 + 2*(M % 2)", "1024 + 2*((M // 2) % 2)")
    uneven = replace(
        plan.maps[0], dims=("256", "M", "2"), strides=strides, box=("64", "64", "2"), element_strides=("1", "1", "1")
    )
    plan = replace(plan, maps=(uneven, *plan.maps[1:]))
    return replace(product, metadata={**product.metadata, native.PLAN: plan.to_json()})


@dataclass
class Recorded:
    """What each call of each kernel did, by how it was launched."""

    lowered: dict[str, LoweredKernel]
    results: dict[str, Any]

    def lines(self, name: str, call: int, how: str = "compiled") -> list[str]:
        return list(self.results[f"{name} {how}"]["calls"][call]["lines"])

    def error(self, name: str, call: int, how: str = "compiled") -> str | None:
        found: str | None = self.results[f"{name} {how}"]["calls"][call]["error"]
        return found


@pytest.fixture(scope="module")
def recorded(driver: Driver, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder = tmp_path_factory.mktemp("launches")
    lowered = {name: lower(name) for name in KERNELS}
    lowered["uneven"] = with_uneven_strides(lowered["product"])
    items = {}
    for name, kernel in lowered.items():
        place = folder / name
        place.mkdir()
        files = build_launch(place, native.launch_file(kernel, "sm_90a"), f"compile {name}")
        items[name] = {
            "signature": kernel.signature.to_json(),
            "plan": kernel.metadata[native.PLAN],
            "limits": kernel.metadata["grid_limits"],
            "library": str(place / files["launch"]),
            "calls": CALLS[name],
        }
    spec = folder / "spec.json"
    spec.write_text(json.dumps(items))
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(spec)],
        env=driver.environment(LETTERS),
        capture_output=True,
        text=True,
        cwd=Path(core.__file__).parents[1],
    )
    assert done.returncode == 0, done.stderr
    return Recorded(lowered, json.loads(done.stdout))


def launches(lines: list[str]) -> list[str]:
    return [line.partition(" ")[2] for line in lines if line.startswith("launch")]


@pytest.mark.parametrize("name", KERNELS)
def test_compiled_and_interpreted_launches_ask_the_same_of_the_driver(recorded: Recorded, name: str) -> None:
    for call in range(len(CALLS[name])):
        compiled, interpreted = (launches(recorded.lines(name, call, how)) for how in ("compiled", "interpreted"))
        assert compiled == interpreted
        assert (recorded.error(name, call) is None) == (recorded.error(name, call, "interpreted") is None)


def test_grid_threads_and_arguments_are_those_of_the_call(recorded: Recorded) -> None:
    (line,) = launches(recorded.lines("scaled", 0))
    fields = dict(part.split("=") for part in line.split()[1:])
    assert (fields["grid"], fields["block"], fields["shared"]) == ("3,3,1", "64,1,1", "0")
    assert fields["stream"] == "0x5"
    values = dict(zip("ACMns", (bytes.fromhex(text) for text in fields["arguments"].split(",")), strict=True))
    assert struct.unpack("<Q", values["A"]) == (A,)
    assert struct.unpack("<Q", values["C"]) == (C,)
    assert struct.unpack("<i", values["M"]) == (10,)
    assert struct.unpack("<f", values["s"]) == (1.5,)
    assert struct.unpack("<i", values["n"]) == (3,)


def test_an_empty_grid_is_no_launch(recorded: Recorded) -> None:
    for how in ("compiled", "interpreted"):
        assert launches(recorded.lines("scaled", 1, how)) == []
        assert recorded.error("scaled", 1, how) is None


def test_what_no_launch_can_use_is_named_before_anything_is_launched(recorded: Recorded) -> None:
    for how in ("compiled", "interpreted"):
        assert "70000 blocks along grid axis y, the chip launches 65535" in str(recorded.error("scaled", 2, how))
        assert "too large: the kernel counts it in 32 bits" in str(recorded.error("scaled", 3, how))
        assert "its data must start at a multiple of 16 bytes" in str(recorded.error("product", 3, how))
        assert launches(recorded.lines("product", 3, how)) == []


def test_data_that_vector_code_cannot_address_is_refused_before_the_launch(recorded: Recorded) -> None:
    for how in ("compiled", "interpreted"):
        for call, text in ((4, f"C starts at {C + 4:#x}"), (5, f"A starts at {A + 8:#x}")):
            assert f"{text}, its data must start at a multiple of 16 bytes" in str(recorded.error("scaled", call, how))
            assert launches(recorded.lines("scaled", call, how)) == []
        assert recorded.error("scaled", 6, how) is None
        assert len(launches(recorded.lines("scaled", 6, how))) == 1
        # Scalar code takes any element.
        assert recorded.error("several", 3, how) is None
        assert len(launches(recorded.lines("several", 3, how))) == 2


def test_tensor_maps_describe_the_operands(recorded: Recorded) -> None:
    (line,) = launches(recorded.lines("product", 0))
    first, second = (bytes.fromhex(text) for text in line.partition("arguments=")[2].split(",")[:2])
    for data, address, dims in ((first, A, (256, 200)), (second, B, (128, 256))):
        data_type, rank = data[0], data[1]
        assert (data_type, rank) == (6, 2)  # CU_TENSOR_MAP_DATA_TYPE_FLOAT16
        assert struct.unpack_from("<Q", data, 16) == (address,)
        assert struct.unpack_from("<2Q", data, 24) == dims
        assert struct.unpack_from("<i", data, 68) == (dims[0] * 2,)  # bytes from row to row


def test_of_a_map_each_stride_must_be_a_multiple_of_16_bytes(recorded: Recorded) -> None:
    for how in ("compiled", "interpreted"):
        assert recorded.error("uneven", 0, how) is None
        for call in (1, 2):
            assert "strides must be multiples of 16 bytes" in str(recorded.error("uneven", call, how))
            assert launches(recorded.lines("uneven", call, how)) == []


def test_a_map_is_encoded_again_only_when_what_it_describes_changes(recorded: Recorded) -> None:
    encoded = [recorded.lines("product", call).count("encode") for call in range(3)]
    assert encoded == [2, 0, 1]


def test_dynamic_shared_memory_is_reserved_when_the_binary_is_loaded(recorded: Recorded) -> None:
    wanted = recorded.lowered["product"].resources.dynamic_shared_bytes
    assert wanted is not None
    assert wanted > 48 * 1024
    for how in ("compiled", "interpreted"):
        assert f"set product_kernel 8 {wanted}" in recorded.lines("product", 0, how)
        assert f"shared={wanted} " in recorded.lines("product", 0, how)[-1]


def test_each_device_has_the_binary_once(recorded: Recorded) -> None:
    for how in ("compiled", "interpreted"):
        assert [recorded.lines("product", call, how).count("load") for call in range(5)] == [1, 1, 0, 0, 0]


def test_launches_come_in_order_and_under_their_conditions(recorded: Recorded) -> None:
    def grids(call: int) -> list[str]:
        return [line.split()[1] for line in launches(recorded.lines("several", call))]

    assert grids(0) == ["grid=2,1,1", "grid=12,1,1"]
    assert grids(1) == ["grid=2,1,1"]
    assert grids(2) == []


@pytest.mark.parametrize("how", ["compiled", "interpreted"])
def test_scratch_memory_is_allocated_on_the_stream_for_one_call(recorded: Recorded, how: str) -> None:
    rows, padded = 10 * 128 * 4, 256  # 30 bytes take up 256: each workspace starts at a multiple of that
    lines = recorded.lines("handed_on", 0, how)
    assert lines.count("pool") == 1
    first, *launched, last = lines[lines.index(f"allocate {rows + padded} on 0x5") :]
    assert (first, last) == (f"allocate {rows + padded} on 0x5", "give back on 0x5")
    taken = [line.partition("arguments=")[2].split(",") for line in launches(launched)]
    assert [struct.unpack("<Q", bytes.fromhex(text))[0] for text in taken[0][:3]] == [A, 0xA00000, 0xA00000 + rows]
    assert [struct.unpack("<Q", bytes.fromhex(text))[0] for text in taken[1][:3]] == [C, 0xA00000, 0xA00000 + rows]
    idle = recorded.lines("handed_on", 1, how)  # without rows there is nothing to launch
    assert not [line for line in idle if line.startswith(("allocate", "give back", "launch"))]
    assert "pool" not in recorded.lines("handed_on", 2, how)


@pytest.mark.parametrize("how", ["compiled", "interpreted"])
def test_a_map_may_describe_scratch_memory(recorded: Recorded, how: str) -> None:
    first, second = launches(recorded.lines("parts", 0, how))
    stored = bytes.fromhex(first.partition("arguments=")[2].split(",")[2])
    loaded = bytes.fromhex(second.partition("arguments=")[2].split(",")[1])
    for data in (stored, loaded):
        assert struct.unpack_from("<Q", data, 16) == (0xA00000,)
        assert struct.unpack_from("<3Q", data, 24) == (64, 100, 2)


@pytest.mark.parametrize("how", ["compiled", "interpreted"])
def test_scratch_memory_is_given_back_when_a_launch_fails(recorded: Recorded, how: str) -> None:
    assert "strides must be multiples of 16 bytes" in str(recorded.error("parts", 1, how))
    lines = recorded.lines("parts", 1, how)
    assert [line.split()[0] for line in lines if line.startswith(("allocate", "give", "launch"))] == [
        "allocate",
        "give",
    ]
    assert "counts it in 32 bits, up to 2130706432" in str(recorded.error("parts", 2, how))
    assert "CUDA_ERROR_OUT_OF_MEMORY" in str(recorded.error("handed_on", 3, how))
    assert not launches(recorded.lines("handed_on", 3, how))


@pytest.mark.parametrize(
    ("name", "attributes"),
    [("clustered", ["4:2,1,1", "6:1,0,0"]), ("whole_grid", ["2:1,0,0"]), ("dependent", ["6:1,0,0"])],
)
def test_clusters_barriers_and_waits_are_launch_attributes(
    recorded: Recorded, name: str, attributes: list[str]
) -> None:
    (line,) = launches(recorded.lines(name, 0))
    assert [part.removeprefix("with=") for part in line.split() if part.startswith("with=")] == attributes


def test_a_module_goes_with_its_kernel_unless_a_graph_may_hold_its_launches(recorded: Recorded) -> None:
    assert recorded.results["scaled compiled"]["end"] == ["unload", "unload"]
    assert recorded.results["handed_on compiled"]["end"] == ["unload", "end of pool"] * 2
    # The last call of `product` was on a stream that is captured, on device 0.
    assert recorded.results["product compiled"]["end"] == ["unload"]


def test_a_plan_survives_json() -> None:
    for name in ("product", "several"):
        data = lower(name).metadata[native.PLAN]
        assert DriverPlan.from_json(json.loads(json.dumps(data))).to_json() == DriverPlan.from_json(data).to_json()


@pytest.mark.parametrize(
    "text", ["__import__('os')", "M.real", "[M][0]", "abs(M)", "max(M)", "(lambda: M)()", "M if", "'M'.join", "N + 1"]
)
def test_an_expression_is_arithmetic_over_known_names(text: str) -> None:
    with pytest.raises(UnusablePlan):
        names_of(text, {"M"})


def test_arithmetic_is_accepted() -> None:
    assert names_of("max((M + 127) // 128, 1) if M % 2 == 0 and not N > 3 else -(M >> 2)", {"M", "N"}) == {"M", "N"}
