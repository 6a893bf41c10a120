"""The policy's tables of envaudit.toml: `[rules]`, `[paths]`, `[[waivers]]`, `[roles]`, and part of `[gate]`.

Every fault is found before any of them is told, each with the key path that leads to it.
"""

from __future__ import annotations

import datetime
import difflib
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from envaudit.cli import references
from envaudit.cli.configurationkeys import PolicyFile, nearest
from envaudit.errors import EnvauditError
from envaudit.model.codec import SECTION_SCHEMAS
from envaudit.model.pathpattern import PathPattern
from envaudit.probe.registry import section_names
from envaudit.rules import Rule, all_rules
from envaudit.rules.policy import LEVELS, MUST_MATCH, PROFILES, Policy, Waiver

# In `must-match`, stands for the packages that envaudit has there by itself.
DEFAULT_PACKAGES = "default"

_WAIVER_KEYS = ("rule", "path", "nodes", "reason", "owner", "expires")
_DEMANDED = ("rule", "reason", "owner", "expires")
_ROLE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}\Z")
_EVIDENCE = "missing evidence is never a pass; leave the node or the section out instead"
_EXPIRED = "EA910"
# Of a threshold: bytes of more memory than any node has, and as nanoseconds still a number.
_MOST = 10**15
# That a policy may name, in all waivers and in all roles; each is a text in memory.
_MOST_NODES = 1_000_000
_DAY = re.compile(r"\d{4}-\d\d-\d\d\Z")


class Complaint(NamedTuple):
    """One fault: the key path that leads to it, and what is wrong there."""

    key: str
    text: str


def faults(table: Mapping[str, Any]) -> list[Complaint]:
    """All faults of the policy's tables in one file."""
    readers: Mapping[str, tuple[type, str, Callable[[Any], Iterator[Complaint]]]] = {
        "rules": (dict, "a table", _rules),
        "paths": (dict, "a table of path = level", _paths),
        "waivers": (list, "a list of tables", _waivers),
        "roles": (dict, "a table", _roles),
    }
    found = []
    for name, (kind, meaning, read) in readers.items():
        if name not in table:
            continue
        if isinstance(table[name], kind):
            found += list(read(table[name]))
        else:
            found.append(Complaint(name, f"expected {meaning}, got {type(table[name]).__name__}"))
    gate = table.get("gate")
    if isinstance(gate, dict):
        found += _gate(gate)
    return found


def policy_of(files: Sequence[PolicyFile], *, today: str, **chosen: Any) -> Policy:
    """The policy of some files without faults, later ones over earlier ones.

    Args:
        files: as the configuration names them.
        today: the day of the run in UTC.
        chosen: further fields of `Policy`.
    """
    levels: dict[str, str] = {}
    thresholds: dict[str, Mapping[str, float]] = {}
    paths: list[tuple[PathPattern, str]] = []
    waivers: list[Waiver] = []
    roles: dict[str, str] = {}
    for path, table, _ in files:
        for rule_id, settings in table.get("rules", {}).items():
            if "severity" in settings:
                levels[rule_id] = settings["severity"]
            numbers = {
                key.replace("-", "_"): float(value) for key, value in settings.items() if key != "severity"
            }
            thresholds[rule_id] = {**thresholds.get(rule_id, {}), **numbers}
        own = [(PathPattern.parse(text, "paths"), level) for text, level in table.get("paths", {}).items()]
        paths = [*own, *paths]
        waivers += [
            _waiver(row, f"{path}: waivers[{place}]") for place, row in enumerate(table.get("waivers", ()))
        ]
        for role, row in table.get("roles", {}).items():
            roles.update((node, role) for node in references.expand(row["hosts"]))
        gate = table.get("gate", {})
        if "profile" in gate:
            chosen["profile"] = gate["profile"]
        if "must-match" in gate:
            chosen["must_match"] = _packages(gate["must-match"])
    return Policy(
        levels=levels,
        thresholds=thresholds,
        paths=tuple(paths),
        waivers=tuple(waivers),
        roles=roles,
        today=today,
        **chosen,
    )


