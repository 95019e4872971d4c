"""Instruction-set features: from the kernel's spelling to the compilers' (`-mavx512vnni`, LLVM's `+avx512vnni`)."""

from __future__ import annotations

from collections.abc import Iterable

#: x86: name in /proc/cpuinfo -> compilers' name. Only what changes generated code; the kernel lists much more.
_X86 = {
    "sse2": "sse2",
    "pni": "sse3",
    "ssse3": "ssse3",
    "sse4_1": "sse4.1",
    "sse4_2": "sse4.2",
    "popcnt": "popcnt",
    "abm": "lzcnt",
    "bmi1": "bmi",
    "bmi2": "bmi2",
    "movbe": "movbe",
    "f16c": "f16c",
    "fma": "fma",
    "avx": "avx",
    "avx2": "avx2",
    "avx_vnni": "avxvnni",
    "avx512f": "avx512f",
    "avx512cd": "avx512cd",
    "avx512bw": "avx512bw",
    "avx512dq": "avx512dq",
    "avx512vl": "avx512vl",
    "avx512ifma": "avx512ifma",
    "avx512vbmi": "avx512vbmi",
    "avx512_vbmi2": "avx512vbmi2",
    "avx512_vnni": "avx512vnni",
    "avx512_bitalg": "avx512bitalg",
    "avx512_vpopcntdq": "avx512vpopcntdq",
    "avx512_bf16": "avx512bf16",
    "avx512_fp16": "avx512fp16",
    "amx_tile": "amx-tile",
    "amx_int8": "amx-int8",
    "amx_bf16": "amx-bf16",
    "amx_fp16": "amx-fp16",
    "gfni": "gfni",
}
#: Arm: the same for the line `Features`.
_ARM = {
    "asimd": "neon",
    "asimddp": "dotprod",
    "asimdhp": "fullfp16",
    "atomics": "lse",
    "bf16": "bf16",
    "i8mm": "i8mm",
    "sve": "sve",
    "sve2": "sve2",
    "sme": "sme",
}
#: Width of the widest SIMD registers a feature brings, in bits, widest first. SVE is not here: its width is asked for.
_SIMD_BITS = (("avx512f", 512), ("avx", 256), ("sse2", 128), ("neon", 128))


def compiler_features(flags: Iterable[str], machine: str) -> tuple[str, ...]:
    """The features of a list of kernel flags, in a fixed order; empty for a machine this table does not know."""
    table = _X86 if machine in ("x86_64", "i686") else _ARM if machine in ("aarch64", "arm64") else {}
    present = set(flags)
    return tuple(name for flag, name in table.items() if flag in present)


def simd_bits(features: Iterable[str], sve_bytes: int | None = None) -> int | None:
    """Width of the widest SIMD registers in bits, None when no feature says."""
    if sve_bytes:
        return 8 * sve_bytes
    present = set(features)
    return next((bits for name, bits in _SIMD_BITS if name in present), None)
