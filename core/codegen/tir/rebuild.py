"""What rewrites of TIR share: statements made anew keep their line, and loops lose their stages the same way."""

from __future__ import annotations

from typing import Any

#: Annotations of a loop whose rounds are to overlap; the last two are an author's own schedule.
PIPELINE = ("num_stages", "tl_pipeline_group", "tl_pipeline_sync", "tl_pipeline_order", "tl_pipeline_stage")


def with_span(made: Any, of: Any) -> Any:
    """`made`, with the line of the statement that it stands for."""
    from tilelang.ir import get_stmt_span, set_stmt_span

    span = get_stmt_span(of)
    if span is not None:
        set_stmt_span(made, span)
    return made


def unpipelined(loop: Any) -> Any:
    """The same `For` with rounds that come one after the other."""
    from tvm import tirx

    kept = {key: value for key, value in loop.annotations.items() if str(key) not in PIPELINE}
    plain = tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, loop.body, loop.thread_binding, kept, loop.step)
    return with_span(plain, loop)