def _rules(table: Mapping[str, Any]) -> Iterator[Complaint]:
    known = {rule.id: rule for rule in all_rules()}
    for rule_id, settings in table.items():
        key = f"rules.{rule_id}"
        rule = known.get(rule_id)
        if rule is None:
            close = difflib.get_close_matches(rule_id, known, n=1)
            yield Complaint(key, f"no rule has this id{f', did you mean {close[0]}?' if close else ''}")
        elif not isinstance(settings, dict):
            yield Complaint(key, f"expected a table, got {settings!r}")
        elif rule.severity == "incomplete" and "severity" in settings:
            yield Complaint(f"{key}.severity", _EVIDENCE)
        else:
            for name, value in settings.items():
                yield from _rule_setting(f"{key}.{name}", rule, name, value)


def _rule_setting(key: str, rule: Rule, name: str, value: Any) -> Iterator[Complaint]:
    if name == "severity":
        if value not in LEVELS:
            yield Complaint(key, f"expected one of {', '.join(LEVELS)}, got {value!r}")
        return
    if name.replace("-", "_") not in rule.thresholds:
        numbers = [each.replace("_", "-") for each in rule.thresholds]
        yield Complaint(key, f"unknown key{nearest(name, ['severity', *numbers])}")
    elif isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= _MOST:
        unit = rule.thresholds[name.replace("-", "_")].unit
        yield Complaint(
            key, f"expected a number{f' in {unit}' if unit else ''}, from 0 to {_MOST}, got {value!r:.80}"
        )


def _paths(table: Mapping[str, Any]) -> Iterator[Complaint]:
    above: list[PathPattern] = []
    for text, level in table.items():
        key = f'paths."{text}"'
        if isinstance(level, dict):
            inside = next(iter(level), "...")
            yield Complaint(key, f'expected a level, got a table; a path is one text: "{text}/{inside}"')
        elif level not in LEVELS:
            yield Complaint(key, f"expected one of {', '.join(LEVELS)}, got {level!r}")
        bad = list(_bad_pattern(key, text))
        yield from bad
        if bad:
            continue
        pattern = PathPattern.parse(text, key)
        if not any(map(pattern.head.match, SECTION_SCHEMAS)):
            head = text.strip("/").partition("/")[0]
            yield Complaint(key, f"no section is called {head!r}{nearest(head, sorted(SECTION_SCHEMAS))}")
        first = next((each for each in above if each.matches(text.strip("/"))), None)
        if first is not None:
            yield Complaint(key, f'is never reached, for the first that matches decides: "{first.text}"')
        above.append(pattern)


def _waivers(rows: Sequence[Any]) -> Iterator[Complaint]:
    known = {rule.id: rule for rule in all_rules()}
    named = 0
    for place, row in enumerate(rows):
        key = f"waivers[{place}]"
        if not isinstance(row, dict):
            yield Complaint(key, f"expected a table, got {row!r}")
            continue
        for name in row:
            if name not in _WAIVER_KEYS:
                yield Complaint(f"{key}.{name}", f"unknown key{nearest(name, _WAIVER_KEYS)}")
        for name in _DEMANDED:
            if name not in row:
                yield Complaint(f"{key}.{name}", "is required: whoever reads it must know who accepted what")
        for name in ("rule", "path", "nodes", "reason", "owner"):
            value = row.get(name, "-")
            if not isinstance(value, str) or not value.strip():
                yield Complaint(f"{key}.{name}", f"expected a text, got {value!r}")
        if isinstance(row.get("rule"), str):
            if row["rule"] not in known:
                yield Complaint(f"{key}.rule", f"no rule has the id {row['rule']!r}")
            elif known[row["rule"]].severity == "incomplete":
                yield Complaint(f"{key}.rule", _EVIDENCE)
            elif row["rule"] == _EXPIRED:
                yield Complaint(f"{key}.rule", "a waiver that has expired is renewed, not waived")
        if isinstance(row.get("path"), str):
            yield from _bad_pattern(f"{key}.path", row["path"])
        if isinstance(row.get("nodes"), str):
            named += len((yield from _nodes_of(f"{key}.nodes", row["nodes"])))
            if named > _MOST_NODES:
                yield _too_many(f"{key}.nodes")
                return
        if "expires" in row and day_of(row["expires"]) is None:
            yield Complaint(
                f"{key}.expires", f"expected a day such as 2027-01-31, got {str(row['expires'])!r}"
            )


