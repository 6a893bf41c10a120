"""The Section of source files: facts with places, without secrets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from envaudit.lock.credentials import cleaned, credential_in, is_secret_variable
from envaudit.lock.envsection import section_of
from envaudit.model.canonical import check_fact
from tests.lock.envfiles import HEAD, written


def test_section_has_each_entry_with_its_place_and_parts(tmp_path: Path) -> None:
    """What an entry leaves open is left out, but for its name, key and version."""
    source = written(tmp_path, HEAD + "  - pytorch::PyTorch=2.1  # [linux]\n")
    (facts,) = section_of([source]).facts["sources"]  # type: ignore[union-attr, misc]
    assert [
        {"kind": "conda", "name": "PyTorch", "key": "pytorch", "version": "=2.1", "channel": "pytorch",
         "text": "pytorch::PyTorch=2.1", "line": 3, "column": 5, "path": source.path, "block": -1,
         "selector": "linux", "platforms": ["linux-64", "linux-aarch64", "linux-ppc64le"]}
    ] == facts["entries"]  # fmt: skip
    check_fact(facts, "facts")


def test_section_names_the_conda_package_of_a_pip_entry(tmp_path: Path) -> None:
    """By the table that ships: torch of the index is pytorch of conda."""
    source = written(tmp_path, HEAD + "  - pip:\n    - torch==2.1\n    - Flask_Cors\n")
    (facts,) = section_of([source]).facts["sources"]  # type: ignore[union-attr, misc]
    assert ["pytorch", "flask-cors"] == [entry["conda_name"] for entry in facts["entries"]]


def test_section_holds_no_secret(tmp_path: Path) -> None:
    """It ends in reports; what kind of secret was there is kept."""
    text = (
        "channels: ['https://u:hunter2@h/c', 'https://h/t/hunter2/c']\n"
        "variables: {API_KEY: hunter2}\npip-repositories: ['https://u:hunter2@h/simple']\n"
        "dependencies:\n  - https://u:hunter2@h/c::a\n  - https://u:hunter2@h/c::a=>1\n"
        "  - pip:\n    - -i https://u:hunter2@h/simple\n    - git+https://u:hunter2@h/x.git\n"
        "    - a @ https://h/a.whl?token=hunter2\n    - -r https://u:hunter2@h/r.txt\n"
    )
    facts = section_of([written(tmp_path, text)]).facts
    assert "hunter2" not in json.dumps(facts)
    assert 9 == json.dumps(facts).count('"credential":')


@pytest.mark.parametrize(
    ("text", "kind", "shown"),
    [
        ("https://me:pw@h/c", "a password", "https://<secret>@h/c"),
        ("https://tok@h/c", "a user name or token", "https://<secret>@h/c"),
        ("https://h/t/tk-1/c", "a token", "https://h/t/<secret>/c"),
        ("https://h/t/tk-1", "a token", "https://h/t/<secret>"),
        ("https://h/x.whl?sig=ab&v=1", "a token", "https://h/x.whl?sig=<secret>&v=1"),
        ("ghp_abcdefghijklmnopqrst", "a token", "<secret>"),
        ("https://${USER}:${PW}@h/c", "", "https://${USER}:${PW}@h/c"),
        ("https://h/t/${TOKEN}/c", "", "https://h/t/${TOKEN}/c"),
        ("https://h/t/$TOKEN/c", "", "https://h/t/$TOKEN/c"),
        ("git+ssh://git@h/x.git", "", "git+ssh://git@h/x.git"),
        ("git+https://h/t/x.git", "", "git+https://h/t/x.git"),
        ("numpy=1.26", "", "numpy=1.26"),
    ],
)
def test_credential_is_found_and_left_out(text: str, kind: str, shown: str) -> None:
    """A variable is none; the user of an ssh address is none."""
    assert (kind, shown) == (credential_in(text), cleaned(text))


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("WANDB_API_KEY", "0123456789abcdef", True),
        ("HF_TOKEN", "${HF_TOKEN}", False),
        ("TOKENIZERS_PARALLELISM", "false", False),
        ("UCX_IB_PKEY", "0x8001", False),
        ("SSL_KEY_FILE", "/etc/ssl/key.pem", False),
        ("URL", "https://me:pw@h", True),
        ("N", "1", False),
    ],
)
def test_variable_is_a_secret_by_its_name_or_value(name: str, value: str, expected: bool) -> None:
    """Settings that only sound like one are none."""
    assert expected == is_secret_variable(name, value)
