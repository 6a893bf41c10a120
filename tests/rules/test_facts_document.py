"""docs/facts.md, the catalogue of comparisons, against the rules and the table that make it."""

from __future__ import annotations

from pathlib import Path

import pytest

from envaudit.model.finding import SEVERITIES
from envaudit.rules import all_rules
from envaudit.rules.catalogue import AS_A_SET, ENTRIES, EXACTLY, NOT_AT_ALL, WITHIN, Entry, entry_of

DOCUMENT = Path(__file__).parents[2] / "docs" / "facts.md"


def claims_table() -> str:
    """The rules that speak of differences, causes first."""
    rows = ["| rule | severity | facts | compared | takes along |", "|---|---|---|---|---|"]
    speaking = [(rule.claims.order, rule.id, rule, rule.claims) for rule in all_rules() if rule.claims]
    for _, _, rule, claims in sorted(speaking, key=lambda row: row[:2]):
        compared = claims.compared + (", also between roles" if claims.across_roles else "")
        rows.append(
            f"| {rule.id} {rule.title} | {rule.severity} | {_paths(claims.of)} | {compared} "
            f"| {_paths(claims.follows)} |"
        )
    return "".join(f"{row}\n" for row in rows)


def entries_table() -> str:
    """The catalogue."""
    rows = ["| facts | compared | severity | why |", "|---|---|---|---|"]
    for entry in ENTRIES:
        compared = f"within {entry.tolerance_percent} %" if entry.compared == WITHIN else entry.compared
        rows.append(f"| `{entry.path}` | {compared} | {entry.severity} | {entry.why} |")
    return "".join(f"{row}\n" for row in rows)


def _paths(patterns: tuple[str, ...]) -> str:
    return ", ".join(f"`{pattern}`" for pattern in patterns)


def _between(text: str, name: str, table: str) -> str:
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    before, rest = text.split(begin)
    _, after = rest.split(end)
    return f"{before}{begin}{table}{end}{after}"


def test_document_of_facts_is_what_judges(request: pytest.FixtureRequest) -> None:
    """What is documented is what compares; `--rewrite-goldens` writes the tables anew."""
    text = DOCUMENT.read_text(encoding="utf-8")
    expected = _between(_between(text, "claims", claims_table()), "entries", entries_table())
    if request.config.getoption("--rewrite-goldens"):
        DOCUMENT.write_text(expected, encoding="utf-8")
        text = expected
    assert expected == text


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.path)
def test_entry_says_how_and_why(entry: object) -> None:
    """A way of comparing, a severity and a reason, in the words of the house."""
    assert isinstance(entry, Entry)
    assert entry.compared in (EXACTLY, AS_A_SET, WITHIN, NOT_AT_ALL)
    assert entry.severity in SEVERITIES
    assert entry.why.endswith(".")
    assert (entry.compared == WITHIN) == (entry.tolerance_percent > 0)


def test_first_entry_that_matches_decides() -> None:
    """`git/commit` is more than `git/**`."""
    found = [entry_of(path) for path in ("git/commit", "git/dirty")]
    assert ["error", "warning"] == [entry.severity for entry in found if entry]
    assert None is entry_of("strange/fact")
