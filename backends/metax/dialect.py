"""MACA C++ as a device dialect: what differs from the CUDA-like language that core's tables describe.

Facts and their sources are in docs/metax.md.
"""

from __future__ import annotations

from core.codegen.simt import STOCK, CompileStep

#: mxcc as tile-ai/tilelang-metax calls it; `--offload-arch` gets what macainfo reports, or the chip's architecture.
MXCC = CompileStep(
    program="mxcc",
    flags=(
        "-x",
        "maca",
        "-device-obj",
        "-O3",
        "-lineinfo",
        "--offload-arch={arch}",
        "-std=c++17",
        "-D__FAST_HALF_CVT__",
        # Registers and shared memory are read as the vectors they are stored as.
        "-fno-strict-aliasing",
    ),
    # Not -ffast-math, which would assume that there are no infinities: masks are made of them.
    fast_math_flags=("-ffp-contract=fast", "-fapprox-func", "-fno-math-errno"),
    source_suffix=".maca",
    binary_suffix=".mcbin",
    environment=("MACA_PATH", "MACA_HOME"),
    default_roots=("/opt/maca",),
    folders=("mxgpu_llvm/bin", "bin"),
)

_P = "tilehal::platform::"

MACA = STOCK.derive(
    name="maca",
    headers=("tilehal/maca/platform.h", *STOCK.headers),
    runtime_prefix="mc",
    runtime_library="libmcruntime.so",
    compile=MXCC,
    matrix_operands={
        ("float16", 4): f"{_P}f16x4",
        ("bfloat16", 4): f"{_P}i16x4",
        ("float32", 1): "float",
        ("tfloat32", 2): f"{_P}f32x2",
        ("float64", 1): "double",
        ("int8", 4): "int",
        ("int8", 8): f"{_P}i32x2",
        ("float8_e4m3fn", 8): f"{_P}i32x2",
        ("float8_e5m2", 8): f"{_P}i32x2",
        ("float32", 4): f"{_P}f32x4",
        ("float64", 4): f"{_P}f64x4",
        ("int32", 4): f"{_P}i32x4",
    },
    # From xcore1500 on the 16x16x16 integer builtin takes two words, of which the second is zero.
    instruction_operands={(arch, "__builtin_mxc_mma_16x16x16i8"): f"{_P}i32x2" for arch in ("xcore1500", "xcore1600")},
)
