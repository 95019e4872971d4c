"""What a program needs and does, whatever the chip: bytes, lifetimes, operations, traffic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.program import walk
from core.program.evaluate import evaluate
from core.program.lifetimes import BufferUse, buffer_bytes, buffer_uses, by_scope, peak_bytes, sum_bytes
from core.program.nodes import Gemm, Launch, Scope, Var, View
from core.program.traffic import Traffic, count

if TYPE_CHECKING:
    from core.compiler.artifacts import Resources
    from core.hardware import Chip

_REGISTER_BYTES = 4


@dataclass(frozen=True, slots=True)
class LaunchFootprint:
    """One launch.

    Attributes:
        uses: every allocation, in declaration order.
        grid: blocks per axis; None where a symbolic dimension has no value.
        threads: threads per block the author asked for, or None.
    """

    launch: Launch
    uses: tuple[BufferUse, ...]
    grid: tuple[int | None, ...]
    threads: int | None

    @property
    def bytes(self) -> Mapping[str, int | None]:
        """Bytes per TileLang scope when every buffer has memory of its own."""
        return {scope: sum_bytes(uses) for scope, uses in by_scope(self.uses).items()}

    @property
    def peak_bytes(self) -> Mapping[str, int | None]:
        """Bytes per TileLang scope when buffers with disjoint lifetimes share memory."""
        return {scope: peak_bytes(uses) for scope, uses in by_scope(self.uses).items()}

    @property
    def fragment_registers(self) -> int | None:
        """32-bit registers per thread that fragments hold at their peak, evenly spread; None without a thread count."""
        fragments = tuple(use for use in self.uses if use.buffer.scope is Scope.FRAGMENT)
        peak = peak_bytes(fragments)
        if peak is None or self.threads is None:
            return None
        return -(-peak // (self.threads * _REGISTER_BYTES))


@dataclass(frozen=True, slots=True)
class Footprint:
    """A whole program.

    Attributes:
        launches: one entry per launch.
        flops: floating-point operations of one call (a multiply-add counts two); None when a size is unknown.
        bytes_read, bytes_written: global memory traffic of one call, each tile fetched as the kernel says and no
            further in any dimension than its tensor goes; None when a size is unknown.
        workspace_bytes: global scratch memory of the program.
    """

    launches: tuple[LaunchFootprint, ...]
    flops: float | None
    bytes_read: float | None
    bytes_written: float | None
    workspace_bytes: int | None

    @property
    def arithmetic_intensity(self) -> float | None:
        """Operations per byte of global memory traffic; None when unknown or nothing is moved."""
        from core.compiler.artifacts import Resources

        figures = Resources(flops=self.flops, bytes_read=self.bytes_read, bytes_written=self.bytes_written)
        return figures.arithmetic_intensity

    def resources(self, chip: Chip) -> Resources:
        """The figures as `Resources`, with each scope's peak bytes under the chip's memory that serves it.

        Of several launches the largest demand counts. Scopes the chip describes no memory for are left out.
        """
        from core.compiler.artifacts import Resources

        memory: dict[str, int] = {}
        for launch in self.launches:
            for name, uses in memory_demand(launch, chip).items():
                peak = peak_bytes(uses)
                if peak is not None:
                    memory[name] = max(memory.get(name, 0), peak)
        threads = [launch.threads for launch in self.launches if launch.threads is not None]
        return Resources(
            memory_bytes=memory,
            threads=max(threads, default=None),
            workspace_bytes=self.workspace_bytes,
            flops=self.flops,
            bytes_read=self.bytes_read,
            bytes_written=self.bytes_written,
        )


def memory_demand(launch: LaunchFootprint, chip: Chip) -> Mapping[str, tuple[BufferUse, ...]]:
    """Allocations by the name of the chip's on-chip memory that serves their scope.

    Where several memories serve one scope (a vector and a matrix buffer), what matrix products take goes to the second:
    operands, also those that a kernel keeps in fragments, to that of the operands, sums to that of the sums.
    """
    products = [stmt for stmt in walk.statements(launch.launch.body) if isinstance(stmt, Gemm)]
    operands = {id(region.buffer.storage) for stmt in products for region in (stmt.a, stmt.b)}
    sums = {id(stmt.c.buffer.storage) for stmt in products}
    demand: dict[str, tuple[BufferUse, ...]] = {}
    for use in launch.uses:
        key = id(use.buffer.storage)
        served = chip.memories_for_scope(use.scope) if use.buffer.scope is not Scope.GLOBAL else ()
        if len(served) > 1 and key in operands:
            served = chip.memories_for_scope("shared") or served
        if served:
            memory = served[min(1, len(served) - 1) if key in operands | sums else 0]
            demand[memory.name] = (*demand.get(memory.name, ()), use)
    return demand


def footprint(view: View, symbols: Mapping[str, int] | None = None) -> Footprint:
    """Analyses a view.

    Args:
        symbols: values of symbolic dimensions (and scalar parameters) by name; what depends on others is unknown.
    """
    environment: dict[Var | str, int] = {}
    environment.update(symbols or {})
    launches = []
    traffic = Traffic()
    workspace: int | None = 0
    for buffer in view.workspaces:
        size = buffer_bytes(buffer, environment)
        workspace = None if workspace is None or size is None else workspace + size
    for launch in view.launches:
        uses = buffer_uses(launch, environment)
        threads = launch.threads
        launches.append(
            LaunchFootprint(
                launch,
                uses,
                tuple(evaluate(extent, environment) for _, extent in launch.grid),
                None if threads is None else threads[0] * threads[1] * threads[2],
            )
        )
        count(launch, environment, traffic)
        scratch = sum_bytes(use for use in uses if use.buffer.scope is Scope.GLOBAL)
        workspace = None if workspace is None or scratch is None else workspace + scratch
    return Footprint(
        launches=tuple(launches),
        flops=traffic.flops if traffic.known else None,
        bytes_read=traffic.bytes_read if traffic.known else None,
        bytes_written=traffic.bytes_written if traffic.known else None,
        workspace_bytes=workspace,
    )
