"""What a library compiled for this CPU may need of another one: its architecture and instruction sets."""

from __future__ import annotations

import platform
from pathlib import Path

#: Instruction sets that a compiler uses by itself with `-march=native`, in the spelling of Linux's `/proc/cpuinfo`.
_X86 = frozenset(
    "abm adx aes avx avx2 avx_vnni bmi1 bmi2 f16c fma gfni movbe pclmulqdq popcnt sha_ni sse4_1 sse4_2 ssse3 vaes "
    "vpclmulqdq amx_bf16 amx_int8 amx_tile".split()
)
_ARM = frozenset("asimd asimdhp asimddp fphp bf16 i8mm sve sve2 svebf16 svei8mm lse aes sha2 sha3".split())


def instruction_sets(root: Path = Path("/")) -> tuple[str, tuple[str, ...]]:
    """Architecture, and the instruction sets above its baseline; none where Linux does not list them."""
    architecture = platform.machine()
    try:
        lines = (root / "proc" / "cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return architecture, ()
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            found = set(value.split())
            wanted = {flag for flag in found if flag in _X86 or flag in _ARM or flag.startswith("avx512")}
            return architecture, tuple(sorted(wanted))
    return architecture, ()
