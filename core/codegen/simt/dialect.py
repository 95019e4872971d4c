"""A vendor's device language as data: what the stock code generator's C++ is called there.

The stock generator prints HIP. A dialect says, for every name it may print, what the vendor's language calls it; a name
in no table is an error, never passed through. Most names of the tables are resolved by the headers in `tilehal/simt`,
which need only a small *platform header* from the vendor, so :data:`STOCK` covers a CUDA-like language and a vendor
states what differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class CompileStep:
    """How the vendor's compiler is called.

    Attributes:
        program: its file name.
        flags: always given. `{arch}` is the chip's architecture.
        include_flag, output_flag: prefixes of an include folder and of the output file.
        fast_math_flags: added with `fast_math`.
        source_suffix, binary_suffix: of the file names.
        environment: variables that hold the SDK's root, first one that is set wins.
        default_roots: where the SDK is otherwise.
        folders: of the program, relative to the root.
        include_folders: of the SDK's headers, relative to the root.
    """

    program: str
    flags: tuple[str, ...]
    source_suffix: str
    binary_suffix: str
    environment: tuple[str, ...] = ()
    default_roots: tuple[str, ...] = ()
    folders: tuple[str, ...] = ("bin",)
    include_folders: tuple[str, ...] = ("include",)
    include_flag: str = "-I"
    output_flag: str = "-o"
    fast_math_flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Dialect:
    """A device language.

    Attributes:
        name: the language of `LoweredKernel.language`, e.g. `maca`.
        headers: included by every kernel, in order; the platform header first.
        optional_headers: included when one of the names they define is used: header -> stock names.
        qualifiers: `__global__`, `__shared__`, `__launch_bounds__` and the like.
        types: scalar and vector types, and functions that make vectors.
        indices: `threadIdx`, `blockIdx`.
        barriers: `__syncthreads`.
        library: what TileLang's templates give: reductions, scans, atomics, copies, shuffles.
        maths: functions of one or more numbers.
        fast_maths: approximate versions, used instead with `fast_math`.
        matrix_operands: (dtype, elements per lane) -> C++ type of a matrix builtin's operand. An operand wider than the
            lane's elements is filled up with zeros.
        instruction_operands: the same for single instructions, where they differ: (architecture, instruction) -> type.
        runtime_prefix: of the runtime library's functions (`mc` in `mcModuleLoadData`).
        runtime_library, runtime_folders: file name of that library, and its folders under the SDK's root.
        compile: the vendor compiler.
        allowed: further names that generated code may use unchanged.
    """

    name: str
    headers: tuple[str, ...]
    runtime_prefix: str
    compile: CompileStep
    optional_headers: Mapping[str, frozenset[str]] = field(default_factory=dict)
    qualifiers: Mapping[str, str] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)
    indices: Mapping[str, str] = field(default_factory=dict)
    barriers: Mapping[str, str] = field(default_factory=dict)
    library: Mapping[str, str] = field(default_factory=dict)
    maths: Mapping[str, str] = field(default_factory=dict)
    fast_maths: Mapping[str, str] = field(default_factory=dict)
    matrix_operands: Mapping[tuple[str, int], str] = field(default_factory=dict)
    instruction_operands: Mapping[tuple[str, str], str] = field(default_factory=dict)
    runtime_library: str = ""
    runtime_folders: tuple[str, ...] = ("lib", "lib64")
    function_prefix: str = "__device__ __forceinline__"
    allowed: frozenset[str] = frozenset()

    def names(self, *, fast_math: bool = False) -> dict[str, str]:
        """Every stock name the dialect covers, and what it becomes."""
        tables = (self.qualifiers, self.types, self.indices, self.barriers, self.library, self.maths)
        merged = {name: name for name in self.allowed}
        for table in tables:
            merged.update(table)
        if fast_math:
            merged.update(self.fast_maths)
        return merged

    def derive(self, **changes: Any) -> Dialect:
        """A dialect that starts from this one: fields given replace this one's."""
        return replace(self, **changes)

    def with_names(self, **tables: Mapping[str, str]) -> Dialect:
        """The dialect with entries added to its tables, or replaced: `with_names(barriers={...})`."""
        return replace(self, **{name: {**getattr(self, name), **entries} for name, entries in tables.items()})  # type: ignore[arg-type]  # the names are tables


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


