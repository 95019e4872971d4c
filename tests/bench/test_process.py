"""A child that dies, hangs or does not start costs what it was doing."""

from __future__ import annotations

import os
import sys
import time

import pytest

from core.bench.process import Lost, Process
from core.errors import BenchError

ANSWERING = """
import json, sys, time, os
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    print(json.dumps({"doing": request["do"]}), flush=True)
    if request["do"] == "hang":
        time.sleep(600)
    if request["do"] == "die":
        print("out of luck", file=sys.stderr, flush=True)
        os.abort()
    print(json.dumps({"answer": request}), flush=True)
"""


@pytest.fixture
def process():
    child = Process([sys.executable, "-c", ANSWERING])
    yield child
    child.close()


def test_it_answers_more_than_once(process):
    assert process.ask({"do": "this"}, 30) == {"do": "this"}
    assert process.ask({"do": "that"}, 30) == {"do": "that"}


def test_a_child_that_dies_says_what_it_was_doing(process):
    with pytest.raises(Lost, match="SIGABRT: out of luck") as lost:
        process.ask({"do": "die"}, 30)
    assert lost.value.doing == "die"


def test_a_child_that_hangs_is_ended(process):
    process.ask({"do": "start"}, 30)
    began = time.monotonic()
    with pytest.raises(Lost, match="no answer within 1 s") as lost:
        process.ask({"do": "hang"}, 1)
    assert time.monotonic() - began < 20
    assert lost.value.doing == "hang"
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


def test_a_child_that_does_not_start_is_no_row_s_fault():
    child = Process([sys.executable, "-c", "raise SystemExit('no torch')"])
    with pytest.raises(BenchError, match=r"does not start.*no torch"):
        child.ask({"do": "this"}, 30)
