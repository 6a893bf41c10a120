"""What every kind of report keeps to, whoever reads it."""

from __future__ import annotations

import pytest

from envaudit.errors import InputError
from envaudit.model import Fingerprint, Snapshot
from envaudit.model.codec import SECTION_SCHEMAS, decode_snapshot, encode_snapshot
from envaudit.sources import kinds, recognised, sections_of
from tests.sources.samples import ANY_PYTHON, BY_KIND, LINUX, all_kinds, read

KINDS = all_kinds()
NOW = "2026-11-30T10:00:00Z"


def test_every_module_of_the_room_has_a_sample() -> None:
    """A new kind is held to this contract without being listed anywhere else."""
    assert sorted(BY_KIND) == sorted(KINDS)
    assert list(kinds()) == sorted(kinds())


@pytest.mark.parametrize("name", sorted(BY_KIND))
def test_report_is_recognised_by_its_own_kind_alone(name: str) -> None:
    """No other kind claims it, whatever the file is called."""
    claims = [other for other, kind in KINDS.items() if kind.matches(BY_KIND[name])]
    assert [name] == claims


@pytest.mark.parametrize("name", sorted(BY_KIND))
@pytest.mark.parametrize("setting", [LINUX, ANY_PYTHON], ids=["python known", "any python"])
def test_report_is_a_fingerprint_that_the_codec_takes(name: str, setting: object) -> None:
    """Every section has the probe's schema, and survives writing and reading, `whole` too."""
    sections = sections_of(KINDS[name], BY_KIND[name], "here", LINUX)
    node = Fingerprint("n1", "import", NOW, "0", {k: v for k, v in sections.items() if k != "lock"})
    assert node.sections
    assert {section.schema for section in node.sections.values() if section.name in SECTION_SCHEMAS} == {1}
    text = encode_snapshot(Snapshot((node,)), captured_at=NOW, tool="0")
    assert (node,) == decode_snapshot(text, "here").fingerprints


@pytest.mark.parametrize("name", sorted(BY_KIND))
def test_report_never_takes_its_sections_for_complete(name: str) -> None:
    """No report says everything of a subject."""
    sections = sections_of(KINDS[name], BY_KIND[name], "here", LINUX)
    assert {"partial"} == {section.status for section in sections.values() if section.name != "lock"}


@pytest.mark.parametrize("name", sorted(BY_KIND))
def test_report_with_other_line_ends_and_encoding_says_the_same(name: str) -> None:
    """CRLF and UTF-16, as Windows writes them."""
    from envaudit.sources.decoding import decoded

    data = BY_KIND[name].replace("\n", "\r\n").encode("utf-16")
    if name == "NvidiaSmi":
        assert decoded(data, "x") == BY_KIND[name]
    assert read(BY_KIND[name]) == read(decoded(data, "x"))


@pytest.mark.parametrize("name", sorted(BY_KIND))
def test_report_words_are_not_empty(name: str) -> None:
    """What messages call it."""
    assert KINDS[name].KIND
    assert isinstance(KINDS[name].IS_LOCK, bool)


@pytest.mark.parametrize(
    "text",
    ["hello", "{}", "[]", "<xml/>", "a: 1\n", "numpy>=1.0\ntorch\n", "[[package]]\nname = 'serde'\n"],
)
def test_text_of_no_kind_is_refused_with_what_was_tried(text: str) -> None:
    """A list of ranges asks for packages; it tells of none."""
    with pytest.raises(InputError, match=r"here: no report that is known \(tried .*collect_env.*uv\.lock"):
        recognised(text, "here", list(KINDS.values()))


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("", "is empty"),
        (" \n\n", "is empty"),
        ('{"head":{"format":"envaudit.snapshot"},\n}', "'envaudit show' take it as it is"),
        ("Package    Version\n---------- -------\nnumpy      1.26.4\n", "give 'pip freeze'"),
        ("# packages in environment at /opt/conda:\n#\nnumpy 1.26.4 py311_0\n", "give 'conda list --json'"),
        ("+----+\n| NVIDIA-SMI 550.54.15  Driver Version: 550.54.15 |\n", "give 'nvidia-smi -q -x'"),
        ("\n==============NVSMI LOG==============\n", "give 'nvidia-smi -q -x'"),
    ],
)
def test_what_people_send_instead_is_told_what_to_send(text: str, advice: str) -> None:
    """The same program has a form that says all of it."""
    with pytest.raises(InputError, match=advice):
        recognised(text, "here", list(KINDS.values()))


def test_environment_file_is_to_be_locked() -> None:
    """It says what is wanted."""
    with pytest.raises(InputError, match="lock it with 'envaudit lock'"):
        recognised("name: a\ndependencies:\n  - numpy\n", "here", list(KINDS.values()))


def test_text_of_two_kinds_is_refused() -> None:
    """Nobody guesses which of two reports was meant."""
    with pytest.raises(InputError, match="more than one kind of report: collect_env, conda list --explicit"):
        recognised(f"{BY_KIND['collect_env']}\n{BY_KIND['conda_explicit']}", "here", list(KINDS.values()))
