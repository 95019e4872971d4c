"""How exported kernels are launched: what a backend's `tilehal_export` gives for the launches that there are.

`core.runtime.load_exported` runs both kinds, and both have a loader in C. A vendor with another launch fills in an
:class:`core.compiler.Export` of its own, and implements `tilehal_load` for Python.
"""

from __future__ import annotations

from core.codegen import native
from core.codegen.launch import capability, required_driver
from core.codegen.launch.c_interface import BinaryFile, cpu_interface, cuda_interface, fnv1a
from core.compiler.artifacts import Export, LoweredKernel
from core.errors import UnsupportedOp
from core.runtime.machine import instruction_sets

#: The function of every library of the C++ family that sets the number of threads (core/codegen/cpp/runtime/ffi.hpp).
_SET_THREADS = "__tvm_ffi_tilehal_pool_1"


def cuda_driver(lowered: LoweredKernel, arch: str) -> Export:
    """A cubin that the CUDA driver loads, launched by the plan of a kernel lowered by `core.codegen.native`.

    Args:
        arch: what the binary is built for (`sm_90a`).

    Raises:
        UnsupportedOp: only TileLang's own host code can launch the kernel.
    """
    plan = native.plan_of(lowered)
    if plan is None:
        raise UnsupportedOp(
            f"{lowered.signature.name} cannot be exported: {lowered.metadata.get(native.UNPLANNED)}, which only"
            " TileLang's own host code can do",
            hint="call it through core.compile, or split it into kernels that need none of that",
        )
    limits = list(lowered.metadata["grid_limits"])
    number, exact = capability(arch)
    data = {
        "kind": "cuda-driver",
        "plan": plan.to_json(),
        "grid_limits": limits,
        "driver": required_driver(plan),
        "arch": arch,
        "capability": number,
        "exact": exact,
    }

    def interface(title: str, binary: str, content: bytes) -> tuple[str, str]:
        return cuda_interface(lowered.signature, plan, limits, arch, title, _checked(binary, content))

    return Export(data, "cuda", "binary", ".cubin", ".cu", interface)


def c_function(lowered: LoweredKernel) -> Export:
    """A shared library of this machine with one C function, of a kernel lowered by `core.codegen.cpp`."""
    architecture, sets = instruction_sets()
    call = lowered.metadata["call"]
    data = {
        "kind": "c-function",
        "function": call["name"],
        "types": list(call["types"]),
        "set_threads": _SET_THREADS,
        "machine": {"architecture": architecture, "instruction_sets": list(sets)},
    }

    def interface(title: str, binary: str, content: bytes) -> tuple[str, str]:
        file = _checked(binary, content)
        return cpu_interface(lowered.signature, call["name"], data["types"], _SET_THREADS, title, file)

    return Export(data, "cpu", "library", ".so", ".cpp", interface)


def _checked(binary: str, content: bytes) -> BinaryFile:
    return BinaryFile(binary, len(content), fnv1a(content))
