"""GitHub's annotations as its runner reads them, and the step summary as Markdown is read."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Dict, List, NamedTuple, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envaudit.model import Finding, Verdict
from envaudit.report import Report, SetAside, Stage, github, markdown, plain
from envaudit.report.screen import printable
from tests.report.cases import HOSTILE
from tests.report.ci_cases import CI_CASES, NCCL, SECRET, TWICE, is_well, linted, told
from tests.report.reports import LAWS, TEXTS, findings, reports


class Command(NamedTuple):
    """A workflow command that a runner has carried out."""

    name: str
    properties: Dict[str, str]
    message: str


class Log(NamedTuple):
    """What a runner makes of a step's output: what it did, and what it only showed."""

    commands: List[Command]
    shown: List[str]


def read_by_a_runner(output: str) -> Log:
    """The runner's own way: blanks before `::` do not matter, and a token stops and resumes commands."""
    commands: List[Command] = []
    shown: List[str] = []
    stopped: Optional[str] = None
    for line in output.split("\n"):
        match = re.match(r"\s*::(?P<name>[^ :]+)(?: (?P<properties>[^\n]*?))?::(?P<message>.*)\Z", line)
        if stopped is not None:
            if line.strip() == f"::{stopped}::":
                stopped = None
            else:
                shown.append(line)
        elif match is None:
            assert "##[" not in line
            shown.append(line)
        elif match["name"] == "stop-commands":
            stopped = match["message"]
        else:
            pairs = [pair.partition("=") for pair in (match["properties"] or "").split(",") if pair]
            properties = {name: unescaped(value, {"%3A": ":", "%2C": ","}) for name, _, value in pairs}
            commands.append(Command(match["name"], properties, unescaped(match["message"], {})))
    assert stopped is None, "commands of later steps would be dead"
    return Log(commands, shown)


def unescaped(value: str, more: Dict[str, str]) -> str:
    """The inverse of the escaping that GitHub documents for its toolkit."""
    for escape, character in {**more, "%0D": "\r", "%0A": "\n", "%25": "%"}.items():
        value = value.replace(escape, character)
    return value


def annotations(report: Report) -> List[Command]:
    """What GitHub would show beside the code."""
    return read_by_a_runner(github.render(report)).commands


def test_finding_of_a_file_is_an_annotation_at_its_line() -> None:
    """With the rule as its title."""
    secret, stale, twice = annotations(CI_CASES["linted"])
    assert ("error", "envs/gpu env.yml", "3", "11", "EA013 credential in the file") == (
        secret.name,
        *(secret.properties[name] for name in ("file", "line", "col", "title")),
    )
    assert "a token stands in the file" == secret.message.split("\n")[0]
    assert {"file": "conda-lock.yml", "title": "EA060 lock is stale"} == stale.properties
    assert "warning" == twice.name


def test_failed_and_missing_nodes_are_errors() -> None:
    """Neither can be overlooked."""
    told_of = [
        (each.name, each.message.split("\n")[1]) for each in annotations(CI_CASES["node_missing_and_outlier"])
    ]
    assert [("error", "node10"), ("error", "node11")] == told_of


def test_finding_of_a_node_stands_at_the_lock_where_there_is_one() -> None:
    """As in SARIF."""
    files = {each.properties["file"] for each in annotations(CI_CASES["gate_with_a_lock"])}
    assert {"lockfiles/train.conda-lock.yml"} == files


def test_run_that_looked_at_nothing_is_an_error() -> None:
    """A step without an annotation looks well."""
    (only,) = annotations(CI_CASES["nothing_examined"])
    assert ("error", "nothing was examined") == (only.name, only.message.split("\n")[0])
    assert github.summary(CI_CASES["nothing_examined"]).startswith("## ❓ ")


def test_pass_has_no_annotation() -> None:
    """Nothing to look at."""
    assert [] == annotations(CI_CASES["fifty_healthy_nodes"])


def test_values_are_escaped_as_the_toolkit_does() -> None:
    """A comma, a colon and a percent sign in a path end no property."""
    odd = replace(SECRET, path="a,line=9:b%3A.yml:3:1", message="100 % :: of\nit")
    (only,) = annotations(linted(odd))
    assert ("a,line=9:b%3A.yml", "3") == (only.properties["file"], only.properties["line"])
    assert "100 % :: of\\nit" == only.message.split("\n")[0]


def test_more_than_ten_of_a_kind_are_counted() -> None:
    """GitHub shows ten of a step, and says nothing of the others."""
    many = tuple(
        Finding("EA299", "warning", f"x{number} differs", ("n",), f"env/{number}") for number in range(40)
    )
    report = told(Report("diff", "0.1.0", Verdict.of(many), many, nodes=("n",)))
    told_of = annotations(report)
    assert 10 == len(told_of)
    assert "31 more of this kind are in the log" == told_of[-1].message
    assert "x39 differs" in github.render(report)


@LAWS
@given(reports())
def test_any_report_gives_a_runner_nothing_but_annotations(report: Report) -> None:
    """The log below them is the plain report, letter by letter, and no part of it acts."""
    log = read_by_a_runner(github.render(report))
    assert {each.name for each in log.commands} <= {"error", "warning", "notice"}
    assert plain.render(report).split("\n") == log.shown
    red = any(each.name == "error" for each in log.commands)
    assert red != is_well(report)


