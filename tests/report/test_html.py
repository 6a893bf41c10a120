"""The page as a document, without a browser: what stands in it, and what cannot."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any, Dict, List, Tuple

import pytest
from hypothesis import given

from envaudit.model import Finding, Missing, Section, Verdict
from envaudit.report import Report, RuleText, SetAside
from envaudit.report.screen import printable
from tests.diff.nodes import training_node
from tests.report.cases import CASES
from tests.report.pages import SCRIPT, page
from tests.report.reports import LAWS, reports

html = pytest.importorskip("envaudit.report.html", reason="the controller's side: needs jinja2")

# What has no end tag.
VOID = ("meta", "input", "br")
KNOWN_TAGS = frozenset(
    (
        *("html", "head", "meta", "title", "style", "body", "header", "main", "nav", "section", "article"),
        *("aside", "footer", "script", "h1", "h2", "h3", "h4", "div", "p", "a", "span", "code", "i", "pre"),
        *("table", "thead", "tbody", "tr", "th", "td", "ul", "li", "details", "summary", "label", "input"),
        "br",
    )
)


class Document(HTMLParser):
    """A page taken apart as a browser does: elements in balance, their attributes, the texts.

    Attributes:
        tags: each element's name and attributes.
        texts: everything that is shown.
        scripts: the contents of the script elements.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: List[Tuple[str, Dict[str, Any]]] = []
        self.texts: List[str] = []
        self.scripts: List[str] = []
        self._open: List[str] = []
        self.feed(text)
        self.close()
        assert [] == self._open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        """Keep it, and that it is open."""
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """It must be the one that is open."""
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Tell texts from scripts."""
        inside = self._open[-1] if self._open else ""
        if inside == "script":
            self.scripts.append(data)
        elif inside != "style":
            self.texts.append(data)

    @property
    def text(self) -> str:
        """What is shown, blanks folded."""
        return re.sub(r"\s+", " ", " ".join(self.texts))

    @property
    def data(self) -> Any:
        """What the script shows."""
        return json.loads(self.scripts[0])


def in_sections(text: str) -> Dict[str, str]:
    """The rows of the map: folded nodes → letters."""
    rows = {}
    for row in re.findall(r"<tr>\s*<th scope=\"row\">(.*?)</tr>", text, re.S):
        if 'class="cell' in row:
            name = re.search(r"class=\"nodes?\"[^>]*>([^<]*)<", row)
            assert name is not None
            rows[name[1]] = "".join(re.findall(r"<i class=\"cell [a-z]+\">(.)</i>", row))
    return rows


@pytest.mark.parametrize("name", CASES)
def test_every_kind_of_report_is_a_document_that_begins_with_its_verdict(name: str) -> None:
    """Elements in balance, none that the template does not have, the verdict before all else."""
    document = Document(html.render(CASES[name]))
    assert {tag for tag, _ in document.tags} <= KNOWN_TAGS
    shown = document.text.partition("envaudit " + CASES[name].command)[2]
    assert shown.split()[0] == CASES[name].verdict.name


@LAWS
@given(reports())
def test_nothing_that_a_node_says_becomes_markup(report: Report) -> None:
    """Whatever is in a report: a balanced document of known elements, and printable text alone."""
    text = html.render(report)
    document = Document(text)
    assert {tag for tag, _ in document.tags} <= KNOWN_TAGS
    assert 2 == len(document.scripts)
    assert [] == [
        name for _, given in document.tags for name in given if name.startswith("on") or name == "style"
    ]
    assert "" == re.sub(
        r"[\n -~]", "", "".join(each for each in text if not each.isprintable() and each != "\n")
    )
    text.encode("utf-8")
    assert len(document.data["findings"]) == len(report.findings)


def test_page_may_load_nothing_and_run_nothing_else() -> None:
    """The policy names the style and the script by their digests, and no source at all."""
    text = html.render(page(4, 2, 1))
    document = Document(text)
    (policy,) = [given["content"] for tag, given in document.tags if tag == "meta" and "http-equiv" in given]
    style = re.search(r"<style>(.*?)</style>", text, re.S)
    assert style is not None

    def digest(of: str) -> str:
        return base64.b64encode(hashlib.sha256(of.encode()).digest()).decode()

    assert (
        f"default-src 'none'; style-src 'sha256-{digest(style[1])}'; "
        f"script-src 'sha256-{digest(document.scripts[1])}'; base-uri 'none'; form-action 'none'"
    ) == policy
    assert [] == re.findall(r"(?i)url\(|@import|https?://|import\(|fetch\(|XMLHttp|WebSocket|Worker", text)
    loading = {"src", "srcset", "action", "formaction", "data", "poster", "background", "ping", "cite"}
    assert set() == loading & {name for _, given in document.tags for name in given}
    assert [] == [
        given["href"] for _, given in document.tags if "href" in given and not given["href"].startswith("#")
    ]


def test_script_in_a_value_is_text_in_the_page_and_in_the_data() -> None:
    """`</script>` ends no script, a line separator no line, and nothing turns a line round."""
    text = html.render(page(4, 2, 1))
    assert "</script><script>" not in text
    assert [] == [each for each in "\u2028\u202e" if each in text]
    gone = next(each for each in Document(text).data["nodes"] if each["n"] == "corrupt01")["m"]
    assert printable(SCRIPT) == Document(text).data["texts"][gone[1]]


def test_node_with_a_hostile_name_is_linked_by_its_escaped_name() -> None:
    """Names are checked where they are read; here they are not believed to have been."""
    name = "a\"><b onclick='x()'>&amp;%2F\u202e"
    made = replace(training_node("node01"), node=name)
    report = replace(CASES["one_node"], nodes=(name,), fingerprints=(made,))
    document = Document(html.render(report))
    assert "b" not in {tag for tag, _ in document.tags}
    assert [printable(name)] == [each["n"] for each in document.data["nodes"]]


def test_alike_nodes_are_one_row_of_the_map_and_the_worst_come_first() -> None:
    """A letter for the node as a whole and for each section; the many healthy ones last."""
    nodes = [training_node(f"node{number:02d}") for number in range(1, 9)]
    nodes[7] = training_node("node08", nccl="2.20.5")
    error = Finding("EA214", "error", "NCCL differs", ("node08",), "libraries/nccl/version")
    remark = Finding("EA905", "info", "not compared", ("node07",), "gpu")
    report = Report(
        command="diff",
        tool="0",
        verdict=Verdict.of((error, remark)),
        findings=(error, remark),
        missing={"node09": Missing("timeout", "no answer in 60 s")},
        nodes=tuple(each.node for each in nodes),
        fingerprints=tuple(nodes),
    )
    # conda env gpu host libraries packages torch
    assert {
        "node08": "E····E··",
        "node09": "????????",
        "node07": "I··I····",
        "node[01-06]": "········",
    } == in_sections(html.render(report))
    assert ["node08", "node09", "node07", "node[01-06]"] == list(in_sections(html.render(report)))


def test_unread_and_absent_sections_have_letters_of_their_own() -> None:
    """Not seen is never well, and what does not exist is not missing."""
    made = training_node(
        "node01", gpu=Section("gpu", 1, "error", errors=("nvml",)), conda=Section("conda", 1, "absent")
    )
    report = Report("show", "0", Verdict.of(()), nodes=("node01",), fingerprints=(made,))
    assert {"node01": "·–·?····"} == in_sections(html.render(report))


def test_difference_without_a_finding_is_marked() -> None:
    """A policy that silences a rule leaves the difference on the map."""
    report = replace(CASES["tie"], findings=(), verdict=Verdict.of(()))
    assert {"≠"} == {letter for row in in_sections(html.render(report)).values() for letter in row} - set(
        "· –"
    )


def test_more_findings_and_kinds_than_are_shown_at_once_are_folded_and_not_left_out() -> None:
    """Each of a thousand findings is in the page."""
    found = tuple(
        Finding("EA299", "warning", f"fact {number} differs", (f"node{number:04d}",), f"env/x{number}")
        for number in range(1000)
    )
    nodes = tuple(each.nodes[0] for each in found)
    report = Report("diff", "0", Verdict.of(found), found, nodes=nodes, sections=("env",))
    document = Document(html.render(report))
    text = document.text
    assert [] == [each.message for each in found if each.message not in text]
    assert "994 more of EA299" in text


def test_link_matrix_is_drawn_from_the_run_of_collectives() -> None:
    """The slowest link has the strongest colour, and is named."""
    text = html.render(page(4, 2, 0))
    assert 2 == len(re.findall(r"<td class=\"step0\">3.05</td>", text))
    assert "2 (node0002) – 5 (node0003)" in Document(text).text.replace("  ", " ")


@pytest.mark.parametrize(
    ("ranks", "labels", "by_node"), [(8, 8, False), (64, 64, False), (128, 16, True), (1024, 0, True)]
)
def test_link_matrix_of_many_ranks_goes_by_nodes_or_by_the_slowest(
    ranks: int, labels: int, by_node: bool
) -> None:
    """A square of more than 64 is not read by anybody."""
    from envaudit.report.linkmatrix import links_of

    links = {f"{rank}-{(rank + 8) % ranks}": 40_000 + rank for rank in range(ranks)}
    notes = {
        "ranks": [
            {"rank": rank, "node": f"node{rank // 8:03d}", "local_rank": rank % 8} for rank in range(ranks)
        ],
        "figures": {"links": links},
    }
    node = training_node("node000", collectives=Section("collectives", 1, "ok", {"ended": "done"}, notes))
    found = links_of([node])
    assert found is not None
    assert (labels, by_node, ranks) == (len(found.labels), by_node, found.measured)
    assert 40_000 == found.slowest[0].milli_gbps
    assert 20 >= len(found.slowest)


def test_link_matrix_of_rates_that_are_one_to_a_float_is_drawn() -> None:
    """A node may say any numbers."""
    from envaudit.report.linkmatrix import links_of

    notes = {"figures": {"links": {"0-1": 2**64, "1-2": 2**64 - 1}}}
    node = training_node("node000", collectives=Section("collectives", 1, "ok", {"ended": "done"}, notes))
    found = links_of([node])
    assert found is not None
    assert 2 == found.measured


def test_nodes_that_share_a_section_share_its_entry_in_the_data() -> None:
    """A thousand nodes alike cost a thousand short rows, not a thousand copies."""
    nodes = [training_node(f"node{number:04d}") for number in range(1000)]
    report = Report(
        "diff", "0", Verdict.of(()), nodes=tuple(each.node for each in nodes), fingerprints=tuple(nodes)
    )
    data = Document(html.render(report)).data
    assert (7, 1000) == (len(data["states"]), len(data["nodes"]))
    assert 400_000 > len(html.render(report))


def test_what_is_set_aside_suggested_and_titled_is_told() -> None:
    """A waiver is never silent, and a rule has a name."""
    finding = CASES["gate"].findings[0]
    report = replace(
        CASES["gate"],
        rules={"EA331": RuleText("EA331", "warning", "the driver's patch level")},
        set_aside=(SetAside(replace(finding, rule="EA299"), "waiver", "until 2027-01-01: known (ops)"),),
        suggestions=("scontrol update NodeName=node02 State=DRAIN",),
        host="login1",
        started_at="2026-11-30T10:00:00Z",
    )
    text = Document(html.render(report)).text
    for told in (
        "the driver's patch level",
        "1 set aside, which do not count",
        "until 2027-01-01: known (ops)",
        "none of these was run",
        "State=DRAIN",
        "login1",
        "2026-11-30T10:00:00Z",
    ):
        assert told in text


def test_page_is_the_same_for_the_same_report() -> None:
    """No clock, no random name: two artefacts of one run are equal."""
    assert html.render(page(4, 2, 1)) == html.render(page(4, 2, 1))
