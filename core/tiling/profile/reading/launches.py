"""One walk over the statements of a launch: its profile."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod

from core.program.evaluate import evaluate
from core.program.expressions import constant_int
from core.program.lifetimes import buffer_bytes
from core.program.nodes import (
    AtomicElement,
    AtomicTile,
    Compare,
    Copy,
    Fill,
    For,
    Gemm,
    If,
    Im2Col,
    Launch,
    Let,
    OpaqueExpr,
    OpaqueStmt,
    Parallel,
    Reduce,
    ReducerFinalize,
    ReducerUpdate,
    Region,
    Scan,
    Scope,
    Stmt,
    Store,
    Transpose,
    Var,
    While,
)
from core.tiling.profile.formula import Formula, axis, formula_of
from core.tiling.profile.reading.compact import compact
from core.tiling.profile.reading.elements import filled, parallel_variables, scattered, uneven
from core.tiling.profile.reading.entries import Entries, receivers
from core.tiling.profile.reading.order import rounds
from core.tiling.profile.reading.roles import join_copiers, thread_split
from core.tiling.profile.records import LaunchProfile, Loop, Reduction

_SWIZZLE = re.compile(r"rasterization2D(Row|Column)\D+(\d+)")
#: Statements that order others and move nothing.
_WAITS = re.compile(r"barrier|wait|sync|max_nreg|fence|arrive|warpgroup", re.IGNORECASE)


def read_launch(launch: Launch, environment: dict[Var | str, int], unknown: dict[str, None]) -> LaunchProfile:
    """The profile of a launch.

    Args:
        environment: values of symbolic dimensions and scalar parameters.
        unknown: what could not be read off is added here, one sentence each.
    """
    return _Reader(launch, environment, unknown).read()


@dataclass
class _Reader(Entries):
    """One walk. Threads that do different things are in roles; `branches` are the loops where one may divide again."""

    role: str = ""
    roles: dict[str, range] = field(default_factory=dict)
    branches: dict[int, range] = field(default_factory=dict)

    def read(self) -> LaunchProfile:
        launch = self.launch
        self.cluster = _cluster(launch)
        self.loops.append(Loop(-1, 0, 1, 0))
        if launch.threads is not None:
            self.branches[0] = range(prod(launch.threads))
        self._body(launch.body, 0, {})
        order, panel = _swizzle(launch)
        threads = None if launch.threads is None else prod(launch.threads)
        computed = {work.loop for work in self.vector if work.kind != "index" and not work.fills}
        working = {self.loops[loop].role for loop in computed | {product.loop for product in self.products}}
        # Where all threads multiply, a branch of some of them is a detail.
        everyone = any(not self.loops[product.loop].role for product in self.products)
        computing = set() if everyone else working - {""}
        copiers = {self.loops[access.loop].role for access in self.accesses} - working - {""}
        if copiers:
            sizes = {b.storage.name: buffer_bytes(b, self.environment) or 0 for b in reversed(launch.buffers)}
            join_copiers(self.loops, self.accesses, self.products, copiers, self.real_loops, sizes)
        found = LaunchProfile(
            grid=tuple(self.number(extent, "a grid axis") for _, extent in launch.grid),
            threads=threads,
            copy_threads=(threads or 0) - sum(len(self.roles[role]) for role in computing) if computing else 0,
            roles=tuple((role, len(self.roles[role])) for role in sorted(computing)),
            order=order,
            panel=panel,
            cluster=self.cluster,
            loops=tuple(self.loops),
            accesses=tuple(self.accesses),
            shared=tuple(self.shared),
            products=tuple(self.products),
            vector=tuple(self.vector),
            reductions=tuple(self.reductions),
            buffers=self.buffers(),
        )
        return compact(found)

    # -- Statements --------------------------------------------------------------------------------------------------

    def _body(self, body: tuple[Stmt, ...], loop: int, parallel: Mapping[Var, int]) -> None:
        for stmt in body:
            self._visit(stmt, loop, parallel)

    def _visit(self, stmt: Stmt, loop: int, parallel: Mapping[Var, int]) -> None:
        match stmt:
            case For(var=var, start=start, extent=extent, body=body):
                index = self._enter(
                    loop, self.formula(start, "a loop's start"), self.formula(extent, "a loop"), stmt.num_stages
                )
                self.loops[index] = replace(self.loops[index], uncounted=constant_int(extent) is None)
                self.real_loops.add(index)
                self.names[var] = f"loop{index}"
                self._body(body, index, parallel)
            case Parallel(vars=variables, extents=extents, body=body):
                sizes = [self.number(extent, "a parallel loop") for extent in extents]
                outer = self.fills, self.scattered
                self.fills = tuple(buffer.storage.name for buffer in filled(stmt))
                self.scattered = scattered(stmt)
                self._body(body, loop, {**parallel, **dict(zip(variables, sizes, strict=True))})
                self.fills, self.scattered = outer
            case While(body=body):
                self.unknown["a while loop's trips depend on data: taken as 1"] = None
                self._body(body, self._enter(loop, 0, 1, 0), parallel)
            case If():
                self._conditional(stmt, loop, parallel)
            case Let(var=var, value=OpaqueExpr(operation="tl.block_rank_in_cluster")):
                self.names[var] = ("floormod", axis(0), self.cluster)
            case Let(var=var, value=value):
                formula = formula_of(value, self.names)
                if formula is not None:
                    self.names[var] = formula
                else:
                    self.origins[var] = frozenset(self.varies((value,)))
                if parallel:
                    if uneven(value, self.bound, self.divided):
                        self.divided.add(var)
                    self.bound[var] = frozenset(parallel_variables((value,), self.bound))
                self.expression(value, loop, parallel)
            case OpaqueStmt(operation=operation):
                if not _WAITS.search(operation):
                    self.unknown[f"{operation} is opaque to the tile-level view: not counted"] = None
            case _:
                self._operator(stmt, loop, parallel)

    def _enter(self, parent: int, start: Formula, trips: Formula, stages: int) -> int:
        self.loops.append(Loop(parent, start, trips, stages, False, self.role))
        return len(self.loops) - 1

    def _conditional(self, stmt: If, loop: int, parallel: Mapping[Var, int]) -> None:
        then, otherwise = stmt.then, stmt.otherwise
        taken = formula_of(stmt.condition, self.names)
        # Where all threads, or all of one branch, divide again: each side is a role of its own.
        own = self.branches.get(loop)
        if own is not None and isinstance(stmt.condition, Compare):
            split = thread_split(stmt.condition, own, evaluate(stmt.condition.b, self.environment))
            if split is not None:
                self._divide(tuple(zip((then, otherwise), split, strict=True)), loop, parallel)
                return
        if taken is not None and not otherwise and (trips := rounds(taken, loop, self.loops)) is not None:
            self.loops[loop] = replace(self.loops[loop], trips=trips)
            self._body(then, loop, parallel)
            return
        if taken is None:  # it depends on data or on the element: both sides are issued
            self._body(then, loop, parallel)
            self._body(otherwise, loop, parallel)
            return
        if then:
            self._body(then, self._enter(loop, 0, ("ne", taken, 0), 0), parallel)
        if otherwise:
            self._body(otherwise, self._enter(loop, 0, ("eq", taken, 0), 0), parallel)

    def _divide(
        self, sides: tuple[tuple[tuple[Stmt, ...], range], ...], loop: int, parallel: Mapping[Var, int]
    ) -> None:
        outer = self.role
        for body, threads in sides:
            if body and threads:
                self.role = f"role{len(self.roles)}"
                self.roles[self.role] = threads
                index = self._enter(loop, 0, 1, 0)
                self.branches[index] = threads
                self._body(body, index, parallel)
                self.role = outer

    def _operator(self, stmt: Stmt, loop: int, parallel: Mapping[Var, int]) -> None:
        match stmt:
            case Copy(src=src, dst=dst):
                self.copy(src, dst, loop, receivers(stmt))
            case Transpose(src=src, dst=dst):
                self.copy(src, dst, loop)
            case Im2Col(src=src, dst=dst):
                self.box(
                    src.buffer,
                    "read",
                    self.window(stmt),
                    (stmt.m_step, stmt.k_step),
                    dst.buffer,
                    False,
                    loop,
                    window=True,
                )
            case Scan(src=src, dst=dst):
                self.copy(src, dst, loop)
                self.reduction(src, stmt.dim, dst.buffer.dtype, loop)
            case Fill(dst=dst):
                self.touch(dst, "write", Scope.LOCAL, loop)
                if dst.buffer.scope is not Scope.GLOBAL:
                    self.add("arithmetic", dst.buffer.dtype, loop, prod(self.extents(dst)))
            case Gemm():
                self.product(stmt, loop)
            case Reduce(src=src, dst=dst):
                self.touch(src, "read", dst.buffer.scope, loop)
                self.reduction(src, stmt.dim, dst.buffer.dtype, loop)
            case AtomicTile(value=value, dst=dst):
                self.access(dst, "atomic", None, self.is_accumulator(value), loop)
                if isinstance(value, Region):
                    self.touch(value, "read", Scope.LOCAL, loop)
            case AtomicElement(target=target, value=value):
                self.element(target.buffer, target.indices, "atomic", loop, parallel)
                self.expression(value, loop, parallel)
            case Store(buffer=buffer, indices=indices, value=value):
                self.element(buffer, indices, "write", loop, parallel)
                self.expression(value, loop, parallel)
            case ReducerUpdate(value=value):
                self.add("arithmetic", value.dtype, loop, prod(parallel.values()))
                self.expression(value, loop, parallel)
            case ReducerFinalize(dst=dst):
                rows = prod(self.extents(dst))
                self.reductions.append(Reduction(dst.buffer.dtype, rows, 1, False, loop))


def _cluster(launch: Launch) -> int:
    dims = launch.annotations.get("cluster_dims")
    return prod(dims) if isinstance(dims, tuple) else 1


def _swizzle(launch: Launch) -> tuple[str, int]:
    found = _SWIZZLE.search(str(launch.annotations.get("swizzle", "")))
    return (found[1].lower(), int(found[2])) if found else ("row", 0)