def _float32(*names: str) -> dict[str, str]:
    return {f"{name}f": f"{name}f" for name in names}


_VECTORS = [
    f"{base}{n}"
    for base in ("float", "int", "uint", "short", "ushort", "char", "uchar", "double")
    for n in (1, 2, 3, 4)
]
_VECTORS += ["longlong2", "longlong4", "ulonglong2", "ulonglong4", "long2", "long4", "ulong2", "ulong4"]
_INTEGER_VECTORS = ("int1", "int2", "int4", "uint1", "uint2", "uint4", "longlong2", "longlong4")
_FP8 = {"e4": "e4m3", "e5": "e5m2"}
_FP8_TYPES = {
    **{f"fp8_{short}_t": f"tilehal::{name}" for short, name in _FP8.items()},
    **{
        f"fp8_{short}_{count}_t": f"tilehal::{vector}<tilehal::{name}>"
        for short, name in _FP8.items()
        for count, vector in ((2, "pair8"), (4, "quad8"), (8, "octet8"), (16, "sixteen8"), (32, "thirtytwo8"))
    },
    "tl_fp8x2_get_lane": "tilehal::get_lane",
    "tl_fp8x2_set_lane": "tilehal::set_lane",
    **{
        f"make_fp8_{short}_{count}_t": f"tilehal::make_{vector}"
        for short in _FP8
        for count, vector in ((2, "pair8"), (4, "quad8"), (8, "octet8"), (16, "sixteen8"))
    },
}
_ATOMICS = (
    "AtomicAdd",
    "AtomicAddRet",
    "AtomicMax",
    "AtomicMin",
    "AtomicOr",
    "AtomicAddx2",
    "AtomicAddx4",
)
#: How the stock generator prints `T.shfl_*` (without a mask) and `T.tvm_warp_shuffle*` (with one).
_SHUFFLES = {
    **{f"__shfl{kind}": f"tilehal::shuffle{kind}" for kind in ("", "_xor", "_up", "_down")},
    **{f"__shfl{kind}_sync": f"tilehal::shuffle{kind}_masked" for kind in ("", "_up", "_down")},
}
_COMMON_MATHS = (
    "sqrt",
    "fabs",
    "floor",
    "ceil",
    "trunc",
    "fmod",
    "pow",
    "copysign",
    "hypot",
    "atan2",
    "ldexp",
    "nextafter",
)
_FUNCTIONS = (
    *("exp", "exp2", "exp10", "log", "log2", "log10", "log1p", "expm1", "sin", "cos", "tan", "sinh", "cosh", "tanh"),
    *("asin", "acos", "atan", "asinh", "acosh", "atanh", "erf", "nearbyint", "rsqrt", "fma", "cbrt"),
    *_COMMON_MATHS,
)
#: Of 16-bit floats, in `tilehal/simt/numeric.h`.
_NARROW_FUNCTIONS = (
    *("exp", "exp2", "exp10", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "sinh", "cosh", "tanh"),
    *("asin", "acos", "atan", "asinh", "acosh", "atanh", "erf", "sqrt", "rsqrt", "pow", "floor", "ceil", "trunc"),
)