def test_log_that_guesses_the_token_is_not_believed() -> None:
    """The token is a digest over the whole log."""
    first = github.render(CI_CASES["gate"])
    (token,) = re.findall("::stop-commands::([0-9a-f]{64})", first)
    report = replace(CI_CASES["gate"], stages=(Stage("x", f"\n::{token}::"), Stage("y", "::error::owned")))
    messages = [each.message for each in annotations(report)]
    assert messages
    assert "owned" not in "\n".join(messages)


# Markdown


def read_as_markdown(text: str):  # type: ignore[no-untyped-def]
    """Tokens of a page: tables, HTML and links are read, as GitHub does."""
    markdown_it = pytest.importorskip("markdown_it")
    return markdown_it.MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)


def inline_of(text: str) -> List[List[object]]:
    """The inline parts of each paragraph, heading and cell."""
    return [token.children or [] for token in read_as_markdown(text) if token.type == "inline"]


def text_of(children: List[object]) -> str:
    """What a reader sees of them."""
    return "".join(
        "\n" if each.content == "<br>" else "" if each.type == "html_inline" else each.content
        for each in children
    )  # type: ignore[attr-defined]


@given(TEXTS)
def test_words_in_a_table_are_read_as_they_are(words: str) -> None:
    """No mark of theirs makes a column, a link, HTML or anything else."""
    page = "\n".join(markdown.table(("a", "b"), [(words, "end")]))
    _, _, cell, end = inline_of(page)
    assert {each.type for each in cell} <= {"text", "text_special", "html_inline"}  # type: ignore[attr-defined]
    assert {"<br>"} >= {each.content for each in cell if each.type == "html_inline"}  # type: ignore[attr-defined]
    lines = [markdown.shortened(printable(line), 300).strip() for line in words.split("\n")]
    assert [line for line in lines if line] == [
        line.strip() for line in text_of(cell).split("\n") if line.strip()
    ]
    assert "end" == text_of(end)


@given(st.text("`*_[]()<>|~&@#$!:\\ab w.\"'-+=1", max_size=30))
def test_words_of_nothing_but_marks_are_read_as_they_are(words: str) -> None:
    """The worst that ASCII has."""
    (children,) = inline_of(f"x{markdown.text(words)}x")
    assert f"x{words}x" == text_of(children)


@pytest.mark.parametrize(
    "words", ["www.example.org", "https://example.org", "@octocat", "GH-1", "#12", "a@b.org"]
)
def test_words_make_no_link_of_githubs_own(words: str) -> None:
    """Addresses, people and issues: each has a mark that is an entity."""
    assert words not in markdown.text(words) or words == "GH-1"


@LAWS
@given(reports(), st.lists(findings(), max_size=2))
def test_any_summary_is_a_heading_lines_and_tables(report: Report, aside: List[Finding]) -> None:
    """With the HTML of our own alone."""
    report = replace(report, set_aside=tuple(SetAside(each, "waiver", HOSTILE) for each in aside))
    for children in inline_of(github.summary(report)):
        kinds = {each.type for each in children}  # type: ignore[attr-defined]
        assert kinds <= {"text", "text_special", "html_inline"}
        html = {each.content for each in children if each.type == "html_inline"}  # type: ignore[attr-defined]
        assert html <= {"<br>", "<code>", "</code>"}


def test_summary_tells_what_is_set_aside() -> None:
    """Who said so, and until when."""
    texts = [text_of(each) for each in inline_of(github.summary(CI_CASES["set_aside"]))]
    assert "until 2027-01-31: drained next week (ops)" in texts
    assert "switched off by the policy" in texts


def test_summary_has_values_and_verdict() -> None:
    """What the log has, at a glance."""
    texts = [text_of(each) for each in inline_of(github.summary(CI_CASES["node_missing_and_outlier"]))]
    assert "❌ envaudit diff: FAIL" == texts[0]
    assert "FAIL EA214 node10: 1 error on 1 of 11 nodes, 0.6 s" in texts
    assert any("2.21.5 → 2.20.5" in each for each in texts)


def test_summary_of_ten_thousand_findings_fits() -> None:
    """GitHub refuses a summary above its limit, the whole of it."""
    many = tuple(replace(NCCL, nodes=(f"n{number}",), evidence=("&" * 900,) * 9) for number in range(10_000))
    aside = tuple(SetAside(each, "waiver", "y" * 900) for each in many)
    report = replace(linted(TWICE), findings=many, set_aside=aside)
    page = github.summary(report)
    assert len(page.encode()) <= github.SUMMARY_BYTES
    assert "more lines are left out" in page


def test_summary_counts_what_a_table_leaves_out() -> None:
    """A long table ends with how long it would be."""
    many = tuple(replace(NCCL, nodes=(f"n{number}",)) for number in range(250))
    aside = tuple(SetAside(each, "waiver", "y") for each in many)
    page = github.summary(replace(linted(TWICE), findings=many, set_aside=aside))
    assert "\n50 more findings are in the log.\n" in page
    assert "\n50 more are set aside.\n" in page
