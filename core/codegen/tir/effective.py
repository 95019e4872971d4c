"""What lowering made of a kernel's parameters, for `kernel.config`."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from core.program.nodes import Gemm
from core.program.walk import statements

if TYPE_CHECKING:
    from core.program.nodes import View


def effective(
    view: View,
    prim_func: Any,
    sequential: Sequence[tuple[str, str]],
    threads: Sequence[Sequence[int]],
    *,
    assigned: bool = False,
) -> dict[str, list[Any]]:
    """The parameters of which lowering made something else: by key, what runs (None: nothing), and why.

    Args:
        view: the kernel as written.
        prim_func: the kernel as the stock pipeline gets it.
        sequential: loops that lost their stages: the name of their variable, and why.
        threads: a block's threads along x, y and z, of each function that was generated.
        assigned: only loops whose statements have stages assigned are pipelined.
    """
    found = {"stages": _stages(prim_func, sequential, assigned), "threads": _threads(view, threads)}
    if any(isinstance(stmt, Gemm) for stmt in statements(view)) and not _multiplies(prim_func):
        found["warp_policy"] = [None, "products are loops of multiply-adds, whose elements all threads share"]
    return {key: value for key, value in found.items() if value is not None}


def _stages(prim_func: Any, sequential: Sequence[tuple[str, str]], assigned: bool) -> list[Any] | None:
    """The deepest pipeline that is left; TileLang's own number for none is 0."""
    if not sequential:
        return None
    from tvm import tirx

    depths = [0]

    def note(node: Any) -> None:
        if type(node).__name__ != "For":
            return
        stages = [int(stage) for stage in node.annotations.get("tl_pipeline_stage", ())]
        if not assigned or stages:
            depths.append(int(node.annotations.get("num_stages", max(stages, default=-1) + 1)))

    tirx.stmt_functor.post_order_visit(prim_func.body, note)
    said = dict.fromkeys(f"the loop over {name} is not pipelined: {why}" for name, why in sequential)
    return [max(depths), "; ".join(said)]


def _threads(view: View, threads: Sequence[Sequence[int]]) -> list[Any] | None:
    asked = [prod(launch.threads) if launch.threads is not None else None for launch in view.launches]
    launched = [prod(block) for block in threads]
    most = max(launched)
    if all(count is None for count in asked):
        return [most, "the kernel gave no thread count; TileLang's default"]
    if len(asked) != len(launched):
        return None
    added = [after - before for before, after in zip(asked, launched, strict=True) if before is not None]
    if not any(count > 0 for count in added):
        return None
    where = "" if len(added) == 1 else f" (launch {', '.join(str(i) for i, n in enumerate(added, 1) if n > 0)})"
    return [most, f"warp specialisation adds {max(added)} producer threads{where}"]


def _multiplies(prim_func: Any) -> bool:
    """Whether a product is left for the matrix unit."""
    from tvm import tirx

    found: list[Any] = []

    def note(node: Any) -> None:
        if str(getattr(getattr(node, "op", None), "name", "")).startswith("tl.tileop.") and "gemm" in node.op.name:
            found.append(node)

    tirx.stmt_functor.post_order_visit(prim_func.body, note)
    return bool(found)
