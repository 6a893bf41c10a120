"""docs/rules.md, the register, against the rules themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from envaudit.rules import all_rules

REGISTER = Path(__file__).parents[2] / "docs" / "rules.md"
BEGIN, END = "<!-- rules -->\n", "<!-- end of rules -->\n"


def table() -> str:
    """The rules as a Markdown table."""
    rows = ["| id | severity | scope | what | why it matters |", "|---|---|---|---|---|"]
    rows += [
        f"| {rule.id} | {rule.severity} | {rule.scope} | {rule.title} | {rule.why} |" for rule in all_rules()
    ]
    return "".join(f"{row}\n" for row in rows)


def test_register_lists_the_rules_as_they_are(request: pytest.FixtureRequest) -> None:
    """What is documented is what judges; `--rewrite-goldens` writes the table anew."""
    text = REGISTER.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    expected = f"{before}{BEGIN}{table()}{END}{after}"
    if request.config.getoption("--rewrite-goldens"):
        REGISTER.write_text(expected, encoding="utf-8")
        text = expected
    assert expected == text
