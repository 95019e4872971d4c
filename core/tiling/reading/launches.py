"""One walk over the statements of a launch: its profile."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import prod

from core.program import walk
from core.program.evaluate import evaluate
from core.program.expressions import dtype_bits
from core.program.lifetimes import buffer_bytes, buffer_uses
from core.program.nodes import (
    AtomicElement,
    AtomicTile,
    Buffer,
    Compare,
    Copy,
    Expr,
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
from core.tiling.formula import Formula, axis, formula_of, names_in
from core.tiling.profile import (
    Estimate,
    GlobalAccess,
    LaunchProfile,
    Loop,
    MatrixProduct,
    OnChipBuffer,
    Reduction,
    SharedAccess,
    VectorWork,
)
from core.tiling.reading.compact import compact
from core.tiling.reading.elements import loads, operations, parallel_variables
from core.tiling.reading.order import different, divisors, rounds
from core.tiling.reading.roles import join_copiers, thread_split

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
class _Reader:
    """One launch. `names` gives the formula of every variable in scope, `parallel` the extents around a statement."""

    launch: Launch
    environment: dict[Var | str, int]
    unknown: dict[str, None]
    names: dict[Var | str, Formula] = field(default_factory=dict)
    origins: dict[Var, frozenset[str]] = field(default_factory=dict)
    loops: list[Loop] = field(default_factory=list)
    real_loops: set[int] = field(default_factory=set)
    role: str = ""
    roles: dict[str, range] = field(default_factory=dict)
    branches: dict[int, range] = field(default_factory=dict)
    accesses: list[GlobalAccess] = field(default_factory=list)
    shared: list[SharedAccess] = field(default_factory=list)
    products: list[MatrixProduct] = field(default_factory=list)
    vector: list[VectorWork] = field(default_factory=list)
    reductions: list[Reduction] = field(default_factory=list)

    def read(self) -> LaunchProfile:
        launch = self.launch
        self.names.update(self.environment)
        for index, (var, _) in enumerate(launch.grid):
            self.names[var] = axis(index)
        self.cluster = _cluster(launch)
        gemms = [stmt for stmt in walk.statements(launch.body) if isinstance(stmt, Gemm)]
        self.accumulators = {id(stmt.c.buffer.storage) for stmt in gemms}
        # What is computed from an accumulator element by element has its layout too (a softmax's probabilities).
        self.accumulators |= {id(stmt.a.buffer.storage) for stmt in gemms if stmt.a.buffer.scope is Scope.FRAGMENT}
        self.operands = {id(region.buffer.storage) for stmt in gemms for region in (stmt.a, stmt.b, stmt.c)}
        self.loops.append(Loop(-1, 0, 1, 0))
        if launch.threads is not None:
            self.branches[0] = range(prod(launch.threads))
        self._body(launch.body, 0, {})
        order, panel = _swizzle(launch)
        threads = None if launch.threads is None else prod(launch.threads)
        working = {self.loops[p.loop].role for p in self.products} | {self.loops[w.loop].role for w in self.vector}
        computing = working - {""}
        copiers = {self.loops[access.loop].role for access in self.accesses} - working - {""}
        if copiers:
            sizes = {b.storage.name: buffer_bytes(b, self.environment) or 0 for b in reversed(launch.buffers)}
            join_copiers(self.loops, self.accesses, self.products, copiers, self.real_loops, sizes)
        found = LaunchProfile(
            grid=tuple(self._number(extent, "a grid axis") for _, extent in launch.grid),
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
            buffers=self._buffers(),
        )
        return compact(found)

    # -- Numbers -----------------------------------------------------------------------------------------------------

    def _number(self, expr: Expr, what: str) -> int:
        value = evaluate(expr, self.environment)
        if value is None:
            self.unknown[f"{what} depends on a value that was not given: taken as 1"] = None
            return 1
        return max(0, value)

    def _formula(self, expr: Expr, what: str) -> Formula:
        formula = formula_of(expr, self.names)
        if formula is None:
            self.unknown[f"{what} depends on data: taken as 1"] = None
            return 1
        return formula

    def _varies(self, exprs: Iterable[Expr]) -> tuple[str, ...]:
        """Names of the grid axes and loops that expressions depend on."""
        found: set[str] = set()
        for expr in exprs:
            for inner in walk.subexpressions(expr):
                if isinstance(inner, Var):
                    found |= self.origins.get(inner, frozenset())
                    found |= names_in(self.names.get(inner, 0))
        return tuple(sorted(found))

    def _buffers(self) -> tuple[OnChipBuffer, ...]:
        found = []
        for use in buffer_uses(self.launch, self.environment):
            if use.buffer.scope in (Scope.GLOBAL, Scope.BARRIER):
                continue
            if use.bytes is None:
                self.unknown[f"the size of {use.buffer.name} depends on a value that was not given"] = None
            found.append(
                OnChipBuffer(
                    name=use.buffer.name,
                    scope=use.scope,
                    bytes=use.bytes or 0,
                    versions=use.versions,
                    first=-1 if use.first is None else use.first,
                    last=-1 if use.last is None else use.last,
                    operand=id(use.buffer.storage) in self.operands,
                )
            )
        return tuple(found)

    # -- Statements --------------------------------------------------------------------------------------------------

    def _body(self, body: tuple[Stmt, ...], loop: int, parallel: Mapping[Var, int]) -> None:
        for stmt in body:
            self._visit(stmt, loop, parallel)

    def _visit(self, stmt: Stmt, loop: int, parallel: Mapping[Var, int]) -> None:
        match stmt:
            case For(var=var, start=start, extent=extent, body=body):
                index = self._enter(
                    loop, self._formula(start, "a loop's start"), self._formula(extent, "a loop"), stmt.num_stages
                )
                self.real_loops.add(index)
                self.names[var] = f"loop{index}"
                self._body(body, index, parallel)
            case Parallel(vars=variables, extents=extents, body=body):
                sizes = [self._number(extent, "a parallel loop") for extent in extents]
                self._body(body, loop, {**parallel, **dict(zip(variables, sizes, strict=True))})
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
                    self.origins[var] = frozenset(self._varies((value,)))
                self._expression(value, loop, parallel)
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
                self._copy(src, dst, loop, _receivers(stmt))
            case Transpose(src=src, dst=dst) | Im2Col(src=src, dst=dst):
                self._copy(src, dst, loop)
            case Scan(src=src, dst=dst):
                self._copy(src, dst, loop)
                self._reduction(src, stmt.dim, dst.buffer.dtype, loop)
            case Fill(dst=dst):
                self._touch(dst, "write", Scope.LOCAL, loop)
                if dst.buffer.scope is not Scope.GLOBAL:
                    self._add("arithmetic", dst.buffer.dtype, loop, prod(self._extents(dst)))
            case Gemm():
                self._product(stmt, loop)
            case Reduce(src=src, dst=dst):
                self._touch(src, "read", dst.buffer.scope, loop)
                self._reduction(src, stmt.dim, dst.buffer.dtype, loop)
            case AtomicTile(value=value, dst=dst):
                self._access(dst, "atomic", None, self._is_accumulator(value), loop)
                if isinstance(value, Region):
                    self._touch(value, "read", Scope.LOCAL, loop)
            case AtomicElement(target=target, value=value):
                self._element(target.buffer, target.indices, "atomic", loop, parallel)
                self._expression(value, loop, parallel)
            case Store(buffer=buffer, indices=indices, value=value):
                self._element(buffer, indices, "write", loop, parallel)
                self._expression(value, loop, parallel)
            case ReducerUpdate(value=value):
                self._add("arithmetic", value.dtype, loop, prod(parallel.values()))
                self._expression(value, loop, parallel)
            case ReducerFinalize(dst=dst):
                rows = prod(self._extents(dst))
                self.reductions.append(Reduction(dst.buffer.dtype, rows, 1, False, loop))

    # -- Tiles -------------------------------------------------------------------------------------------------------

    def _extents(self, region: Region) -> tuple[int, ...]:
        """Extents of a region, no more in any dimension than the buffer has."""
        found = []
        for extent, size in zip(region.extents, region.buffer.shape, strict=True):
            limit = evaluate(size, self.environment)
            length = self._number(extent, "a tile's extent")
            found.append(length if limit is None else min(length, limit))
        return tuple(found)

    def _is_accumulator(self, value: object) -> bool:
        return isinstance(value, Region) and id(value.buffer.storage) in self.accumulators

    def _copy(self, src: Region, dst: Region, loop: int, receivers: int = 1) -> None:
        if src.buffer.scope is Scope.GLOBAL:
            self._access(src, "read", dst.buffer, self._is_accumulator(dst), loop, receivers)
        else:
            self._touch(src, "read", dst.buffer.scope, loop)
        if dst.buffer.scope is Scope.GLOBAL:
            self._access(dst, "write", src.buffer, self._is_accumulator(src), loop)
        else:
            self._touch(dst, "write", src.buffer.scope, loop)
        on_chip = src.buffer.scope is not Scope.GLOBAL and dst.buffer.scope is not Scope.GLOBAL
        if src.buffer.dtype != dst.buffer.dtype:
            self._add("convert", dst.buffer.dtype, loop, prod(self._extents(src)))
        elif on_chip and Scope.SHARED not in (src.buffer.scope, dst.buffer.scope):
            self._add("arithmetic", dst.buffer.dtype, loop, prod(self._extents(src)))

    def _touch(self, region: Region, mode: str, other: Scope, loop: int) -> None:
        """A tile of global memory, or of shared memory that threads read or write."""
        if region.buffer.scope is Scope.GLOBAL:
            self._access(region, mode, None, False, loop)
        elif region.buffer.scope is Scope.SHARED and other is not Scope.GLOBAL:
            size = prod(self._extents(region)) * dtype_bits(region.buffer.dtype) / 8
            self.shared.append(SharedAccess("read" if mode == "read" else "write", size, loop))

    def _access(
        self, region: Region, mode: str, other: Buffer | None, accumulator: bool, loop: int, receivers: int = 1
    ) -> None:
        self._box(region.buffer, mode, self._extents(region), region.mins, other, accumulator, loop, receivers)

    def _box(
        self,
        buffer: Buffer,
        mode: str,
        extents: tuple[int, ...],
        address: tuple[Expr, ...],
        other: Buffer | None,
        accumulator: bool,
        loop: int,
        receivers: int = 1,
    ) -> None:
        varies = self._varies(address)
        shares, neighbours = self._sharing(address, varies)
        self.accesses.append(
            GlobalAccess(
                tensor=buffer.name,
                mode=mode,
                bits=dtype_bits(buffer.dtype),
                extents=extents,
                shape=tuple(evaluate(size, self.environment) or 0 for size in buffer.shape),
                varies=varies,
                shares=shares,
                neighbours=neighbours,
                onchip=other.scope.value if other is not None else "local",
                buffer=other.storage.name if other is not None else "",
                accumulator=accumulator,
                receivers=receivers,
                loop=loop,
            )
        )

    def _sharing(self, mins: tuple[Expr, ...], varies: tuple[str, ...]) -> tuple[tuple[int, ...], float]:
        """`GlobalAccess.shares` and `GlobalAccess.neighbours` of an address."""
        names = dict(self.names)
        names.update(dict.fromkeys(parallel_variables(mins), 0))
        formulas = [formula_of(expr, names) for expr in mins]
        plain = tuple(int(f"axis{index}" in varies) for index in range(len(self.launch.grid)))
        known = [formula for formula in formulas if formula is not None]
        if len(known) < len(formulas):
            return plain, 0.0
        divided = [divisors(formula) for formula in known]
        if all(found is not None for found in divided):
            shares = list(plain)
            for found in divided:
                for index, divisor in (found or {}).items():
                    shares[index] = max(1, divisor)
            return tuple(shares), 0.0
        grid = tuple(self._number(extent, "a grid axis") for _, extent in self.launch.grid)
        return plain, Estimate(different(known, grid, self.loops))

    def _product(self, stmt: Gemm, loop: int) -> None:
        self.products.append(
            MatrixProduct(
                m=stmt.m,
                n=stmt.n,
                k=stmt.k,
                a_dtype=stmt.a.buffer.dtype,
                b_dtype=stmt.b.buffer.dtype,
                accumulator_dtype=stmt.c.buffer.dtype,
                a_scope=stmt.a.buffer.scope.value,
                b_scope=stmt.b.buffer.scope.value,
                transpose_a=stmt.transpose_a,
                transpose_b=stmt.transpose_b,
                policy=stmt.policy,
                a_buffer=stmt.a.buffer.storage.name,
                b_buffer=stmt.b.buffer.storage.name,
                in_flight=stmt.annotations.get("wg_wait", 0) == -1,
                loop=loop,
            )
        )
        for region, mode in ((stmt.a, "read"), (stmt.b, "read"), (stmt.c, "write")):
            if region.buffer.scope is Scope.GLOBAL:
                self._touch(region, mode, Scope.LOCAL, loop)

    def _reduction(self, src: Region, dim: int, dtype: str, loop: int) -> None:
        extents = self._extents(src)
        length = extents[dim]
        rows = prod(extents[:dim]) * prod(extents[dim + 1 :] if dim != -1 else ())
        self.reductions.append(Reduction(dtype, rows, length, id(src.buffer.storage) in self.accumulators, loop))
        if src.buffer.scope is Scope.SHARED:
            size = prod(extents) * dtype_bits(src.buffer.dtype) / 8
            self.shared.append(SharedAccess("read", size, loop))

    # -- Elements ----------------------------------------------------------------------------------------------------

    def _add(self, kind: str, dtype: str, loop: int, elements: int) -> None:
        self.vector.append(VectorWork(kind, dtype, elements, loop))

    def _element(
        self, buffer: Buffer, indices: tuple[Expr, ...], mode: str, loop: int, parallel: Mapping[Var, int]
    ) -> None:
        """One element per iteration of the surrounding parallel loops."""
        if buffer.scope is Scope.SHARED:
            used = parallel_variables(indices)
            size = prod(extent for var, extent in parallel.items() if var in used)
            kind = "read" if mode == "read" else "write"
            self.shared.append(SharedAccess(kind, size * dtype_bits(buffer.dtype) / 8, loop))
        if buffer.scope is not Scope.GLOBAL:
            return
        extents: list[int] = []
        counted: set[Var] = set()
        for index, dimension in zip(indices, buffer.shape, strict=True):
            variables = (parallel_variables((index,)) & parallel.keys()) - counted
            counted |= variables
            extent = prod(parallel[var] for var in variables)
            limit = evaluate(dimension, self.environment)
            extents.append(extent if limit is None else min(extent, limit))
        self._box(buffer, mode, tuple(extents), indices, None, False, loop)

    def _expression(self, root: Expr, loop: int, parallel: Mapping[Var, int]) -> None:
        for load in loads(root):
            self._element(load.buffer, load.indices, "read", loop, parallel)
        for kind, dtype, elements in operations(root, parallel):
            self._add(kind, dtype, loop, elements)


def _cluster(launch: Launch) -> int:
    dims = launch.annotations.get("cluster_dims")
    return prod(dims) if isinstance(dims, tuple) else 1


def _receivers(copy: Copy) -> int:
    """Blocks of the cluster that a copy serves."""
    mask = copy.annotations.get("cluster_mask")
    return max(1, mask.bit_count()) if isinstance(mask, int) else 1


def _swizzle(launch: Launch) -> tuple[str, int]:
    found = _SWIZZLE.search(str(launch.annotations.get("swizzle", "")))
    return (found[1].lower(), int(found[2])) if found else ("row", 0)
