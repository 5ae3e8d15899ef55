"""The published JSON schemas of the commands: `python3 tests/command_schemas.py` writes them, `validated` checks an output.

They allow keys that they do not know, because later versions may add some; `validated` does not, so that a key which is not
published is found.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "schema"
DRAFT = "https://json-schema.org/draft/2020-12/schema"
TEXT, NUMBER, INTEGER, TRUTH = ({"type": one} for one in ("string", "number", "integer", "boolean"))
TIME = {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z$", "description": "UTC"}  # fmt: skip
WORDS = {"type": "object", "additionalProperties": TEXT}
EXPECTED = "Within a version, keys may be added but not removed. A value that is not known or not set is null."


def maybe(one):
    """The schema of a value that may be null."""
    return {"anyOf": [one, {"type": "null"}]}


def many(one):
    return {"type": "array", "items": one}


def among(*words):
    return {"enum": list(words)}


def record(optional=(), **properties):
    """An object with these keys; `-` in a name is written as `__`."""
    named = {name.replace("__", "-"): one for name, one in properties.items()}
    needed = [name for name in named if name not in optional]
    return {"type": "object", "properties": named, "required": needed}


def _common():
    from typing import get_args

    from neuca_tools.guest.base import STATES as GUEST
    from neuca_tools.model import ProblemCode

    guest = set(GUEST)
    return {
        "state": among("ok", "pending", "degraded", "failed"),
        "problem": record(code=among(*get_args(ProblemCode)), text=TEXT),
        "guest": among(*sorted(map(str, guest | {"ok"}))),
    }


def _interface(problem):
    from neuca_tools.model.links import KINDS

    manager = among("managed", "unmanaged", "absent", "unknown")
    return record(
        mac=maybe(TEXT),
        name=maybe(TEXT),
        desired_name=maybe(TEXT),
        kind=among("physical", "vlan", *KINDS),
        role=among("dataplane", "management", "ignored", "unlisted"),
        desired_state=maybe(among("up", "down", "user")),
        state=maybe(among("up", "down")),
        carrier=maybe(TRUTH),
        mtu=maybe(INTEGER),
        addresses=many(TEXT),
        ok=TRUTH,
        managers=record(networkmanager=manager, networkd=manager),
        problems=many(problem),
        notes=many(record(setting=TEXT, effect=TEXT, reason=TEXT)),
        parent=maybe(TEXT),
        vlan_id=maybe(INTEGER),
        members=many(TEXT),
        master=maybe(TEXT),
        table=maybe(INTEGER),
    )


def _tuning(problem):
    value = record(
        interface=maybe(TEXT),
        link=maybe(TEXT),
        setting=TEXT,
        current=maybe(TEXT),
        desired=maybe(TEXT),
        origin=TEXT,
        effect=among("effective", "not yet", "overridden", "not applicable", "unsupported"),
        reason=TEXT,
    )
    return record(
        profiles=many(TEXT),
        rate=maybe(NUMBER),
        rtt=maybe(NUMBER),
        environment=among("vm", "bare metal", "container"),
        detail=TEXT,
        values=many(value),
        problems=many(problem),
        notes=many(TEXT),
    )


def status():
    """`neuca status --json`."""
    common = _common()
    problem = common["problem"]
    source = record(
        source=maybe(TEXT),
        sha256=maybe(TEXT),
        fetched=maybe(TIME),
        stale=TRUTH,
        none_for_us=TRUTH,
        reason=maybe(TEXT),
        platform=maybe(TEXT),
    )
    finding = record(
        ("subject", "again"), state=common["guest"], text=TEXT, subject=TEXT, again=TRUTH
    )
    feature = record(
        feature=TEXT, state=common["guest"], finished=maybe(TIME), findings=many(finding)
    )
    return record(
        ("guest", "tuning", "unsaved"),
        version={"const": 2},
        neuca=TEXT,
        state=common["state"],
        document=source,
        interfaces=many(_interface(problem)),
        problems=many(problem),
        notes=many(TEXT),
        last_pass=maybe(record(finished=TEXT, seconds=NUMBER, changed=INTEGER, failed=INTEGER)),
        not_rolled_back=many(TEXT),
        tuning=_tuning(problem),
        guest=many(feature),
        unsaved=maybe(TEXT),
    )


def _outcome():
    common = _common()
    problem = record(link=maybe(TEXT), **common["problem"]["properties"])
    return {"state": common["state"], "problems": many(problem)}


def plan():
    """`neuca plan --json`."""
    value = {"type": ["string", "integer", "number", "boolean", "null"]}
    operation = record(operation=TEXT, target=TEXT, to=value, text=TEXT)
    operation["properties"]["from"] = value
    operation["required"].append("from")
    # Commands other than a pass know no state; release and revert no problems either.
    optional = ("state", "problems")
    return record(optional, version={"const": 1}, operations=many(operation), **_outcome())


def changes():
    """`neuca release --json` and others that change something, without --dry-run."""
    operation = plan()["properties"]["operations"]["items"]
    failure = {**operation, "properties": {**operation["properties"], "reason": TEXT}}
    failure["required"] = [*operation["required"], "reason"]
    return record(version={"const": 1}, operations=many(operation), failures=many(failure))


def clean():
    """`neuca clean --json`."""
    return record(version={"const": 1}, dry_run=TRUTH, items=many(TEXT))


def scripts():
    """`neuca run-scripts --json`."""
    script = record(name=TEXT, state=_common()["guest"], text=TEXT)
    return record(version={"const": 1}, scripts=many(script))


def section():
    """`neuca interfaces --json`, and `routes`, `users` and `storage`."""
    name = among("interfaces", "routes", "users", "storage")
    items = {**WORDS, "description": "the lines of the section, by what precedes the equals sign"}
    router = {**among("true", "false", "user"), "description": "of routes only"}
    return record(("router",), version={"const": 1}, section=name, items=items, router=router)


def analyze():
    """`neuca analyze --json`."""
    seconds = {**NUMBER, "description": "seconds since the kernel started"}
    event = record(at=seconds, unit=TEXT, text=TEXT, took=maybe(NUMBER))
    return record(version={"const": 1}, events=many(event))


def tuning():
    """`neuca tune audit --json`."""
    found = _tuning(_common()["problem"])
    found["properties"] = {"version": {"const": 2}, **found["properties"]}
    found["required"] = ["version", *found["required"]]
    return found


ROUTE = {
    "to": TEXT,
    "via": maybe(TEXT),
    "metric": maybe(INTEGER),
    "table": INTEGER,
    "type": TEXT,
}


def desired():
    """`neuca show desired --json`."""
    link = record(
        kind=TEXT,
        mac=maybe(TEXT),
        name=maybe(TEXT),
        parent=maybe(TEXT),
        vlan_id=maybe(INTEGER),
        role=maybe(TEXT),
        state=maybe(TEXT),
        mtu=maybe(INTEGER),
        txqueuelen=maybe(INTEGER),
        addresses=many(TEXT),
        sysctl=WORDS,
        device=WORDS,
        members=many(TEXT),
        master=maybe(TEXT),
        options=WORDS,
    )
    return record(
        version={"const": 1},
        hostname=maybe(TEXT),
        router=among("true", "false", "user"),
        links=many(link),
        routes=many(record(**ROUTE, state=among("present", "absent", "user"))),
        rules=many(TEXT),
        sysctl=WORDS,
        problems=_outcome()["problems"],
    )


def observed():
    """`neuca show observed --json`."""
    link = record(
        name=TEXT,
        index=INTEGER,
        kind=TEXT,
        mac=maybe(TEXT),
        permanent_mac=maybe(TEXT),
        state=among("up", "down"),
        carrier=maybe(TRUTH),
        mtu=INTEGER,
        max_mtu=maybe(INTEGER),
        txqueuelen=maybe(INTEGER),
        parent=maybe(TEXT),
        master=maybe(TEXT),
        vlan_id=maybe(INTEGER),
        options=WORDS,
        addresses=many(TEXT),
    )
    return record(
        version={"const": 1},
        links=many(link),
        routes=many(record(**ROUTE, interface=maybe(TEXT), protocol=INTEGER)),
        rules=many(record(family=among("ipv4", "ipv6"), rule=TEXT, protocol=INTEGER)),
        metadata_interface=maybe(TEXT),
    )


def explanation():
    """`neuca explain --json`."""
    value = {"type": ["string", "integer", "null"]}
    setting = record(
        setting=TEXT,
        desired=value,
        current=value,
        origin=maybe(TEXT),
        overridden=maybe(TEXT),
        original=value,
    )
    return record(
        version={"const": 2},
        link=TEXT,
        role=TEXT,
        reason=TEXT,
        settings=many(setting),
        problems=many(_common()["problem"]),
        notes=many(record(setting=TEXT, effect=TEXT, reason=TEXT)),
    )


def report():
    """`neuca apply --json`."""
    return record(
        version={"const": 1},
        finished=TIME,
        seconds=NUMBER,
        changed=many(TEXT),
        rolled_back=TRUTH,
        **_outcome(),
    )


def check():
    """`neuca check --json`."""
    fault = record(
        line=maybe(INTEGER), severity=among("error", "warning"), text=TEXT, meant=maybe(TEXT)
    )
    file = record(
        file=TEXT,
        format=among("neuca", "network_data.json", "network-config", "configuration"),
        valid=TRUTH,
        faults=many(fault),
    )
    return record(version={"const": 1}, files=many(file))


def user_data():
    """`neuca show document --json`."""
    link = record(
        link=TEXT,
        state=maybe(among("up", "down", "user")),
        name=maybe(TEXT),
        mtu=maybe(INTEGER),
        txqueuelen=maybe(INTEGER),
        addresses=many(TEXT),
        sysctl=WORDS,
        device=WORDS,
        members=many(TEXT),
        parent=maybe(TEXT),
        options=WORDS,
        automatic=maybe({"type": "object", "additionalProperties": True}),
    )
    route = record(
        to=TEXT,
        via=maybe(TEXT),
        state=among("present", "absent", "user"),
        metric=maybe(INTEGER),
        table=INTEGER,
        type=TEXT,
        link=maybe(TEXT),
    )
    storage = record(
        device=TEXT,
        ip=TEXT,
        port=INTEGER,
        lun=INTEGER,
        chap_user=TEXT,
        chap_secret=TEXT,
        attach=TRUTH,
        fs_type=TEXT,
        fs_options=TEXT,
        format=TRUTH,
        mount_point=TEXT,
        mutual_chap={"description": "never shown", "type": ["string", "array"]},
    )
    platform = record(
        hostname=maybe(TEXT),
        links=many(link),
        routes=many(route),
        rules=many(TEXT),
        management=WORDS,
    )
    fault = record(line=INTEGER, severity=among("error", "warning"), text=TEXT)
    parts = {
        "sha256": TEXT,
        "hostname": maybe(TEXT),
        "router": among("true", "false", "user"),
        "links": many(link),
        "routes": many(route),
        "rules": many(TEXT),
        "platform": maybe(platform),
        "users": many(record(login=TEXT, sudo=TRUTH, keys=many(TEXT))),
        "scripts": many(record(name=TEXT, body=TEXT)),
        "storage": many(storage),
        "faults": many(fault),
    }
    return record(tuple(parts), version={"const": 1}, source=maybe(TEXT), **parts)


SCHEMAS = {
    "status": (status, "Output of neuca status --json"),
    "plan": (
        plan,
        "Output of neuca plan --json, and of other commands that print operations with --dry-run",
    ),
    "report": (report, "Output of neuca apply --json, and of neuca release --undo --json"),
    "changes": (
        changes,
        "Output of neuca release, revert, tune apply and tune revert, with --json",
    ),
    "clean": (clean, "Output of neuca clean --json"),
    "scripts": (scripts, "Output of neuca run-scripts --json"),
    "section": (section, "Output of neuca interfaces, routes, users and storage, with --json"),
    "analyze": (analyze, "Output of neuca analyze --json"),
    "tuning": (tuning, "Output of neuca tune audit --json"),
    "desired": (desired, "Output of neuca show desired --json"),
    "observed": (observed, "Output of neuca show observed --json"),
    "explanation": (explanation, "Output of neuca explain --json"),
    "check": (check, "Output of neuca check --json"),
    "user-data": (user_data, "Output of neuca show document --json: user-data as it was parsed"),
}


VERSIONS = {"status": 2, "explanation": 2, "tuning": 2}  # 1 for the others


def path(name):
    return FOLDER / f"{name}-{VERSIONS.get(name, 1)}.json"


def schema(name):
    """What is published."""
    build, title = SCHEMAS[name]
    head = {
        "$schema": DRAFT,
        "$id": f"https://neuca-guest-tools.invalid/schema/{path(name).name}",
        "title": f"{title}, version {VERSIONS.get(name, 1)}",
        "description": EXPECTED,
    }
    return {**head, **build()}


def published(name):
    """The text of the file."""
    return json.dumps(schema(name), indent=1, ensure_ascii=False) + "\n"


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


@cache
def _strict(name):
    from jsonschema import Draft202012Validator

    return Draft202012Validator(_closed(json.loads(path(name).read_text(encoding="utf-8"))))


def validated(name, output):
    """The same output. Fails if the published schema does not describe it."""
    wrong = sorted(_strict(name).iter_errors(output), key=lambda error: list(error.absolute_path))
    if wrong:
        raise AssertionError([f"{one.json_path}: {one.message[-200:]}" for one in wrong[:5]])
    return output


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    for each in SCHEMAS:
        path(each).write_text(published(each), encoding="utf-8")
