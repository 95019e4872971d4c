"""Keeping `torch.compile` out of a call's own code, without importing Dynamo, which takes seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def hide_from_dynamo(*functions: Callable[..., Any], reason: str | None = None) -> None:
    """Makes Dynamo call `functions`, and what they call, as they are: a graph breaks there, silently.

    With `fullgraph=True` Dynamo refuses the call instead, and its message has the `reason`.

    This is what `torch.compiler.disable` does to a function, done to its code object, which costs a call nothing.
    Dynamo would otherwise trace into a call and warn about the compiled launch that it cannot read.
    """
    import torch

    frames = torch._C._dynamo.eval_frame
    for function in functions:
        function._torchdynamo_disable = True  # type: ignore[attr-defined]
        function._torchdynamo_disable_msg = reason  # type: ignore[attr-defined]
        code = function.__code__
        if hasattr(frames, "set_code_exec_strategy"):
            skip = frames._FrameAction.SKIP
            frames.set_code_exec_strategy(code, frames._FrameExecStrategy(skip, skip))
        elif hasattr(frames, "skip_code"):  # torch before 2.8
            frames.skip_code(code)
