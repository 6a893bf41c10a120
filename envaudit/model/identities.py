"""What in a text tells who, where or which machine, by its shape and by names that are known.

Each identity becomes a pseudonym such as `user-1`; the same one everywhere, so that what was equal
stays equal and what differed stays different.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Callable, Dict, Iterable, List, Match, Optional, Tuple

# Accounts and hosts of these names say nothing of anybody, and are words of many other values.
COMMON = frozenset(
    (
        *("admin", "base", "bin", "centos", "conda", "container", "cuda", "daemon", "debian"),
        *("default", "docker", "ec2-user", "env", "envs", "gpu", "guest", "host", "jovyan"),
        *("localhost", "login", "main", "master", "nccl", "nobody", "node", "none", "nvidia"),
        *("ocp", "pip", "python", "root", "rocky", "runner", "service", "slurm", "system", "test"),
        *("torch", "train", "ubuntu", "unknown", "user", "users", "vagrant", "venv", "version"),
        *("vscode", "beegfs_nodev", "devtmpfs", "nvidia-smi", "nvml", "overlay", "ramfs", "shm", "tmpfs"),
    )
)
# What stands in the place of a value that there is not.
NOTHING = frozenset(
    (
        *("", "-", "0", "n/a", "[n/a]", "na", "none", "null", "unknown", "not specified"),
        *("not available", "(none)"),
    )
)
_PLACEHOLDER = re.compile(r"\$[A-Z_]+\Z|<secret>\Z")
_SHORTEST_TOKEN = 3
_SHORTEST_NUMBER = 4
_RUN = re.compile(r"[a-z0-9]+")

# Folders that every Linux has: what stands below them is the distribution's, not a user's.
_SYSTEM_ROOTS = frozenset(["bin", "boot", "etc", "lib", "lib32", "lib64", "proc", "sbin", "sys", "usr"])
# Folder names that say nothing of who uses them.
_PLAIN_FOLDERS = frozenset(
    (
        *("Users", "anaconda3", "apps", "beegfs", "cache", "ceph", "cluster", "compat", "conda"),
        *("condabin", "data", "datasets", "dev", "envs", "export", "gpfs", "hf", "home"),
        *("huggingface", "include", "lib", "lib64", "local", "lustre", "mambaforge", "media"),
        *("micromamba", "miniconda3", "miniforge3", "mnt", "net", "nfs", "opt", "pkgs", "projects"),
        *("proc", "root", "run", "scratch", "share", "shared", "shm", "software", "src", "srv"),
        *("sw", "tmp", "var", "work", "workspace", "venv", "weka", ".cache", ".conda", ".envaudit"),
        *(
            ".condarc",
            ".git",
            ".local",
            ".mamba",
            ".nccl.conf",
            ".venv",
            ".config",
            "$HOME",
            "$TMPDIR",
            "$USER",
            "$HOSTNAME",
        ),
        *("$JOB_ID", "~", "{site}", "{prefix}", "{user_site}", "{base_prefix}", ".", ".."),
    )
)
# Below these lies what packages have brought.
_PACKAGED = frozenset(
    (
        *("bin", "conda-meta", "dist-packages", "lib", "lib64", "site-packages"),
        *("{site}", "{prefix}"),
    )
)
# As below `site-packages`, and in the vendor's own folder; ~/torch is somebody's.
_PACKAGES = frozenset(("nvidia", "torch"))
_ABOVE_PACKAGES = ((), ("", "opt"))
# Block devices as the kernel names them; /dev/mapper/GROUP-VOLUME is named by people.
_DEVICE = re.compile(r"(?:nvme\d+n\d+(?:p\d+)?|(?:sd|vd|xvd)[a-z]{1,3}\d*|(?:md|dm-|loop|sr)\d+|mapper)\Z")
_LIBRARY = re.compile(
    r"(?:python\d[\w.]*|(?:cuda|rocm)(?:-[\d.]+)?|lib[\w+.-]+\.so(?:\.[\d.]+)?|\{site\d\})\Z"
)

# Groups between colons end where no more of them follow: `fe80::1: no route` holds an address.
_START = r"(?<!\w)(?<![0-9a-fA-F:]:)"
_END = r"(?!\w|:[\w:])"
_SHAPES = (
    # PCI addresses name a slot; they come first, so that nothing takes them for another thing.
    ("keep", rf"{_START}(?:[0-9a-fA-F]{{4,8}}:)?[0-9a-fA-F]{{2}}:[0-9a-fA-F]{{2}}\.[0-7]{_END}"),
    # A mail address, what ssh and git are told, and Ceph's client@cluster.file_system=/folder.
    ("remote", r"(?<![\w.+-])[\w.+-]{1,253}@\.?[A-Za-z0-9](?:[\w.-]{0,252}\w)?(?:(?::|=/)[^\s'\",;<>]+)?"),
    ("url", r"[A-Za-z][A-Za-z0-9+.-]{0,30}://(?:<secret>|[^\s'\"<>])*"),
    ("device", r"\b(?:GPU|MIG|DLA)-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]+)*"),
    ("uuid", r"(?<![0-9a-fA-F])[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}(?![0-9a-fA-F])"),
    ("mac", rf"{_START}(?:[0-9a-fA-F]{{2}}:){{5,19}}[0-9a-fA-F]{{2}}{_END}"),
    ("mac2", r"(?<![\w:-])(?:[0-9a-fA-F]{2}-){5}[0-9a-fA-F]{2}(?![\w-])"),
    ("guid", rf"{_START}(?:[0-9a-fA-F]{{4}}:){{3}}[0-9a-fA-F]{{4}}{_END}"),
    ("hex", r"(?<![A-Za-z0-9])(?:0x[0-9a-fA-F]{10,}|(?!\d+\b)[0-9a-fA-F]{16,})(?![A-Za-z0-9])"),
    ("ipv6", rf"{_START}(?:[0-9a-fA-F]{{0,4}}:){{2,7}}[0-9a-fA-F.]*(?:/\d{{1,3}})?{_END}"),
    ("ipv4", r"(?<![\w.])(?<!==)\d{1,3}(?:\.\d{1,3}){3}(?![\w]|\.\d)"),
    # Ceph names several servers, each with its port.
    (
        "server",
        r"(?<![\w/.:{}$+-])(?:[A-Za-z0-9][\w.-]{0,252}(?::\d{1,5})?,){0,16}"
        r"[A-Za-z0-9](?:[\w.-]*\w)?(?::\d{1,5})?(?=:/(?!/))",
    ),
    ("quoted", r"'/[^':\n]{1,4096}'"),
    ("path", r"(?<![\w./}-])(?:\$\w+|\{\w+\}|~[\w.-]{0,64}|\.{1,2})?/[^\s:;,'\"()<>|=]+"),
    (
        "domain",
        r"(?<![\w./-])(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?\.)+"
        r"(?:com|net|org|edu|gov|mil|int|info|io|ai|dev|app|cloud|local|localdomain|internal|intranet|lan|corp"
        r"|home|arpa|example|test|invalid|de|fr|uk|eu|ch|at|nl|be|es|it|se|no|fi|dk|cz|jp|cn|kr|in|au|ca|us)"
        r"(?![\w-]|\.\w)",
    ),
)
_MEANT_KINDS = {
    "device": "gpu",
    "uuid": "id",
    "guid": "id",
    "hex": "id",
    "mac2": "mac",
    "server": "host",
    "domain": "host",
}


class Pseudonyms:
    """Names in the place of identities, numbered by kind in the order in which they are met."""

    def __init__(self) -> None:
        self._given: Dict[Tuple[str, str], str] = {}
        self._counts: Dict[str, int] = {}

    def of(self, kind: str, identity: str) -> str:
        """The pseudonym of one identity; letters in capitals make no other one."""
        key = (kind, identity.lower())
        if key not in self._given:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._given[key] = f"{kind}-{self._counts[kind]}"
        return self._given[key]


def is_nothing(text: str) -> bool:
    """Whether a text stands for no value at all."""
    return text.strip().lower() in NOTHING or _PLACEHOLDER.match(text) is not None


def is_address(text: str) -> bool:
    """Whether a text is an IP address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def may_be_token(name: str) -> bool:
    """Whether a name may be looked for in other texts: long enough, and no word of everyday values."""
    if is_nothing(name) or name.lower() in COMMON:
        return False
    return _RUN.search(name.lower()) is not None and len(name) >= (
        _SHORTEST_NUMBER if name.isdigit() else _SHORTEST_TOKEN
    )


