"""Lists that a partial section has read to the end."""

from __future__ import annotations

from typing import Any, Dict, Tuple

import pytest

from envaudit.diff import compare
from envaudit.model import Drift, Fingerprint, Section, Snapshot
from envaudit.model.codec import decode_snapshot, encode_snapshot
from tests.diff.nodes import CAPTURED_AT, TOOL, fingerprint

WHOLE = ("distributions",)


def listed(node: str, whole: Tuple[str, ...], **versions: Any) -> Fingerprint:
    """A node of which a list of distributions is known."""
    table: Dict[str, Any] = {
        name: None if version is None else {"version": version} for name, version in versions.items()
    }
    section = Section("packages", 1, "partial", {"distributions": table}, whole=whole)
    return fingerprint(node, "import", packages=section)


def probed(node: str, **versions: str) -> Fingerprint:
    """A node whose distributions were read with all that there is."""
    table = {name: {"version": version, "installer": "pip"} for name, version in versions.items()}
    return fingerprint(node, packages={"distributions": table, "duplicates": {}})


def paths(drifts: Tuple[Drift, ...]) -> Dict[str, str]:
    """Kind of drift by path."""
    return {drift.path: drift.kind for drift in drifts}


def test_compare_name_that_a_whole_list_lacks_is_missing() -> None:
    """It was read to the end."""
    found = compare([listed("a", WHOLE, x="1", y="2"), listed("b", WHOLE, x="1")])
    assert {"packages/distributions/y": "missing"} == paths(found)


def test_compare_name_that_an_open_list_lacks_is_unknown() -> None:
    """The ordinary partial section: what is not there may be there."""
    assert {} == paths(compare([listed("a", (), x="1", y="2"), listed("b", (), x="1")]))
    assert {} == paths(compare([probed("a", x="1", y="2"), listed("b", (), x="1")]))


def test_compare_name_without_an_answer_in_a_whole_list_is_unknown() -> None:
    """Null is no answer there either."""
    assert {} == paths(compare([probed("a", x="1", pip="24.0"), listed("b", WHOLE, x="1", pip=None)]))


def test_compare_field_that_a_whole_list_does_not_tell_is_unknown() -> None:
    """Only the names were read to the end, not what is to be said of each."""
    assert {} == paths(compare([probed("a", x="1"), listed("b", WHOLE, x="1")]))
    found = compare([probed("a", x="1", y="1"), listed("b", WHOLE, x="2")])
    assert {"packages/distributions/x/version": "changed", "packages/distributions/y": "missing"} == paths(
        found
    )


def test_compare_sections_that_differ_in_wholeness_alone_have_no_drift() -> None:
    """But other digests: they do not say the same."""
    one, other = listed("a", WHOLE, x="1"), listed("b", (), x="1")
    assert one.digest != other.digest
    assert {} == paths(compare([one, other]))


@pytest.mark.parametrize("whole", [(), WHOLE])
def test_codec_keeps_what_was_read_to_the_end(whole: Tuple[str, ...]) -> None:
    """A snapshot of a list says what the list said."""
    snapshot = Snapshot((listed("a", whole, x="1"),))
    text = encode_snapshot(snapshot, captured_at=CAPTURED_AT, tool=TOOL)
    assert snapshot == decode_snapshot(text, "here")
    assert bool(whole) == ('"whole"' in text)
