"""Safe values that TileLang drops: a tensor and its views are one memory, and an annotation keeps one value of each.

`T.annotate_safe_value({A: 0.0, A_as_rows: 1.0})` leaves the last of the two in the traced kernel, for both. What was
written is only in the source, from where it is read here.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from functools import lru_cache

from core.errors import KernelError, Location

_NAME = "annotate_safe_value"
#: The line of a call, its entries as text, and whether it is made whenever the launch is.
_Annotation = tuple[int, tuple[tuple[str, str], ...], bool]


def check_safe_values(launch: Location | None, kept: int) -> None:
    """Refuses a launch whose source names more tensors with different safe values than the traced kernel has.

    Args:
        launch: the line of `with T.Kernel(...)`.
        kept: how many memories of the launch have a safe value.

    Raises:
        KernelError: two entries of an annotation are one memory (the user's line).
    """
    if launch is None:
        return
    found = _annotations(launch.file, launch.line)
    # A call under an `if` of Python's may be another's alternative: only those that are made in any case add up. One
    # that gives everything the same value may do so to a tensor and its views.
    certain: set[str] = set()
    for _, entries, always in found:
        if always:
            certain.update(key for key, _ in (entries if _differ(entries) else entries[:1]))
    for line, entries, always in found:
        given = {key for key, _ in entries} | (certain if always else set())
        if _differ(entries) and len(given) > kept:
            raise KernelError(
                f"T.annotate_safe_value: of {', '.join(key for key, _ in entries)}, two are one memory, of which "
                "TileLang keeps the last value only",
                hint="name each memory once, as the tensor or as one view of it; where its views need different "
                "values, test the index with T.if_then_else where they are loaded",
                location=Location(launch.file, line),
            )


def _differ(entries: tuple[tuple[str, str], ...]) -> bool:
    return len({value for _, value in entries}) > 1


@lru_cache(maxsize=256)
def _annotations(file: str, line: int) -> tuple[_Annotation, ...]:
    """The annotations written out in the `with` statement at a line; none where there is no source."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return ()
    launch = next((one for one in ast.walk(tree) if isinstance(one, ast.With) and one.lineno == line), None)
    return tuple(_calls(launch.body, always=True)) if launch is not None else ()


def _calls(body: list[ast.stmt], *, always: bool) -> Iterator[_Annotation]:
    for stmt in body:
        if isinstance(stmt, ast.If | ast.For | ast.While | ast.With | ast.Try):
            yield from _calls([one for one in ast.walk(stmt) if isinstance(one, ast.Expr)], always=False)
            continue
        call = stmt.value if isinstance(stmt, ast.Expr) else None
        if not (isinstance(call, ast.Call) and _called(call) == _NAME and len(call.args) == 1):
            continue
        (entries,) = call.args
        if isinstance(entries, ast.Dict) and all(key is not None for key in entries.keys):
            pairs = zip(entries.keys, entries.values, strict=True)
            yield call.lineno, tuple((ast.unparse(k), ast.unparse(v)) for k, v in pairs if k), always


def _called(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))