#: What a CUDA-like language and the `tilehal/simt` headers cover. A vendor's dialect starts from it.
STOCK = Dialect(
    name="simt",
    headers=(
        "tilehal/simt/types.h",
        "tilehal/simt/numeric.h",
    ),
    optional_headers={
        "tilehal/simt/reduce.h": frozenset({"AllReduce"}),
        "tilehal/simt/scan.h": frozenset({"CumSum1D", "CumSum2D", "CumMax1D", "CumMax2D"}),
        "tilehal/simt/lanes.h": frozenset(_SHUFFLES),
        "tilehal/simt/copy.h": frozenset(
            {"cp_async_gs", "cp_async_gs_conditional", "cp_async_commit", "cp_async_wait"}
        ),
        "tilehal/simt/atomic.h": frozenset(_ATOMICS),
        "tilehal/simt/swizzle.h": frozenset({"rasterization2DRow", "rasterization2DColumn"}),
        "tilehal/simt/fp8.h": frozenset(_FP8_TYPES),
        "tilehal/simt/debug.h": frozenset({"debug_print_msg", "debug_print_var", "debug_print_buffer_value"}),
    },
    runtime_prefix="",
    compile=CompileStep("", (), ".cpp", ".bin"),
    qualifiers=_same("__global__", "__shared__", "__launch_bounds__", "__restrict__", "__align__", "volatile"),
    types={
        **_same("int64_t", "uint64_t", "int32_t", "uint32_t", "int16_t", "uint16_t", "int8_t", "uint8_t", "size_t"),
        **_same("half_t", "bfloat16_t", "uint", "uchar", "ushort"),
        **_same(*_VECTORS, *(f"make_{name}" for name in _VECTORS)),
        **{f"make_{name}": f"tilehal::make_vector<{name}>" for name in _INTEGER_VECTORS},
        **_FP8_TYPES,
        "half": "half_t",
        "half2": "tilehal::half2",
        "bfloat16x2": "tilehal::bfloat16x2",
        "dim3": "tilehal::BlockPlace",
        "__pack_half2": "tilehal::pack2",
        "__pack_bfloat162": "tilehal::pack2",
        "__builtin_bit_cast": "__builtin_bit_cast",
        "__float2half_rn": "half_t",
    },
    indices=_same("threadIdx", "blockIdx", "gridDim", "blockDim"),
    barriers=_same("__syncthreads"),
    library={
        "tl::AllReduce": "tilehal::AllReduce",
        "tl::SumOp": "tilehal::Sum",
        "tl::MaxOp": "tilehal::Max",
        "tl::MinOp": "tilehal::Min",
        "tl::BitAndOp": "tilehal::BitAnd",
        "tl::BitOrOp": "tilehal::BitOr",
        "tl::BitXorOp": "tilehal::BitXor",
        **{f"tl::Cum{kind}{n}D": f"tilehal::Cum{kind}{n}D" for kind in ("Sum", "Max") for n in (1, 2)},
        "tl::cp_async_gs": "tilehal::copy_start",
        "tl::cp_async_gs_conditional": "tilehal::copy_start_if",
        "tl::cp_async_commit": "tilehal::copy_commit",
        "tl::cp_async_wait": "tilehal::copy_wait",
        "tl::rasterization2DRow": "tilehal::rasterization2DRow",
        "tl::rasterization2DColumn": "tilehal::rasterization2DColumn",
        "tl::Any": "tilehal::any",
        "tl::All": "tilehal::all",
        **{f"tl::{name}": f"tilehal::{name}" for name in ("add2", "sub2", "mul2", "fma2", "max2", "min2", "abs2")},
        "tl::max": "tilehal::max",
        "tl::min": "tilehal::min",
        "max": "tilehal::max",
        "min": "tilehal::min",
        **{name: f"tilehal::{name}" for name in _ATOMICS},
        **_SHUFFLES,
        **{name: f"tilehal::{name}" for name in ("debug_print_msg", "debug_print_var", "debug_print_buffer_value")},
    },
    maths={
        **_float32(*_FUNCTIONS),
        **_same(*_FUNCTIONS),
        **_same("HUGE_VALF", "HUGE_VAL", "isnan", "isinf", "isfinite", "abs", "__popc", "__popcll", "__clz", "__clzll"),
        # The stock generator prints approximate functions always; they are meant only with fast_math.
        **{f"__{name}f": f"{name}f" for name in ("exp", "exp10", "log", "log2", "log10", "sin", "cos", "tan")},
        "roundf": "nearbyintf",
        "round": "nearbyint",
        **{
            stock: f"tilehal::narrow_{name}"
            for stock, name in (
                *((f"h{name}", name) for name in _NARROW_FUNCTIONS),
                ("hrint", "round"),
                ("hround", "round"),
                ("hnearbyint", "round"),
            )
        },
        "__habs": "tilehal::magnitude",
        "__hmax": "tilehal::max",
        "__hmin": "tilehal::min",
    },
    fast_maths=_same(*(f"__{name}f" for name in ("exp", "log", "log2", "log10", "sin", "cos"))),
)
