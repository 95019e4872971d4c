"""The process that compiles and measures: one request per line in, lines of what it is doing and one answer out, JSON.

`core.bench.process` starts it. What a kernel, a compiler or a library prints goes to standard error.
"""

from __future__ import annotations

import faulthandler
import json
import sys
import warnings
from collections.abc import Callable
from typing import Any

from core.bench.case import Case
from core.bench.measuring import SpoiltError
from core.bench.workloads import NotMeasured
from core.errors import LaunchError, TileHALError, summary
from core.tuning.json_process import own_output


def answer(request: dict[str, Any], say: Callable[[str], None]) -> dict[str, Any]:
    """What one request gives; failures are answers too. `say` is told what is being run."""
    try:
        return {"status": "ok", **_do(request, say)}
    except NotMeasured as error:
        return {"status": "not measured", "reason": str(error)}
    except SpoiltError as error:
        return {"status": "failed", "reason": error.reason, "spoilt_by": error.contender, "restart": True}
    except TileHALError as error:
        return {
            "status": "failed",
            "reason": summary(error),
            "error": error.to_json(),
            "restart": isinstance(error, LaunchError),
        }
    except Exception as error:  # of a compiler, of torch, of another library
        return {"status": "failed", "reason": summary(error)[:300], "restart": True}


def _do(request: dict[str, Any], say: Callable[[str], None]) -> dict[str, Any]:
    from core.bench import ceilings, facts, measuring

    do = request["do"]
    if do == "describe":
        return facts.describe(request["target"])
    if do == "ceilings":
        return ceilings.measure_ceilings(request["target"], request["dtypes"], small=request["small"])
    if do == "launch":
        from core.bench.launch import launch_overhead

        return launch_overhead(request["target"], request["rounds"], calls=request["calls"], most_s=request["most_s"])
    case = Case.from_json(request["case"])
    if do == "compile" and case.operator == "launch":
        from core.bench.launch import compile_part

        compile_part(request["contender"], request["target"])
        return {}
    if do == "compile":
        return measuring.compile_contender(case, request["contender"], request["target"])
    settings = measuring.Settings(**request["settings"])
    return measuring.measure_case(case, settings, request["skip"], say)


def main() -> None:
    """Answers until its input ends."""
    faulthandler.enable()
    answers = own_output()
    warnings.simplefilter("ignore")  # what a kernel assumes of the chip is said when a user compiles it

    def tell(message: dict[str, Any]) -> None:
        print(json.dumps(message), file=answers, flush=True)

    from core._tilelang import import_tilelang

    import_tilelang()
    import core.compiler.driver  # noqa: F401  (seconds, before the first request, whose time is limited)

    tell({"ready": True})
    for line in sys.stdin:
        if line.strip():
            tell({"answer": answer(json.loads(line), lambda what: tell({"doing": what}))})


if __name__ == "__main__":
    main()