class Scrubber:
    """Texts without identities.

    Args:
        tokens: identities that are known, each with the pseudonym that takes its place.
        pseudonyms: where those come from that are recognised by their shape.
        stems: what names of hosts begin with, which with a `[01-16]` behind it are many of them.
    """

    def __init__(self, tokens: Dict[str, str], pseudonyms: Pseudonyms, stems: Iterable[str] = ()) -> None:
        self._tokens = {name.lower(): pseudonym for name, pseudonym in tokens.items()}
        self._pseudonyms = pseudonyms
        # By the run of letters and digits that it begins with; the longest first. A regular
        # expression of a fleet's names and serial numbers would take half a minute to compile.
        self._by_start: Dict[str, List[Tuple[str, int]]] = {}
        for name in sorted(self._tokens, key=len, reverse=True):
            run = _RUN.search(name)
            if run is not None:
                self._by_start.setdefault(run.group(), []).append((name, run.start()))
        folded = "|".join(map(re.escape, sorted(stems, key=len, reverse=True)))
        sets = rf"(?P<nodes>(?<![A-Za-z0-9])(?i:{folded})\[[\d,-]{{1,4096}}\][\w.]*)|" if folded else ""
        self._shapes = re.compile(sets + "|".join(f"(?P<{name}>{pattern})" for name, pattern in _SHAPES))
        self._seen: Dict[Tuple[str, bool], str] = {}
        self._special: Dict[str, Callable[[str], str]] = {
            "url": self._url,
            "path": self.path,
            "quoted": self._quoted,
            "ipv4": self._address,
            "ipv6": self._address,
        }

    def text(self, text: str, *, keep_hex: bool = False) -> str:
        """A text with every identity replaced; `keep_hex` spares digests and commits."""
        key = (text, keep_hex)
        if key not in self._seen:
            self._seen[key] = self._scrub(text, keep_hex)
        return self._seen[key]

    def tokens_of(self, text: str) -> str:
        """A text with the known names replaced, and nothing else."""
        shown, at = "", 0
        for start, end in self._spans(text):
            shown += text[at:start] + self._tokens[text[start:end].lower()]
            at = end
        return shown + text[at:]

    def _scrub(self, text: str, keep_hex: bool) -> str:
        """What comes first in the text is replaced first; where both begin, the known name.

        Of `gpu01.cluster.example` that is one part, and of `alice@gpu01.cluster` all is one.
        """
        shown, at = "", 0
        spans = self._spans(text)
        while True:
            match = self._shapes.search(text, at)
            spans = [span for span in spans if span[0] >= at]
            if spans and _comes_first(spans[0], match):
                start, end = spans[0]
                shown += text[at:start] + self._tokens[text[start:end].lower()]
                if match is not None and match.lastgroup == "domain" and match.start() == start:
                    domain = text[end + 1 : match.end()]
                    known = self._tokens.get(domain.lower()) or self._pseudonyms.of("domain", domain)
                    shown += f".{known}" if domain else ""
                    end = max(end, match.end())
            elif match is not None:
                start, end = match.span()
                shown += text[at:start] + self._replace(match, keep_hex)
            else:
                return shown + text[at:]
            at = end

    def _spans(self, text: str) -> List[Tuple[int, int]]:
        """Where the known names stand, from left to right; a name ends where its letters and digits do."""
        spans: List[Tuple[int, int]] = []
        lowered = text.lower()
        if len(lowered) != len(text):
            # U+0130 is two letters in small, and all positions behind it would shift.
            lowered = "".join(letter.lower()[0] for letter in text)
        at = 0
        for run in _RUN.finditer(lowered):
            for name, offset in self._by_start.get(run.group(), ()):
                start = run.start() - offset
                end = start + len(name)
                if start >= at and lowered.startswith(name, start) and not _RUN.match(lowered, end):
                    spans.append((start, end))
                    at = end
                    break
        return spans

    def _replace(self, match: Match[str], keep_hex: bool) -> str:
        kind, found = str(match.lastgroup), match.group()
        if kind == "keep" or (kind == "hex" and keep_hex):
            return found
        special = self._special.get(kind)
        if special is not None:
            return special(found)
        return self._pseudonyms.of(_MEANT_KINDS.get(kind, kind), found)

    def _url(self, url: str) -> str:
        scheme, _, rest = url.partition("://")
        host, slash, path = rest.partition("/")
        shown = self._tokens.get(host.lower()) or (self._pseudonyms.of("host", host) if host else "")
        return f"{scheme}://{shown}" + (f"/{self._pseudonyms.of('path', path)}" if slash and path else slash)

    def _address(self, text: str) -> str:
        found = text.partition("/")[0].rstrip(".")
        if found.endswith(":") and not found.endswith("::"):
            found = found[:-1]
        if not is_address(found):
            return text
        address = ipaddress.ip_address(found)
        if address.is_loopback or address.is_unspecified or found.startswith("255."):
            return text
        return self._pseudonyms.of("addr", str(address)) + text[len(found) :]

    def _quoted(self, quoted: str) -> str:
        """A file as the system's own messages name it, whose folders may have spaces in their names."""
        inside = quoted[1:-1]
        return "'" + (self.text(inside) if " /" in inside else self.path(inside)) + "'"

    def path(self, path: str) -> str:
        """A text that is a path, with the folders of users and projects replaced and the known ones kept."""
        parts = path.split("/")
        kept_below = parts[0] == "" and len(parts) > 1 and parts[1] in _SYSTEM_ROOTS
        is_device = parts[:2] == ["", "dev"]
        shown: List[str] = []
        for index, part in enumerate(parts):
            after_home = index == 2 and parts[1] in ("home", "Users")
            if not part:
                shown.append(part)
            elif after_home and part.lower() not in COMMON:
                shown.append(self._tokens.get(part.lower()) or self._pseudonyms.of("user", part))
            elif kept_below or part in _PLAIN_FOLDERS or (_DEVICE if is_device else _LIBRARY).match(part):
                shown.append(self.tokens_of(part))
            else:
                shown.append(self.folder(part))
            kept_below = (
                kept_below
                or part in _PACKAGED
                or (part in _PACKAGES and tuple(parts[:index]) in _ABOVE_PACKAGES)
            )
        return "/".join(shown)

    def folder(self, name: str) -> str:
        """The pseudonym of a folder, a file or a conda environment, which people name as they like."""
        if name in COMMON:
            return name
        return self._tokens.get(name.lower()) or self._pseudonyms.of("dir", name)


def _comes_first(span: Tuple[int, int], match: Optional[Match[str]]) -> bool:
    if match is None or span[0] < match.start():
        return True
    return span[0] == match.start() and match.lastgroup != "remote"
