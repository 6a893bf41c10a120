"""Reports come from strangers: whatever is in them, they are read or refused, soon."""

from __future__ import annotations

import re
import time

import pytest

from envaudit.cli.foreign import setting_of
from envaudit.errors import InputError
from envaudit.sources import sections_of
from tests.sources.samples import BY_KIND, COLLECT_ENV, LINUX, UV_LOCK, all_kinds, read

KINDS = all_kinds()
MANY, FEWER = 100_000, 20_000
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"b{level}: &b{level} [{', '.join([f'*b{level - 1}' if level else '*a'] * 9)}]\n" for level in range(12)
)
HOSTILE = {
    "deep JSON": "[" * MANY,
    "deep YAML in brackets": "dependencies: " + "[" * MANY,
    "deep YAML in dashes": "dependencies:\n" + "- " * MANY,
    "aliases of YAML": f"{BOMB}version: 6\nenvironments: *b11\npackages: *b11\ndependencies: *b11\n",
    "deep TOML": 'lock-version = "1.0"\npackages = ' + "[" * MANY,
    "long key of TOML": 'lock-version = "1.0"\n' + "a." * MANY + "b = 1\n",
    "long quoted key of TOML": 'lock-version = "1.0"\n' + '"a b".' * MANY + "b = 1\n",
    "huge integer": '{"pip_version": ' + "1" * MANY + "}",
    "entities of XML": '<!DOCTYPE x [<!ENTITY a "aaaa">]><nvidia_smi_log>&a;</nvidia_smi_log>',
    "spaces in a pin": "a" + " " * MANY + "b==1\n",
    "one long word": "a" * (4 << 20),
    "one long line of colons": "dependencies:\n- " + ":" * (1 << 20),
    "many lines": "numpy==1.0\n" * FEWER + "PyTorch version: 2.0\n" * FEWER,
    "many GPUs": "PyTorch version: 2\nGPU models and configuration:\n" + "GPU 0: a\n" * FEWER,
    "long list of processors": "PyTorch version: 2\nCPU:\nOn-line CPU(s) list: " + "0-7," * MANY + "\n",
}


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_hostile_text_is_refused_or_read_by_every_kind_within_seconds(name: str, kind: str) -> None:
    """No other exception, no endless search."""
    began = time.process_time()
    KINDS[kind].matches(HOSTILE[name])
    try:
        sections_of(KINDS[kind], HOSTILE[name], "here", LINUX)
    except InputError:
        pass
    assert time.process_time() - began < 10


_INSIDE = re.compile(r"(?:\": |(?<=\w)>)([^\n,<>{}\[\]]+)")


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("wrong", ["null", "[]", "{}", '"a"', "1", "[1, null]", '{"a": 1}'])
def test_value_of_another_type_anywhere_is_no_fault_of_the_program(kind: str, wrong: str) -> None:
    """Each text of a report in turn is something else."""
    samples = _spoilt(BY_KIND[kind], wrong)
    assert samples
    for sample in samples:
        try:
            sections_of(KINDS[kind], sample, "here", LINUX)
        except InputError:
            pass


def _spoilt(text: str, wrong: str) -> list[str]:
    """The text with each of its values in turn replaced."""
    lines = text.split("\n")
    found = []
    for index, line in enumerate(lines):
        for separator in (": ", " = ", "==", "- "):
            key, mark, _ = line.partition(separator)
            if mark:
                found.append("\n".join([*lines[:index], f"{key}{mark}{wrong}", *lines[index + 1 :]]))
    # Several on one line, as JSON and XML may have them.
    found += [text[: each.start(1)] + wrong + text[each.end(1) :] for each in _INSIDE.finditer(text)]
    return found


def test_names_and_versions_of_another_form_are_not_taken() -> None:
    """What becomes part of a path of facts, or of a message."""
    text = COLLECT_ENV.replace("[pip3] torch==2.6.0", "[pip3] to/rch==2.6.0\n[pip3] x==<b>1</b>")
    assert ["numpy"] == list(read(text)["packages"].facts["distributions"])


def test_credentials_of_addresses_are_not_kept() -> None:
    """Neither in facts nor in notes."""
    for kind, text in BY_KIND.items():
        spoilt = text.replace("https://", "https://user:hunter2@")
        try:
            assert "hunter2" not in str(sections_of(KINDS[kind], spoilt, "here", LINUX)), kind
        except InputError:
            continue


def test_marker_that_is_none_leaves_its_package_unknown() -> None:
    """Also one that nests for ever."""
    for marker in ("(" * 5000, "no == 'such'", "python_version ~~ '3'"):
        text = UV_LOCK.replace("sys_platform == 'win32'", marker)
        assert (
            None is read(text, setting_of("linux-64", "3.11.7"))["packages"].facts["distributions"]["pywin32"]
        )
