"""Laws of reading environment files: whatever the bytes, an answer with places; nothing is lost."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path

import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from envaudit.errors import InputError
from envaudit.lock.condaspec import BadSpec, parse_spec
from envaudit.lock.entries import Located
from envaudit.lock.envsection import section_of
from envaudit.lock.requirement import BadRequirement, parse_line
from envaudit.lock.sourcefile import SourceFile, read_source
from envaudit.lock.yamltext import lines_of
from envaudit.model import Fingerprint
from envaudit.model.canonical import check_fact
from envaudit.rules import Evidence, judge

UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=80)

# What environment files are made of, and what breaks them.
PIECES = st.sampled_from(
    ["dependencies:", "channels:", "platforms:", "pip:", "prefix: /x", "variables:", "\n", "\n  - ",
     "\n    - ", "- ", ": ", "[", "]", "{", "}", "&a ", "*a", "<<: *a", "!!python/name:os.system ", "{{ x }}",
     "{% if %}", "$X", "\t", "# [linux]", "# [not win]", "'", '"', "|\n", ">-\n", "---\n",
     "numpy>=1.20,<2", "pytorch::a", "a=1.0=*cuda12*", "torch==2.0+cu118", "-r r.txt", "-e .", "git+https://u:p@h/x@main",
     "https://h/t/TOKEN/c", "\0", "\ufeff", "\x07", "é", "3.8", "yes", "~"]
)  # fmt: skip
TEXTS = st.lists(st.one_of(PIECES, st.text(max_size=4)), max_size=30).map("".join)
DATA = st.one_of(
    st.binary(max_size=60),
    st.tuples(TEXTS, st.sampled_from(["utf-8", "utf-16", "utf-16-le", "utf-32"])).map(
        lambda pair: pair[0].encode(pair[1], "replace")
    ),
    TEXTS.map(lambda text: ("channels: [c]\ndependencies:\n  - " + text).encode("utf-8", "replace")),
    TEXTS.map(lambda text: ("dependencies:\n  - pip:\n    - " + text).encode("utf-8", "replace")),
)


def read(data: bytes) -> SourceFile | None:
    """The bytes read as a file; None where they are refused."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "environment.yml"
        path.write_bytes(data)
        try:
            return read_source(str(path))
        except InputError:
            return None


@UNHURRIED
@given(DATA)
@example(b"dependencies: &a\n  - *a\n")
@example(b"[" * 3000)
@example("\x85[".encode())
def test_any_bytes_are_read_or_refused_with_a_place(data: bytes) -> None:
    """No other error; every fault is told, and all that is told has its line."""
    source = read(data)
    if source is None:
        return
    last_line = len(lines_of(source.text))
    for each in (*source.faults, *source.entries()):
        assert 1 <= each.line <= last_line + 1
        assert each.column >= 1
    section = section_of([source])
    check_fact(section.facts, "facts")
    fingerprint = Fingerprint("", "import", "2026-11-30T10:00:00Z", "0", {"envfile": section})
    findings = judge(Evidence((fingerprint,), comparing=False))
    assert {fault.place for fault in source.faults} <= {finding.path for finding in findings}
    for finding in findings:
        assert re.search(r":\d+:\d+\Z", finding.path)
        assert finding.message
        assert finding.hint


@UNHURRIED
@given(DATA)
@example(b"dependencies:\n- A\t")
@example("dependencies:\n- pip:\n    - |\n\ufeff".encode())
def test_what_is_no_fault_is_an_entry(data: bytes) -> None:
    """A file without a fault has as many entries as its YAML has dependencies."""
    source = read(data)
    if source is None or source.faults:
        return
    items = yaml.safe_load(source.text)["dependencies"]
    words = [item for item in items if isinstance(item, str)]
    assert len(words) == len(source.conda)


@UNHURRIED
@given(st.text(max_size=40), st.text("abc123.=<>!~*,|[]:$^ '\"", max_size=20))
def test_spec_parses_or_says_why_not(name: str, rest: str) -> None:
    """No other error than a refusal, and a name where it parses."""
    for text in (name, f"a{rest}", f"c::a{rest}"):
        try:
            spec = parse_spec(text)
        except BadSpec:
            continue
        assert spec.name


@UNHURRIED
@given(st.text(max_size=40), st.text("abc123.=<>!~*,;@[]:#$-+/\\ '\"", max_size=24))
def test_requirement_parses_or_says_why_not(name: str, rest: str) -> None:
    """No other error than a refusal; the entry is where the line is."""
    for text in (name, f"a{rest}", f"-{rest}", f"git+https://h/{rest}", f"a @ https://h/{rest}"):
        try:
            entries = parse_line(Located(text, 3, 5, "e.yml"))
        except BadRequirement:
            continue
        assert {(3, 5, "e.yml")} >= {(entry.line, entry.column, entry.path) for entry in entries}


@UNHURRIED
@given(
    st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=8, max_size=12).map(lambda text: f"zq{text}"),
    st.sampled_from(
        ["https://u:{}@h/c", "https://{}@h/c", "https://h/t/{}/c", "https://h/c?token={}",
         "git+https://u:{}@h/x.git", "-i https://u:{}@h/simple", "a @ https://u:{}@h/a.whl"]
    ),
    st.sampled_from(["channels: ['{}']", "dependencies: ['{}']", "dependencies:\n - pip:\n   - '{}'",
                     "variables: {{API_KEY: '{}'}}", "pip-repositories: ['{}']", "platforms: ['{}']"]),
)  # fmt: skip
def test_secret_never_becomes_a_fact(secret: str, url: str, line: str) -> None:
    """Wherever it stands."""
    source = read(line.format(url.format(secret)).encode())
    assert source is not None
    assert secret not in json.dumps(section_of([source]).facts)
