"""What a portability report says: plain records, JSON-able."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from core.errors import Location


class Status(StrEnum):
    """What a chip makes of a line, best first."""

    NATIVE = "native"
    EMULATED = "emulated"  # the same meaning by other instructions: slower than the line looks
    UNKNOWN = "unknown"  # nothing known here decides it; compiling for the chip does
    REFUSED = "refused"


_ORDER = tuple(Status)


def worst(statuses: Iterable[Status]) -> Status:
    """The worst of some verdicts; native when there is none."""
    return max(statuses, key=_ORDER.index, default=Status.NATIVE)


#: Every rule a remark may come from, with what it is about. The names are stable: SARIF rule ids.
RULES: Mapping[str, str] = {
    "shape-mismatch": "Regions, operands or indices that do not fit their buffers or each other.",
    "unsupported-op": "A construct or a combination of types the chip cannot express.",
    "resource-exceeded": "More memory, threads or blocks than the chip has.",
    "kernel": "The kernel cannot be read.",
    "thread-index": "Per-thread code on a chip that runs blocks as a whole.",
    "opaque-construct": "A construct only TileLang's own backends know.",
    "unserved-scope": "A buffer in a memory the chip does not have, or does not describe.",
    "wave-width": "A literal 32 taken for the number of threads in a wave.",
    "pipelining": "Pipeline stages where copies are synchronous.",
    "no-matrix-instruction": "A matrix product of types the chip has no matrix instruction for.",
    "product-operand-in-fragment": "A product without a matrix instruction whose operand is in a fragment.",
    "float32-product": "A float32 matrix product on a chip whose matrix unit would round it to TF32.",
    "sliced-reduce": "A reduction of a slice, which TileLang's lowering ignores.",
    "unguarded-fill": "A fill of an on-chip buffer that may run past its end.",
    "safe-value-without-tma": "A copy with a non-zero safe value, which TMA ignores.",
    "symbolic-rows-without-tma": "A copy of rows of symbolic length, which TMA may not take.",
    "odd-warpgroup-tile": "A tile that warpgroup instructions compute wrongly.",
    "narrow-integers": "8- or 16-bit integer arithmetic, which C widens.",
    "signed-popcount": "Bits of a signed integer, which TileLang counts for unsigned ones only.",
    "fragment-element": "One place of a fragment by number, which TileLang cannot address.",
    "kept-dimension": "A reduction whose result keeps the reduced dimension, for which TileLang finds no layout.",
    "moved-by-specialisation": "What warp specialisation would move where it means something else.",
    "copy-awaited-too-late": "A bulk copy whose tile is used before warp specialisation waits for it.",
    "pipelined-tile-viewed": "A pipelined loop that fills a tile and uses it through a view: it gets no versions.",
    "order-of-global-memory": "Statements of a block that touch global memory which another of them writes.",
    "uneven-rows": "A reduction of rows whose length is no power of two, for which TileLang often finds no layout.",
}


@dataclass(frozen=True, slots=True)
class Remark:
    """Something to say about one line on one chip.

    Attributes:
        rule: a key of :data:`RULES`.
        message: what is the matter, one sentence or a short table.
        hint: what to change; empty when there is nothing to change.
        warning: the author must look: it may compile and be wrong, or not compile.
    """

    rule: str
    status: Status
    message: str
    hint: str = ""
    location: Location | None = None
    warning: bool = False

    @property
    def level(self) -> str:
        """SARIF's level: error, warning or note."""
        return "error" if self.status is Status.REFUSED else "warning" if self.warning else "note"

    def to_json(self) -> dict[str, Any]:
        return {
            "rule": self.rule,
            "status": self.status.value,
            "level": self.level,
            "message": self.message,
            "hint": self.hint,
        }


@dataclass(frozen=True, slots=True)
class LineVerdict:
    """One line of the kernel on one chip. `constructs`: the nodes of the view that stand there (`copy`, `gemm`)."""

    location: Location
    constructs: tuple[str, ...]
    remarks: tuple[Remark, ...] = ()

    @property
    def status(self) -> Status:
        return worst(remark.status for remark in self.remarks)

    def to_json(self) -> dict[str, Any]:
        return {
            "file": self.location.file,
            "line": self.location.line,
            "constructs": list(self.constructs),
            "status": self.status.value,
            "remarks": [remark.to_json() for remark in self.remarks],
        }


@dataclass(frozen=True, slots=True)
class MemoryVerdict:
    """What one launch needs of one memory of the chip, bytes per block.

    Attributes:
        launch: which `T.Kernel` of the program, from 0.
        needed_bytes: None when it depends on a symbolic dimension.
        limit_bytes: None when nobody has published it, or when what is too much spills.
        spills: too much is slow, not refused: registers.
        room_bytes: of a memory that spills, the most that the block's threads can have; None when it is unknown.
        hint: how it would fit.
    """

    launch: int
    memory: str
    needed_bytes: int | None
    limit_bytes: int | None
    spills: bool = False
    hint: str = ""
    room_bytes: int | None = None

    @property
    def fits(self) -> bool | None:
        """Whether it fits; None when either figure is unknown."""
        if self.needed_bytes is None or self.limit_bytes is None:
            return None
        return self.needed_bytes <= self.limit_bytes

    def to_json(self) -> dict[str, Any]:
        return {
            "launch": self.launch,
            "memory": self.memory,
            "needed_bytes": self.needed_bytes,
            "limit_bytes": self.limit_bytes,
            "fits": self.fits,
            "spills": self.spills,
            "room_bytes": self.room_bytes,
            "hint": self.hint,
        }


@dataclass(frozen=True, slots=True)
class ChipReport:
    """A kernel on one chip.

    Attributes:
        compiles: empty when this installation can compile for the chip, else why it cannot. The verdicts come from the
            descriptor and hold either way.
        lines: every line of the kernel that does something, in source order.
        memories: the on-chip memories the kernel uses.
    """

    target: str
    title: str
    compiles: str
    lines: tuple[LineVerdict, ...]
    memories: tuple[MemoryVerdict, ...]

    @property
    def status(self) -> Status:
        """The worst of its lines."""
        return worst(line.status for line in self.lines)

    def line(self, number: int) -> LineVerdict:
        """The verdict on a line of the kernel's file. Raises KeyError when nothing stands there."""
        for line in self.lines:
            if line.location.line == number:
                return line
        raise KeyError(number)

    def to_json(self) -> dict[str, Any]:
        return {
            "target": self.target,
            "title": self.title,
            "status": self.status.value,
            "compiles": self.compiles or True,
            "lines": [line.to_json() for line in self.lines],
            "memories": [memory.to_json() for memory in self.memories],
        }


@dataclass(frozen=True, slots=True)
class Report:
    """A kernel on several chips. `tiles`: tile parameters that were chosen here because the caller gave none."""

    kernel: str
    location: Location | None
    chips: tuple[ChipReport, ...]
    tiles: Mapping[str, int | str]

    @property
    def status(self) -> Status:
        """The worst of its chips."""
        return worst(chip.status for chip in self.chips)

    def chip(self, target: str) -> ChipReport:
        """The report for a target, as `Chip.target` spells it. Raises KeyError when it was not asked for."""
        for chip in self.chips:
            if chip.target == target:
                return chip
        raise KeyError(target)

    def to_json(self) -> dict[str, Any]:
        return {
            "kernel": self.kernel,
            "file": self.location.file if self.location else None,
            "line": self.location.line if self.location else None,
            "status": self.status.value,
            "tiles": dict(self.tiles),
            "chips": [chip.to_json() for chip in self.chips],
        }
