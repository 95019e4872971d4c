"""docs/portability.md says what the code does."""

import re
from pathlib import Path

from core.portability import RULES, Status

TEXT = (Path(__file__).parents[2] / "docs" / "portability.md").read_text()


def test_every_rule_is_in_the_table_with_its_sentence():
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| (.+?) \| ", TEXT, re.MULTILINE)
    assert dict(rows) == dict(RULES)


def test_every_verdict_is_explained():
    for status in Status:
        assert re.search(rf"^\| {status.value} \|", TEXT, re.MULTILINE)


def test_the_python_in_it_is_python():
    (block,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    scope: dict = {}
    exec(compile(block, "docs/portability.md", "exec"), scope)

    from tests.portability import kernels

    line = kernels.line_of("sliced")
    assert scope["refusals"](kernels.sliced_reduce(), ["cuda:h200", "cpu"]) == [("cuda:h200", line)]
