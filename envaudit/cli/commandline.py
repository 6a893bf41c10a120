"""A command line as it may be kept: without what looks like a secret, in whatever spelling it is given.

What is kept with a snapshot is shown to everyone who may read the store. A secret that nothing gives away,
such as a word of a script behind `-c`, is not found.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence

from envaudit.probe.secrets import SECRET, clean, is_secret_name

_MAX_CHARACTERS = 4096
# Of a word, which may be a whole script or a file's content.
_MAX_WORD = 4 * _MAX_CHARACTERS
_COUNT = re.compile(r"\d{1,9}\Z", re.ASCII)
# Parts of an option's name, `--db-pass`, that `is_secret_name` leaves alone since other names hold them too.
_SHORT_NAMES = frozenset(["bearer", "cred", "creds", "pass", "pat", "pw", "pwd"])
# After these even a number is a secret; after `--max-tokens` or `--head-key-dim` it is a count.
_NEVER_A_COUNT = re.compile(r"passw|passphrase|secret|credential|\A-{1,2}token\Z", re.IGNORECASE)
# curl(1), wget(1): NAME:PASSWORD.
_USER_OPTIONS = ("-u", "-U", "--user", "--proxy-user")
# Programs whose -p is a password: sshpass(1), mysql(1).
_PASSWORD_P = frozenset(["sshpass", "mysql", "mysqldump", "mariadb"])
# NAME=VALUE inside a word that is a script: `export HF_TOKEN=...`, `login(key='...')`.
_ASSIGNMENT = re.compile(
    r"(?<![\w.-])(?P<name>[\w.+-]{1,128}(?:['\"]\])?)(?P<equals>\s?=\s?)"
    r"(?P<value>\"[^\"\n]{1,512}\"|'[^'\n]{1,512}'|[^\s;&|,)'\"]+)"
)
# A value may begin with a dash as a token in base64 does; an option in one letter is no such value.
_DASHED_VALUE = re.compile(r"-[^-]\S{7,}\Z")


def clean_command(argv: Sequence[str]) -> str:
    """A command line without what looks like a secret, in one text that a shell would take.

    What is longer than 4,096 characters is cut.
    """
    words: list[str] = []
    room = _MAX_CHARACTERS
    for word in _words(argv):
        words.append(word)
        room -= len(word) + 1
        if room < 0:
            break
    text = shlex.join(words)
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}..."


def _words(argv: Sequence[str]) -> Iterator[str]:
    hides_p = any(os.path.basename(word) in _PASSWORD_P for word in argv) or "login" in argv
    before = ""
    for whole in argv:
        word = whole[:_MAX_WORD]
        if _is_secret_value(before, word) or (hides_p and before == "-p"):
            yield SECRET
        elif hides_p and word.startswith("-p") and word[2:]:
            yield f"-p{SECRET}"
        elif before in _USER_OPTIONS and ":" in word and not re.fullmatch(r"[\d:]+", word):
            yield f"{word.partition(':')[0]}:{SECRET}"
        else:
            yield _clean(word)
        before = word


def _is_secret_value(option: str, value: str) -> bool:
    """Whether an option before a word says that this is a secret: `--api-key VALUE`."""
    if not option.startswith("-") or "=" in option:
        return False
    return _is_secret(option, value) and (not value.startswith("-") or _DASHED_VALUE.match(value) is not None)


def _clean(word: str) -> str:
    name, equals, value = word.partition("=")
    if equals and re.fullmatch(r"[\w.+:/-]+", name) and _is_secret(name, value):
        return f"{name}={SECRET}"
    return clean(_ASSIGNMENT.sub(_assigned, word))


def _assigned(match: re.Match[str]) -> str:
    if not _is_secret(match["name"], match["value"]):
        return match[0]
    return f"{match['name']}{match['equals']}{SECRET}"


def _is_secret(name: str, value: str) -> bool:
    if not value or not _names_a_secret(name):
        return False
    return _COUNT.match(value) is None or _NEVER_A_COUNT.search(name) is not None


def _names_a_secret(name: str) -> bool:
    parts = re.split(r"[^a-z0-9]+", name.lower())
    return is_secret_name(name) or not _SHORT_NAMES.isdisjoint(parts)