def _roles(table: Mapping[str, Any]) -> Iterator[Complaint]:
    first: dict[str, str] = {}
    for role, row in table.items():
        key = f"roles.{role}"
        if not _ROLE_NAME.match(role):
            yield Complaint(key, "a role's name is letters, digits, - and _, and begins with a letter")
        if not isinstance(row, dict):
            yield Complaint(key, f"expected a table with hosts, got {row!r}")
            continue
        for name in row:
            if name != "hosts":
                yield Complaint(f"{key}.{name}", f"unknown key{nearest(name, ['hosts'])}")
        hosts = row.get("hosts")
        if not isinstance(hosts, str) or not hosts.strip():
            yield Complaint(f"{key}.hosts", f"expected a node set, got {hosts!r}")
            continue
        for node in (yield from _nodes_of(f"{key}.hosts", hosts)):
            if first.setdefault(node, role) != role:
                yield Complaint(f"{key}.hosts", f"{node} is in roles.{first[node]} already")
        if len(first) > _MOST_NODES:
            yield _too_many(f"{key}.hosts")
            return


def _gate(gate: Mapping[str, Any]) -> list[Complaint]:
    found = []
    if "profile" in gate and not (isinstance(gate["profile"], str) and gate["profile"] in PROFILES):
        found.append(
            Complaint("gate.profile", f"expected one of {', '.join(PROFILES)}, got {gate['profile']!r}")
        )
    packages = gate.get("must-match", [])
    if not isinstance(packages, list) or not all(isinstance(name, str) and name for name in packages):
        found.append(Complaint("gate.must-match", f"expected a list of package names, got {packages!r}"))
    if "prolog" in gate:
        found += _prolog(gate["prolog"])
    return found


def _prolog(rules: Any) -> Iterator[Complaint]:
    """A rule that a prolog listens to can drain: it judges one node by what is read there."""
    if not isinstance(rules, list):
        yield Complaint("gate.prolog", f"expected a list of rules, got {rules!r}")
        return
    known, read = {rule.id: rule for rule in all_rules()}, set(section_names())
    for place, rule_id in enumerate(rules):
        key = f"gate.prolog[{place}]"
        if not isinstance(rule_id, str) or rule_id not in known:
            yield Complaint(key, f"no rule has the id {rule_id!r}")
        elif known[rule_id].severity == "incomplete":
            yield Complaint(key, "evidence that is missing drains no node")
        elif known[rule_id].scope == "cross":
            yield Complaint(key, f"{rule_id} compares nodes, and a prolog sees one")
        elif not set(known[rule_id].needs) <= read:
            yield Complaint(key, f"a prolog does not read what {rule_id} judges")


def _bad_pattern(key: str, text: str) -> Iterator[Complaint]:
    try:
        PathPattern.parse(text, key)
    except EnvauditError as error:
        yield Complaint(key, error.what)


def _nodes_of(key: str, text: str) -> Generator[Complaint, None, Sequence[str]]:
    """The nodes of a node set, and what is wrong with it."""
    nodes: Sequence[str] = ()
    try:
        nodes = references.expand(text)
        if not nodes:
            yield Complaint(key, f"{text!r} names no node")
    except EnvauditError as error:
        yield Complaint(key, error.what)
    return nodes


def _too_many(key: str) -> Complaint:
    return Complaint(key, f"with those before it names more than {_MOST_NODES} nodes")


def _waiver(row: Mapping[str, Any], where: str) -> Waiver:
    return Waiver(
        rule=row["rule"],
        expires=day_of(row["expires"]) or "",
        reason=row["reason"],
        owner=row["owner"],
        path=PathPattern.parse(row["path"], where) if "path" in row else None,
        nodes=references.expand(row["nodes"]) if "nodes" in row else (),
        where=where,
    )


def day_of(value: Any) -> str | None:
    """A day as `2027-01-31`, from a TOML date or a text; None for what is no day of the calendar."""
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return value.isoformat()
    if not isinstance(value, str) or not _DAY.match(value):
        return None
    try:
        return datetime.date.fromisoformat(value).isoformat()
    except ValueError:
        return None


def _packages(names: Sequence[str]) -> tuple[str, ...]:
    expanded = [each for name in names for each in (MUST_MATCH if name == DEFAULT_PACKAGES else (name,))]
    return tuple(dict.fromkeys(re.sub(r"[-_.]+", "-", name).lower() for name in expanded))
