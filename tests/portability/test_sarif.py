"""SARIF 2.1.0, as far as editors and code hosts depend on it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import core
from core.portability import RULES, report, to_sarif
from core.program import Program
from tests.portability import kernels
from tests.portability.kernels import line_of

#: The part of the standard's schema that a run of ours uses, with nothing else allowed in it.
SCHEMA = {
    "type": "object",
    "required": ["$schema", "version", "runs"],
    "additionalProperties": False,
    "properties": {
        "$schema": {"type": "string", "format": "uri"},
        "version": {"const": "2.1.0"},
        "runs": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["tool", "results"],
                "additionalProperties": False,
                "properties": {
                    "tool": {
                        "type": "object",
                        "required": ["driver"],
                        "properties": {
                            "driver": {
                                "type": "object",
                                "required": ["name"],
                                "properties": {
                                    "name": {"type": "string"},
                                    "version": {"type": "string"},
                                    "rules": {
                                        "type": "array",
                                        "uniqueItems": True,
                                        "items": {
                                            "type": "object",
                                            "required": ["id", "shortDescription"],
                                            "properties": {
                                                "id": {"type": "string"},
                                                "shortDescription": {"type": "object", "required": ["text"]},
                                            },
                                        },
                                    },
                                },
                            }
                        },
                    },
                    "results": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["ruleId", "ruleIndex", "level", "message", "locations"],
                            "additionalProperties": False,
                            "properties": {
                                "ruleId": {"enum": list(RULES)},
                                "ruleIndex": {"type": "integer", "minimum": 0},
                                "level": {"enum": ["none", "note", "warning", "error"]},
                                "message": {
                                    "type": "object",
                                    "required": ["text"],
                                    "properties": {"text": {"type": "string", "minLength": 1}},
                                },
                                "properties": {"type": "object"},
                                "locations": {
                                    "type": "array",
                                    "minItems": 1,
                                    "items": {
                                        "type": "object",
                                        "required": ["physicalLocation"],
                                        "properties": {
                                            "physicalLocation": {
                                                "type": "object",
                                                "required": ["artifactLocation", "region"],
                                                "properties": {
                                                    "artifactLocation": {
                                                        "type": "object",
                                                        "required": ["uri"],
                                                        "properties": {
                                                            "uri": {"type": "string", "format": "uri-reference"}
                                                        },
                                                    },
                                                    "region": {
                                                        "type": "object",
                                                        "required": ["startLine"],
                                                        "properties": {"startLine": {"type": "integer", "minimum": 1}},
                                                    },
                                                },
                                            }
                                        },
                                    },
                                },
                            },
                        },
                    },
                },
            },
        },
    },
}


def sarif(prim_func, *targets):
    return json.loads(json.dumps(to_sarif(report(Program(prim_func), [core.chip(target) for target in targets]))))


@pytest.mark.parametrize(
    "kernel", [kernels.product("float32"), kernels.per_thread(32), kernels.past_the_end(), kernels.four_bit()]
)
def test_it_has_the_standards_structure(kernel):
    import jsonschema

    data = sarif(kernel, "cpu", "cuda:h200", "metax:c500", "ascend:910b3")
    jsonschema.validate(data, SCHEMA)
    [run] = data["runs"]
    assert run["results"]
    for result in run["results"]:
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]


def test_the_check_of_the_structure_notices_a_wrong_level():
    import jsonschema

    data = sarif(kernels.past_the_end(), "cpu")
    data["runs"][0]["results"][0]["level"] = "fatal"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, SCHEMA)


def test_levels_follow_from_verdicts():
    results = sarif(kernels.per_thread(32), "metax:c500", "cpu", "cuda:h200")["runs"][0]["results"]
    levels = {(r["ruleId"], r["level"]) for r in results}
    assert ("wave-width", "warning") in levels
    assert ("thread-index", "error") in levels
    assert ("opaque-construct", "note") in levels


def test_one_result_for_all_chips_that_agree_at_its_line():
    results = sarif(kernels.past_the_end(), "cuda:h200", "metax:c500")["runs"][0]["results"]
    [result] = results
    assert result["properties"]["targets"] == ["cuda:h200", "metax:c500"]
    assert result["message"]["text"].startswith("cuda:h200, metax:c500: fill of s[6:+6] reaches index 11")
    assert "To change: keep the slice inside s" in result["message"]["text"]
    region = result["locations"][0]["physicalLocation"]["region"]
    assert region == {"startLine": line_of("past the end")}


def test_a_kernel_that_is_native_everywhere_has_no_result():
    assert sarif(kernels.product("float16"), "cuda:h200")["runs"][0]["results"] == []


def test_files_below_the_current_folder_are_relative(monkeypatch, tmp_path):
    def uri():
        result = sarif(kernels.past_the_end(), "cpu")["runs"][0]["results"][0]
        return result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]

    here = Path(kernels.__file__).resolve()
    monkeypatch.chdir(here.parents[1])
    assert uri() == "portability/kernels.py"
    monkeypatch.chdir(tmp_path)
    assert uri() == here.as_uri()
