"""What warp specialisation makes of the statements before a pipelined loop, where that is not what they mean.

On chips with bulk copies TileLang splits a block at the first pipelined loop that has some: one warpgroup copies, the
others compute. What stands before the loop and gives a fragment or a variable its value goes with whoever uses it: it
is put directly in front of the loop, inside the conditions and loops around that. So it may happen after the condition
that asks for it, not at all, or once per round; and behind a statement that needs it. A bulk copy before the loop into
a tile that the loop reads is waited for in the loop, too late for whoever uses that tile earlier.

Read off `ProducerConsumerWS` of TileLang 0.1.15 and confirmed in the code it generates. A kernel whose statements can
be moved keeps its specialisation; any other is compiled without (`tl.disable_warp_specialized`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from core.codegen.tir.views import viewed_tiles
from core.program.effects import statement_effects
from core.program.expressions import constant_int
from core.program.nodes import Buffer, Const, Copy, For, If, Launch, Let, Scope, Stmt, Storage, Var, VarKind, While
from core.program.walk import children, expressions, statements

#: Scopes whose contents belong to the threads that compute them, so that a definition can be moved with its users.
_PRIVATE = (Scope.FRAGMENT, Scope.LOCAL, Scope.VAR, Scope.REDUCER)


@dataclass(frozen=True, slots=True)
class Moved:
    """Statements that warp specialisation would move to where they mean something else."""

    stmt: Stmt
    message: str


@dataclass(frozen=True, slots=True)
class Unawaited:
    """A bulk copy before the loop whose tile is used before it is waited for."""

    stmt: Copy
    message: str

    @property
    def tensor(self) -> Buffer:
        return self.stmt.src.buffer


def displaced(launch: Launch) -> Iterator[Moved | Unawaited]:
    """What warp specialisation would get wrong in a launch: one `Moved`, or the copies that are `Unawaited`."""
    path = _path(launch.body, {id(loop) for loop, _ in viewed_tiles(launch)})
    if path is None:
        return
    loop = path[-1].stmt
    assert isinstance(loop, For)
    copied = [stmt for stmt in statements(loop) if isinstance(stmt, Copy) and _is_bulk(stmt)]
    if not copied:
        return
    message = _misplaced(path)
    if message is not None:
        yield Moved(loop, message)
        return
    unawaited = list(_unawaited(path))
    memories = {copy.src.buffer.storage for copy in copied}
    both = next((one for one in unawaited if one.tensor.storage in memories), None)
    if both is not None:
        yield Moved(both.stmt, both.message)
        return
    yield from unawaited


# -- where the loop stands -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Level:
    """One sequence of statements on the way to the loop: the statement at `index` is the loop or holds it."""

    sequence: tuple[Stmt, ...]
    index: int

    @property
    def stmt(self) -> Stmt:
        return self.sequence[self.index]

    @property
    def before(self) -> tuple[Stmt, ...]:
        return self.sequence[: self.index]

    @property
    def after(self) -> tuple[Stmt, ...]:
        return self.sequence[self.index + 1 :]


def _path(body: tuple[Stmt, ...], serial: set[int]) -> list[_Level] | None:
    """The sequences from the launch's body down to its first pipelined loop. `serial`: by `id`, loops that are none."""
    for index, stmt in enumerate(body):
        here = _Level(body, index)
        if isinstance(stmt, For) and stmt.num_stages > 0 and id(stmt) not in serial:
            return [here]
        inner = (stmt.then, stmt.otherwise) if isinstance(stmt, If) else (children(stmt),)
        below = next((found for part in inner if (found := _path(part, serial)) is not None), None)
        if below is not None:
            return [here, *below]
    return None


def _is_bulk(copy: Copy) -> bool:
    """Whether a copy from a tensor to a tile may go through the bulk copy engine."""
    source, tile = copy.src.buffer, copy.dst.buffer
    if source.parameter is None or tile.scope is not Scope.SHARED or source.dtype != tile.dtype:
        return False
    if copy.annotations.get("disable_tma") or (
        copy.src_guard and not (isinstance(copy.fill, Const) and copy.fill.value == 0)
    ):
        return False
    return all(isinstance(stride, Const) for stride in source.strides)


# -- what statements need and define ---------------------------------------------------------------------------------

#: A storage, or a variable that a `Let` binds.
_Place = Storage | Var


@dataclass(slots=True)
class _Uses:
    """The places that statements read and write."""

    reads: set[_Place] = field(default_factory=set)
    writes: set[_Place] = field(default_factory=set)

    @classmethod
    def of(cls, *stmts: Stmt) -> _Uses:
        """Of statements with everything inside them."""
        found = cls()
        for stmt in statements(stmts):
            found._add(stmt)
        return found

    @classmethod
    def of_itself(cls, stmt: Stmt) -> _Uses:
        """Of a condition or a loop's bounds, without what is inside."""
        found = cls()
        found._add(stmt)
        return found

    def _add(self, stmt: Stmt) -> None:
        reads, writes = statement_effects(stmt)
        self.reads.update(buffer.storage for buffer in reads)
        self.reads.update(e for e in expressions(stmt) if isinstance(e, Var) and e.kind is VarKind.LET)
        self.writes.update(buffer.storage for buffer in writes)
        if isinstance(stmt, Let):
            self.reads.discard(stmt.var)
            self.writes.add(stmt.var)

    @property
    def needs(self) -> set[_Place]:
        """What it reads of places whose definitions can move."""
        return {place for place in self.reads if _is_private(place)}

    @property
    def defines(self) -> set[_Place]:
        return {place for place in self.writes if _is_private(place)}

    def disturbs(self, other: _Uses) -> bool:
        """Whether the order of the two matters."""
        return bool(self.writes & (other.reads | other.writes) or self.reads & other.writes)


