"""The published JSON schemas of the self-test: `python3 tests/selftest_schema.py` writes them, `validated` checks an output.

They are made of the types that the outputs are made of, so they cannot say anything else. They allow keys that they do not know,
because later versions may add some; `validated` does not, so that a key which is not published is found.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Literal, Union, get_args, get_origin, get_type_hints

ROOT = Path(__file__).resolve().parents[1]
PATH = ROOT / "docs" / "schema" / "selftest-report-1.json"
MESH_PATH = PATH.with_name("selftest-mesh-1.json")
COMPARISON_PATH = PATH.with_name("selftest-comparison-1.json")
HISTORY_PATH = PATH.with_name("selftest-history-1.json")
PATHS_PATH = PATH.with_name("selftest-paths-1.json")
DRAFT = "https://json-schema.org/draft/2020-12/schema"
WORDS = {int: "integer", float: "number", str: "string", bool: "boolean"}
TITLE = "Report of neuca-selftest, version 1"
ABOUT = (
    "The output of neuca-selftest run --json (a list of these, for several peers) and of neuca-selftest explain --json, and the"
    " content of each kept report. Within a version, keys may be added but not removed. Rates are in bit/s, sizes in bytes, times"
    " in seconds. A value that is not known is null or left out, never zero."
)


def schema() -> dict[str, object]:
    """What is published."""
    from neuca_tools.selftest.codes import FAULTY
    from neuca_tools.selftest.codes import WORDS as VERDICTS
    from neuca_tools.selftest.diagnosis.diagnose import Finding, PhaseResult
    from neuca_tools.selftest.evidence import Evidence
    from neuca_tools.selftest.report.record import VERSION

    definitions: dict[str, dict] = {}
    properties = {
        "version": {"const": VERSION},
        "verdict": {"enum": [*VERDICTS.values(), FAULTY]},
        "exit_code": {"enum": [int(code) for code in VERDICTS]},
        "unknown": {
            "type": ["string", "null"],
            "description": "why no conclusion is possible",
        },
        "expect": {
            "type": ["number", "null"],
            "description": "the expected rate in bit/s",
        },
        "phases": {"type": "array", "items": _of(PhaseResult, definitions)},
        "findings": {"type": "array", "items": _of(Finding, definitions)},
        "failures": {
            "type": "array",
            "description": "what is wrong whatever causes it: failed steps, lost packets",
            "items": {"type": "string"},
        },
        "possible": {
            "type": "array",
            "description": "guesses of low confidence, which decide nothing",
            "items": _of(Finding, definitions),
        },
        "evidence": _of(Evidence, definitions),
    }
    required = list(properties)
    names = ("file", "tool", "date", "peer", "options", "system")
    properties["subject"] = {
        "type": "object",
        "description": "of explain: what was read",
        "properties": {name: {"type": "string"} for name in names},
        "required": ["file"],
    }
    finding = definitions["Finding"]["properties"]
    finding["id"]["pattern"] = "^D[0-9]{2}$"
    finding["severity"]["enum"] = ["fault", "limit", "info"]
    finding["confidence"]["enum"] = ["high", "medium", "low"]
    return {
        "$schema": DRAFT,
        "$id": "https://neuca-guest-tools.invalid/schema/selftest-report-1.json",
        "title": TITLE,
        "description": ABOUT,
        "type": "object",
        "properties": properties,
        "required": required,
        "$defs": dict(sorted(definitions.items())),
    }


MESH_ABOUT = (
    "The output of neuca-selftest mesh report --json and mesh run --json. Within a version, keys may be added but not removed. Rates"
    " are in bit/s, or shares of the reference. A value that is not known is null or left out, never zero."
)


def mesh_schema() -> dict[str, object]:
    """What is published of a mesh."""
    from neuca_tools.selftest.codes import FAULTY
    from neuca_tools.selftest.codes import WORDS as VERDICTS
    from neuca_tools.selftest.mesh.causes import TEXTS
    from neuca_tools.selftest.mesh.observe import SYMPTOMS
    from neuca_tools.selftest.mesh.report import VERSION, Rates
    from neuca_tools.selftest.mesh.verdict import CONFIRMED, NOT_REPEATED, SUSPECTED, MeshFinding

    definitions: dict[str, dict] = {}
    texts, numbers = {"type": "string"}, {"type": "integer"}
    properties = {
        "version": {"const": VERSION},
        "verdict": {"enum": [*VERDICTS.values(), FAULTY]},
        "exit_code": {"enum": [int(code) for code in VERDICTS]},
        "plan": {**texts, "description": "what tells this plan from others"},
        "began": {"type": ["number", "null"], "description": "seconds since 1970"},
        "seed": numbers,
        "rounds": numbers,
        "reference": {
            "type": ["number", "null"],
            "description": "the rate that every path should achieve, in bit/s",
        },
        "tested": {**numbers, "description": "tests that were reported"},
        "planned": numbers,
        "pairs": {**numbers, "description": "pairs of hosts that the plan tests"},
        "good_pairs": {**numbers, "description": "pairs whose last test is bad in nothing"},
        "failed": {**numbers, "description": "reported tests that say nothing of their path"},
        "disturbed": {
            **numbers,
            "description": "tests during which other load kept a processor of a host busy",
        },
        "unexplained": {
            **numbers,
            "description": "tests that are bad but belong to no finding, or that failed",
        },
        "silent": {
            "type": "array",
            "items": texts,
            "description": "hosts that reported nothing and were in no test",
        },
        "reasons": {
            "type": "object",
            "additionalProperties": texts,
            "description": "why each of these hosts is silent",
        },
        "untested": {
            "type": "array",
            "items": {"type": "array", "items": texts, "minItems": 2, "maxItems": 2},
            "description": "the pairs of the plan without a result",
        },
        "findings": {"type": "array", "items": _of(MeshFinding, definitions)},
        "hosts": {"type": "array", "items": _of(Rates, definitions)},
        "groups": {"type": "array", "items": _of(Rates, definitions)},
    }
    finding = definitions["MeshFinding"]["properties"]
    finding["kind"]["enum"] = sorted(TEXTS)
    finding["state"]["enum"] = [CONFIRMED, SUSPECTED, NOT_REPEATED]
    finding["direction"]["enum"] = ["out", "in", "both"]
    finding["symptom"]["enum"] = list(SYMPTOMS)
    return {
        "$schema": DRAFT,
        "$id": "https://neuca-guest-tools.invalid/schema/selftest-mesh-1.json",
        "title": "Report of neuca-selftest mesh, version 1",
        "description": MESH_ABOUT,
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "$defs": dict(sorted(definitions.items())),
    }


def _head(name: str, title: str, about: str) -> dict[str, object]:
    return {
        "$schema": DRAFT,
        "$id": f"https://neuca-guest-tools.invalid/schema/selftest-{name}-1.json",
        "title": f"{title}, version 1",
        "description": f"{about} Within a version, keys may be added but not removed. Rates are in bit/s.",
    }


def _verdict() -> dict[str, dict]:
    from neuca_tools.selftest.codes import FAULTY
    from neuca_tools.selftest.codes import WORDS as VERDICTS

    return {
        "version": {"const": 1},
        "verdict": {"enum": [*VERDICTS.values(), FAULTY]},
        "exit_code": {"enum": [int(code) for code in VERDICTS]},
    }


def _whole(properties: dict, definitions: dict) -> dict[str, object]:
    shape = {"type": "object", "properties": properties, "required": list(properties)}
    return {**shape, "$defs": dict(sorted(definitions.items()))}


def comparison_schema() -> dict[str, object]:
    """What is published of `compare`."""
    from neuca_tools.selftest.diagnosis.compare import Comparison

    definitions: dict[str, dict] = {}
    _of(Comparison, definitions)
    properties = {**_verdict(), **definitions.pop("Comparison")["properties"]}
    about = (
        "The output of neuca-selftest compare --json: the last run, compared with those before it."
    )
    return {
        **_head("comparison", "Comparison of neuca-selftest", about),
        **_whole(properties, definitions),
    }


def history_schema() -> dict[str, object]:
    """What is published of `history`."""
    from neuca_tools.selftest.diagnosis.diagnose import Finding, PhaseResult
    from neuca_tools.selftest.report.record import FINDING_FIELDS

    definitions: dict[str, dict] = {}
    _of(Finding, definitions)
    finding = definitions.pop("Finding")["properties"]
    text, maybe = {"type": "string"}, {"type": ["string", "null"]}
    verdict = _verdict()
    entry = {
        "version": verdict.pop("version"),
        **dict.fromkeys(("taken", "boot", "label", "peer", "interface"), maybe),
        "plan": text,
        "seconds": {"type": "number", "description": "of each throughput test"},
        **verdict,
        "expect": {"type": ["number", "null"]},
        "phases": {"type": "array", "items": _of(PhaseResult, definitions)},
        "findings": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {one: finding[one] for one in FINDING_FIELDS},
            },
        },
        "report": {**maybe, "description": "the name of the kept report"},
    }
    used = {"PhaseResult": definitions["PhaseResult"]}
    one = {"type": "object", "properties": entry, "required": list(entry)}
    about = "The output of neuca-selftest history --json: the archived tests, the oldest first."
    return {
        **_head("history", "List of neuca-selftest history", about),
        "type": "array",
        "items": one,
        "$defs": used,
    }


def paths_schema() -> dict[str, object]:
    """What is published of `compare-paths`."""
    from neuca_tools.selftest.diagnosis.diagnose import Finding
    from neuca_tools.selftest.diagnosis.paths import Row

    definitions: dict[str, dict] = {}
    reports = {"type": "object", "description": "as selftest-report-1.json describes"}
    verdict = _verdict()
    version = verdict.pop("version")
    path = {
        "label": {"type": "string"},
        **verdict,
        "unknown": {"type": ["string", "null"]},
        "findings": {"type": "array", "items": _of(Finding, definitions)},
        "reports": {"type": "array", "items": reports},
    }
    properties = {
        "version": version,
        **verdict,
        "baseline": {"type": "string"},
        "rows": {"type": "array", "items": _of(Row, definitions)},
        "paths": {
            "type": "array",
            "items": {"type": "object", "properties": path, "required": list(path)},
        },
    }
    about = "The output of neuca-selftest compare-paths --json."
    return {
        **_head("paths", "Comparison of paths by neuca-selftest", about),
        **_whole(properties, definitions),
    }


# Every published schema: the file, and what makes it.
SCHEMAS = {
    PATH: schema,
    MESH_PATH: mesh_schema,
    COMPARISON_PATH: comparison_schema,
    HISTORY_PATH: history_schema,
    PATHS_PATH: paths_schema,
}


def _of(kind: object, definitions: dict[str, dict], optional: bool = False) -> dict[str, object]:
    """The schema of a type; the dataclasses in it are added to `definitions`."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Union:
        known = [one for one in inner if one is not type(None)]
        if is_dataclass(known[0]):
            return _of(known[0], definitions)
        words = [WORDS[one] for one in known] + (["null"] * (not optional))
        return {"type": words if len(words) > 1 else words[0]}
    if origin is Literal:
        return {"enum": [*inner]}
    if origin is tuple:
        return {"type": "array", "items": _of(inner[0], definitions)}
    if origin is not None and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _of(inner[1], definitions)}
    if is_dataclass(kind):
        if kind.__name__ not in definitions:
            definitions[kind.__name__] = {}
            definitions[kind.__name__] = _object(kind, definitions)
        return {"$ref": f"#/$defs/{kind.__name__}"}
    return {"type": WORDS[kind]}


