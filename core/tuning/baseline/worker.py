"""The process that measures: one request per line in, one answer per line out, both JSON.

`python -m core.tuning.baseline.worker`, started with the `core` that is to be measured in front of its path. What a
kernel, a compiler or a library prints goes to stderr.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from core.tuning.baseline import environment, measuring
from core.tuning.baseline.suite import Case
from core.tuning.json_process import own_output

#: Changes when requests or answers do: a build with another one cannot be measured from here.
PROTOCOL = 1


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """What one request gives. Failures are answers too."""
    try:
        if request["do"] == "describe":
            targets = {target: environment.describe_target(target) for target in request["targets"]}
            return {"host": environment.describe_host(), "targets": targets}
        settings = measuring.Settings(**request["settings"])
        if request["do"] == "yardsticks":
            return measuring.measure_yardsticks(request["target"], settings)
        case = Case.from_json(request["case"])
        return measuring.measure_case(case, settings, index=request["pass"], check=request["check"])
    except Exception as error:
        return measuring.failure(error)


def main() -> None:
    """Answers until its input ends."""
    answers = own_output()
    print(json.dumps({"protocol": PROTOCOL, "worker": __file__}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