def _is_private(place: _Place) -> bool:
    return isinstance(place, Var) or place.scope in _PRIVATE


def _names(places: set[_Place]) -> str:
    return ", ".join(sorted(place.name for place in places))


def _line(stmt: Stmt) -> str:
    return f" (line {stmt.location.line})" if stmt.location is not None else ""


# -- definitions that move -------------------------------------------------------------------------------------------


def _misplaced(path: Sequence[_Level]) -> str | None:
    """What is wrong with where definitions would be put, or None."""
    unknown = next((level.stmt for level in path if isinstance(level.stmt, While)), None)
    if unknown is not None:
        return f"warp specialisation fails for a pipelined loop inside a while{_line(unknown)}"
    moved = _moved(path)
    for depth, level in enumerate(path):
        for position, stmt in enumerate(level.before):
            if id(stmt) in moved:
                wrong = _out_of_reach(path, depth, position) or _out_of_order(path, depth, position, moved)
                if wrong is not None:
                    return f"warp specialisation would move what sets {wrong}"
    return None


def _moved(path: Sequence[_Level]) -> set[int]:
    """`id` of the statements that go with the warps which use what they define.

    One that defines nothing stays, and so does what that needs; so does one whose variable is read behind the loop.
    """
    loop = path[-1].stmt
    moved: set[int] = set()
    staying: set[_Place] = set()
    going = _Uses.of(loop).needs
    for level in reversed(path):
        behind = _Uses.of(*level.after).needs
        staying |= {place for place in behind if isinstance(place, Var)}
        going |= {place for place in behind if not isinstance(place, Var)}
        before = [(stmt, _Uses.of(stmt)) for stmt in level.before]
        for _, uses in reversed(before):
            needed = bool(going & uses.defines)
            if staying & uses.defines or not needed:
                staying |= uses.needs
            if needed:
                going |= uses.needs
        moved |= {id(stmt) for stmt, uses in before if uses.defines & going and not uses.defines & staying}
    return moved


def _out_of_order(path: Sequence[_Level], depth: int, position: int, moved: set[int]) -> str | None:
    """Names and the statement that a moved one would come behind though their order matters."""
    level = path[depth]
    uses = _Uses.of(level.before[position])
    passed = [stmt for stmt in level.before[position + 1 :] if id(stmt) not in moved]
    passed += [stmt for inner in path[depth + 1 :] for stmt in inner.before]
    for stmt in passed:
        if uses.disturbs(_Uses.of(stmt)):
            return f"{_names(uses.defines)} behind a statement that goes before it{_line(stmt)}"
    return None


def _out_of_reach(path: Sequence[_Level], depth: int, position: int) -> str | None:
    """Names and the condition or loop that a moved statement would come into though it is needed outside."""
    uses = _Uses.of(path[depth].before[position])
    for at in range(depth, len(path) - 1):
        outer = path[at].stmt
        into = f"{'if' if isinstance(outer, If) else 'loop'}{_line(outer)} around the pipelined loop"
        asked = _Uses.of_itself(outer).reads & uses.defines
        if asked:
            return f"{_names(asked)} into the {into}, which asks for it first"
        if isinstance(outer, For):
            inside = _Uses.of(*outer.body)
            if inside.writes & (uses.reads | uses.writes):
                return f"{_names(uses.defines)} into the {into}, which changes it from round to round"
        if _may_be_skipped(outer):
            missed = _Uses.of(*_elsewhere(path, depth, position, at)).reads & uses.defines
            if missed:
                return f"{_names(missed)} into the {into}, which may not run it"
    return None


def _may_be_skipped(stmt: Stmt) -> bool:
    if isinstance(stmt, For):
        rounds = constant_int(stmt.extent)
        return rounds is None or rounds < 1
    return True


def _elsewhere(path: Sequence[_Level], depth: int, position: int, at: int) -> tuple[Stmt, ...]:
    """The statements that run when the branch or loop at level `at` does not."""
    outer = path[at].stmt
    found = [stmt for level in path[: at + 1] for stmt in level.after]
    if isinstance(outer, If):
        found += outer.otherwise if path[at + 1].sequence is outer.then else outer.then
    if any(isinstance(level.stmt, For) for level in path[:depth]):
        found += path[depth].before[:position]  # in the next round
    return tuple(found)


# -- copies that are waited for in the loop --------------------------------------------------------------------------


def _unawaited(path: Sequence[_Level]) -> Iterator[Unawaited]:
    """Bulk copies before the loop into tiles that the loop reads, and that something else uses before it."""
    if any(isinstance(level.stmt, For) for level in path[:-1]):
        return  # inside another loop such copies are no bulk copies
    before = [stmt for level in path for stmt in level.before]
    in_loop = _Uses.of(path[-1].stmt)
    for index, stmt in enumerate(before):
        if not isinstance(stmt, Copy) or not _is_bulk(stmt) or stmt.dst.buffer.storage not in in_loop.reads:
            continue
        tile = stmt.dst.buffer
        for other in before[index + 1 :]:
            uses = _Uses.of(other)
            if tile.storage in uses.reads | uses.writes:
                why = f"{tile.name} is used before the pipelined loop, in which warp specialisation waits for its copy"
                yield Unawaited(stmt, why)
                break
