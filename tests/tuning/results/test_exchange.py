"""Results as JSON: they come back as they were, and a file that is wrong is refused with the place."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import TuningError
from core.tuning.environment import Environment
from core.tuning.results.exchange import from_text, read_file, to_text
from core.tuning.results.records import STATUSES, Key, Outcome, Result, in_order
from tests.properties import examples

SECONDS = st.floats(min_value=1e-9, max_value=1e3)
OUTCOMES = st.builds(
    Outcome,
    tiles=st.dictionaries(st.sampled_from(["block_M", "threads", "way"]), st.integers(1, 512) | st.text(max_size=5)),
    status=st.sampled_from(STATUSES),
    median_s=SECONDS,
    low_s=st.none() | SECONDS,
    samples=st.integers(0, 1000),
    reason=st.text(max_size=20),
    details=st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=3), max_size=2),
    place=st.none() | st.integers(0, 50),
    measured_at=st.floats(0, 2e9),
    source=st.just("a.json"),
)


@st.composite
def results(draw):
    environment = Environment(
        *(draw(st.text(max_size=5)) for _ in range(4)), tuple(draw(st.lists(st.text(max_size=4))))
    )
    arguments = draw(st.dictionaries(st.sampled_from("MNK"), st.integers(1, 4096)))
    key = Key(
        kernel=draw(st.sampled_from(["matmul", "softmax"])),
        fingerprint=draw(st.sampled_from(["0" * 16, "1" * 16])),
        arguments=json.dumps(arguments, sort_keys=True, separators=(",", ":")),
        dtypes=tuple(draw(st.lists(st.sampled_from(["float16", "int8"]), max_size=2))),
        chip="cuda:h200",
        environment=environment,
        options=draw(st.sampled_from(["", '{"fast_math":true}'])),
    )
    unique = {outcome.identity: outcome for outcome in draw(st.lists(OUTCOMES, min_size=1, max_size=3))}
    return Result(key, in_order(list(unique.values())), tuple(draw(st.lists(st.sampled_from("MN"), unique=True))))


@examples(40)
@given(st.lists(results(), max_size=3))
def test_results_come_back_as_they_were(given_results):
    text = to_text(given_results)
    found = from_text(text, "a.json")
    assert all(result in given_results for result in found)
    assert all(result in found for result in given_results)
    assert to_text(found) == text


def test_one_outcome_is_one_line(key):
    outcomes = tuple(Outcome({"block": block}, "ok", block * 1e-6) for block in (1, 2, 3))
    before = to_text([Result(key, outcomes)])
    after = to_text([Result(key, (*outcomes[:2], replace(outcomes[2], median_s=4e-6)))])
    changed = [pair for pair in zip(before.splitlines(), after.splitlines(), strict=True) if pair[0] != pair[1]]
    assert len(changed) == 1
    assert '"block": 3' in changed[0][0]


def test_a_table_to_ship_has_the_fastest_and_no_failures(key):
    outcomes = (*(Outcome({"block": b}, "ok", b * 1e-6) for b in (1, 2, 3)), Outcome({"block": 4}, "crash"))
    failed = Result(replace(key, arguments="{}"), (Outcome({"block": 1}, "wrong"),))
    (found,) = from_text(to_text([Result(key, outcomes), failed], fastest=2), "t.json")
    assert [outcome.tiles["block"] for outcome in found.outcomes] == [1, 2]


def changed(text, change):
    data = json.loads(text)
    change(data)
    return json.dumps(data)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda d: d.update(format="other"), "the file"),
        (lambda d: d.update(schema=99), "schema: it is 99, this TileHAL reads 1"),
        (lambda d: d["results"][0].pop("kernel"), "results[0].kernel: it is not there"),
        (lambda d: d["results"][0].update(environment="nowhere"), "results[0].environment"),
        (lambda d: d["results"][0]["outcomes"][0].update(status="fine"), "results[0].outcomes[0].status"),
        (lambda d: d["results"][0]["outcomes"][0].update(median_s=-1), "results[0].outcomes[0].median_s"),
        (lambda d: d["results"][0]["outcomes"][0].pop("median_s"), "results[0].outcomes[0].median_s"),
        (lambda d: d["results"][0]["outcomes"][0]["tiles"].update(block=[1]), "results[0].outcomes[0].tiles.block"),
        (lambda d: d["results"][0].update(outcomes={}), "results[0].outcomes: it is no list"),
        (lambda d: d["results"][0].update(options="fast_math"), "results[0].options: 'fast_math' is no object"),
        (lambda d: d["environments"].update(x={"device": "y"}), "environments.x"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(key, change, place):
    text = to_text([Result(key, (Outcome({"block": 1}, "ok", 1e-6),))])
    with pytest.raises(TuningError) as caught:
        from_text(changed(text, change), "table.json")
    assert "table.json" in caught.value.message
    assert place in caught.value.message


def test_a_file_that_is_not_there_or_not_json(tmp_path):
    with pytest.raises(TuningError, match="cannot be read"):
        read_file(tmp_path / "missing.json")
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(TuningError, match="it is not JSON"):
        read_file(tmp_path / "x.json")
