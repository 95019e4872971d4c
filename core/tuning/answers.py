"""What a future, a reply and a timing mean to a tuning run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from core import errors
from core.errors import TileHALError, TuningError
from core.tuning.jobs import Reply, Timing
from core.tuning.records import Outcome

if TYPE_CHECKING:
    from core.tiling import Tiles
    from core.tuning.sites import Future


def reply_of(done: Future) -> Reply:
    """A future's answer. A worker that died with it, again and again, is the candidate's fault."""
    try:
        reply = done.result()
    except TuningError:
        raise
    except Exception as error:
        if type(error).__name__ in ("KilledWorker", "BrokenProcessPool"):
            return Reply("crash", f"its worker ended: {error}", restart=True)
        raise
    if not isinstance(reply, Reply):
        raise TuningError(f"the executor answered {reply!r}", hint="give an executor that runs what it is given")
    return reply


def error_of(reply: Reply) -> TileHALError:
    """The error that was met in a child, as the class it was."""
    said: Mapping[str, Any] = reply.details.get("error", {})
    known = (value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, TileHALError))
    kind = next((kind for kind in known if kind.code == said.get("code")), TuningError)
    return kind(said.get("message", reply.reason), hint=said.get("hint", ""), details=dict(said.get("details", {})))


def times(timing: Timing) -> dict[str, Any]:
    """A timing as an outcome has it."""
    return {
        "median_s": timing.median_s,
        "low_s": timing.low_s,
        "high_s": timing.high_s,
        "samples": timing.samples,
        "reason": timing.method,
    }


def identity(tiles: Tiles) -> str:
    """What tells a candidate from the others of its shape."""
    return Outcome(tiles, "ok").tiles_text
