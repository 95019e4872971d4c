"""`kernel.export`: a built kernel as a folder that runs without TileHAL's compiler. docs/export.md describes it."""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.codegen import native
from core.codegen.host import LAUNCH_LIBRARY, LAUNCH_ROLE
from core.codegen.launch import capability, required_driver, with_headers
from core.codegen.launch.c_interface import BinaryFile, c_name, cpu_interface, cuda_interface, fnv1a
from core.errors import UnsupportedOp
from core.runtime.artifact import FORMAT, SCHEMA, describe_file, staging, write
from core.runtime.machine import instruction_sets
from core.runtime.plan import UnusablePlan
from core.runtime.symbols import symbol_sources

if TYPE_CHECKING:
    from core.compiler.artifacts import BuiltKernel
    from core.runtime.kernel import Kernel

#: The function of every CPU library that sets the number of threads (`backends.cpu` and `core.codegen.cpp` share it).
_SET_THREADS = "__tvm_ffi_tilehal_pool_1"


@dataclass(frozen=True, slots=True)
class _Launch:
    """What differs between the kinds of chip: the metadata's `launch`, the binary, the C interface."""

    data: dict[str, Any]
    device_type: str
    binary_role: str
    suffix: str
    source_suffix: str


def export(kernel: Kernel, directory: Path) -> Path:
    """Writes the folder; see :meth:`core.Kernel.export`."""
    import core

    if kernel.simulated:
        raise UnsupportedOp(
            f"{kernel.name} is compiled for the simulator of {kernel.target}",
            hint="compile it without simulate=True, and export that",
        )
    launch = _launch(kernel)
    built = kernel.build()
    with staging(directory) as folder:
        _write(kernel, built, launch, folder, core.__version__)
    return directory


def _write(kernel: Kernel, built: BuiltKernel, launch: _Launch, folder: Path, version: str) -> None:
    name = c_name(kernel.name)
    binary = folder / f"{name}{launch.suffix}"
    shutil.copyfile(built.path(launch.binary_role), binary)
    title = f"{kernel.name} for {kernel.target}, exported by TileHAL {version}"
    header, source = _interface(kernel, launch, title, binary)
    paths = {
        "binary": binary,
        "native_source": folder / f"{name}{launch.source_suffix}",
        "header": folder / f"{name}.h",
        "loader": folder / f"{name}.c",
    }
    paths["native_source"].write_text(kernel.get_kernel_source(), encoding="utf-8")
    paths["header"].write_text(header, encoding="utf-8")
    paths["loader"].write_text(with_headers(source), encoding="utf-8")
    if LAUNCH_ROLE in built.files:
        paths["launch"] = folder / f"{name}.{LAUNCH_LIBRARY}"
        shutil.copyfile(built.path(LAUNCH_ROLE), paths["launch"])
    write(folder, _metadata(kernel, built, launch, paths, version))


def _launch(kernel: Kernel) -> _Launch:
    """How an exported kernel is launched. Raises UnsupportedOp before anything is built or written."""
    lowered = kernel.lowered
    if lowered.route == "tilelang-native" and lowered.language == "cuda":
        plan = native.plan_of(lowered)
        if plan is None:
            raise UnsupportedOp(
                f"{kernel.name} cannot be exported: {lowered.metadata.get(native.UNPLANNED)}, which only TileLang's own"
                " host code can do",
                hint="call it through core.compile, or split it into kernels that need none of that",
                location=kernel.program.location,
            )
        arch = str(kernel.chip.codegen["arch"])
        number, exact = capability(arch)
        data: dict[str, Any] = {
            "kind": "cuda-driver",
            "plan": plan.to_json(),
            "grid_limits": list(lowered.metadata["grid_limits"]),
            "driver": required_driver(plan),
            "arch": arch,
            "capability": number,
            "exact": exact,
        }
        return _Launch(data, "cuda", "binary", ".cubin", ".cu")
    if lowered.route == "cpp":
        architecture, sets = instruction_sets()
        data = {
            "kind": "c-function",
            "function": lowered.metadata["call"]["name"],
            "types": list(lowered.metadata["call"]["types"]),
            "set_threads": _SET_THREADS,
            "machine": {"architecture": architecture, "instruction_sets": list(sets)},
        }
        return _Launch(data, "cpu", "library", ".so", ".cpp")
    raise UnsupportedOp(
        f"kernels for {kernel.target} cannot be exported yet: only those of the CUDA and CPU backends",
        hint="its native source is in get_kernel_source(), its built files in binary()",
        location=kernel.program.location,
    )


def _interface(kernel: Kernel, launch: _Launch, title: str, binary: Path) -> tuple[str, str]:
    content = binary.read_bytes()
    entry = BinaryFile(binary.name, len(content), fnv1a(content))
    signature, data = kernel.lowered.signature, launch.data
    try:
        if launch.device_type == "cpu":
            return cpu_interface(signature, data["function"], data["types"], data["set_threads"], title, entry)
        plan = native.plan_of(kernel.lowered)
        assert plan is not None
        return cuda_interface(signature, plan, data["grid_limits"], data["arch"], title, entry)
    except UnusablePlan as error:
        raise UnsupportedOp(
            f"{kernel.name} cannot be exported: {error}",
            hint="pass that number in a tensor of one element",
            location=kernel.program.location,
        ) from error


def _metadata(
    kernel: Kernel, built: BuiltKernel, launch: _Launch, paths: dict[str, Path], version: str
) -> dict[str, Any]:
    signature = kernel.lowered.signature
    return {
        "format": FORMAT,
        "schema": list(SCHEMA),
        "name": signature.name,
        "target": kernel.target,
        "device_type": launch.device_type,
        "signature": signature.to_json(),
        "symbols": {symbol: asdict(source) for symbol, source in symbol_sources(signature).items()},
        "launch": launch.data,
        "resources": asdict(built.resources),
        "config": kernel.config.to_json(),
        "made_by": {
            "tilehal": version,
            "backend": kernel.provenance.backend,
            "tilelang": kernel.provenance.tilelang,
            "toolchain": kernel.provenance.toolchain,
            "route": kernel.provenance.route,
            "rewrites": list(kernel.provenance.rewrites),
        },
        "files": {role: describe_file(path) for role, path in paths.items()},
    }