def _object(kind: type, definitions: dict[str, dict]) -> dict[str, object]:
    """A value that has its default is left out, but for the version (evidence/codec.py)."""
    from neuca_tools.selftest.evidence.codec import INTERNAL

    hints, written = get_type_hints(kind), [one for one in fields(kind) if one.metadata != INTERNAL]
    needed = {
        one.name: one.name == "version"
        or (one.default is MISSING and one.default_factory is MISSING)
        for one in written
    }
    return {
        "type": "object",
        "description": " ".join((inspect.getdoc(kind) or "").split()),
        "properties": {
            one.name: _of(hints[one.name], definitions, not needed[one.name]) for one in written
        },
        "required": [one.name for one in written if needed[one.name]],
    }


def published(made=schema) -> str:
    """The text of a file."""
    return json.dumps(made(), indent=1, ensure_ascii=False) + "\n"


@cache
def _strict(path=PATH):
    from jsonschema import Draft202012Validator

    known = json.loads(path.read_text(encoding="utf-8"))
    return Draft202012Validator(_closed(known))


def _closed(tree):
    """The schema without the permission to have keys that it does not know."""
    if isinstance(tree, list):
        return [_closed(one) for one in tree]
    if not isinstance(tree, dict):
        return tree
    closed = {key: _closed(value) for key, value in tree.items()}
    if tree.get("type") == "object" and "properties" in tree:
        closed["additionalProperties"] = False
    return closed


def validated(report, path=PATH):
    """The same report. Fails if the published schema does not describe it."""
    wrong = sorted(_strict(path).iter_errors(report), key=lambda error: list(error.absolute_path))
    if wrong:
        raise AssertionError([f"{one.json_path}: {one.message[-200:]}" for one in wrong[:5]])
    return report


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    for path, made in SCHEMAS.items():
        path.write_text(published(made), encoding="utf-8")
