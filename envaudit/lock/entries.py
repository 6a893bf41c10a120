"""What a source file asks for, piece by piece: each with the place where it is written."""

from __future__ import annotations

from dataclasses import dataclass

from envaudit.errors import InputError
from envaudit.lock.credentials import cleaned

# How a `pip:` line may look; `conda` is the only kind outside of it.
#
# conda            numpy=1.26, pytorch::pytorch, https://host/linux-64/zlib-1.3-0.conda
# pip              torch==2.4.0+cu121 ; sys_platform == "linux"
# pip_url          name @ https://host/name-1.0-py3-none-any.whl#sha256=...
# pip_git          git+https://host/repo.git@<commit>#subdirectory=python   (or hg+, svn+, bzr+)
# pip_path         ./submodules/knn, -e ., file:///srv/wheels/x.whl
# pip_option       --extra-index-url https://host/simple, -f https://host/list.html, --pre
# pip_include      -r requirements.txt; its lines follow as entries of their own
# pip_constraint   -c constraints.txt
KINDS = ("conda", "pip", "pip_url", "pip_git", "pip_path", "pip_option", "pip_include", "pip_constraint")


@dataclass(frozen=True)
class Located:
    """A text and where it stands; line and column count from 1."""

    text: str
    line: int
    column: int
    path: str = ""

    @property
    def place(self) -> str:
        """`environment.yml:12:5`, as editors and terminals take it."""
        return f"{self.path}:{self.line}:{self.column}"


@dataclass(frozen=True)
class Fault:
    """Something in a source file that is wrong before anything of it is judged.

    Attributes:
        kind: `syntax`, `template`, `empty`, `shape`, `duplicate`, `spec`, `requirement`, `key`,
            `platform`, `selector`, `ignored`, `nothing` or `include`; each is of one rule.
        message: one clause, without the place.
        line, column: from 1.
        path: the file; an included one where the fault is there.
        next_step: what to do, a whole sentence; empty where the rule's own advice is enough.
        fatal: whether nobody can lock the file as it is.
    """

    kind: str
    message: str
    line: int
    column: int
    path: str = ""
    next_step: str = ""
    fatal: bool = True

    @property
    def place(self) -> str:
        """`environment.yml:12:5`."""
        return f"{self.path}:{self.line}:{self.column}"


@dataclass(frozen=True)
class Entry:
    """One dependency, or one option line of the pip section.

    Attributes:
        text: as it is written, without its comment.
        line, column: from 1.
        path: the file that has the line: the source file, or one that it includes.
        kind: one of `KINDS`.
        name: as written (`Django`, `pytorch`); empty where the line does not say it.
        key: the name as its index looks it up: lower case for conda, PEP 503 for pip.
        version: the constraint: `=1.0`, `>=1,<2`, `3.11.*`; empty for any.
        build: conda's build, `py3.10_cuda11.8*`; empty for any.
        channel: conda's channel of `channel::name`.
        extras: of `name[extra,...]`.
        marker: the PEP 508 marker after `;`.
        url: of `pip_url` and `pip_git` without scheme prefix, reference and fragment; of conda
            packages that are named by their URL.
        ref: what stands after `@` in a git URL; empty for the default branch.
        subdirectory: of `#subdirectory=`.
        hashes: `sha256:...`, of `--hash` and of `#sha256=`.
        editable: whether it was written with `-e`.
        option: the long name of an option, `--extra-index-url`.
        value: the option's value, or the path of `pip_path`, `pip_include` and `pip_constraint`.
        selector: the comment selector, `linux` of `# [linux]`; None without one.
        platforms: the platforms that the selector means; None for all.
        block: which `pip:` section it is from, counted from 0; -1 outside of them.
    """

    text: str
    line: int
    column: int
    path: str
    kind: str
    name: str = ""
    key: str = ""
    version: str = ""
    build: str = ""
    channel: str = ""
    extras: tuple[str, ...] = ()
    marker: str = ""
    url: str = ""
    ref: str = ""
    subdirectory: str = ""
    hashes: tuple[str, ...] = ()
    editable: bool = False
    option: str = ""
    value: str = ""
    selector: str | None = None
    platforms: tuple[str, ...] | None = None
    block: int = -1

    @property
    def place(self) -> str:
        """`environment.yml:12:5`."""
        return f"{self.path}:{self.line}:{self.column}"

    def applies_to(self, platform: str) -> bool:
        """Whether the entry counts on a platform such as `linux-64`."""
        return self.platforms is None or platform in self.platforms


@dataclass(frozen=True)
class SourceFile:
    """What an environment.yml says.

    Attributes:
        path: as it was given.
        text: decoded, with LF as the only line end.
        encoding: `utf-8`, `utf-16-le`, ...; has_mark: whether a byte order mark stood before it.
        name: of the environment; None where it has none.
        channels: in their order, `nodefaults` among them where it is there.
        platforms: conda-lock's key, in order; empty where it is not there.
        conda: the dependencies, in order.
        pip: the lines of all `pip:` sections, in order, with those of the files they include.
        pip_sections: where each `pip:` section begins.
        variables: name to value.
        prefix: None where there is none.
        category: conda-lock's key; `main` where it is not there.
        pip_repositories: conda-lock's key.
        allow_pypi_requests: conda-lock's key: whether the default index counts beside them.
        faults: what is wrong with it, in the order of the file.
    """

    path: str
    text: str
    encoding: str = "utf-8"
    has_mark: bool = False
    name: Located | None = None
    channels: tuple[Located, ...] = ()
    platforms: tuple[Located, ...] = ()
    conda: tuple[Entry, ...] = ()
    pip: tuple[Entry, ...] = ()
    pip_sections: tuple[Located, ...] = ()
    variables: tuple[tuple[str, Located], ...] = ()
    prefix: Located | None = None
    category: str = "main"
    pip_repositories: tuple[Located, ...] = ()
    allow_pypi_requests: bool = True
    faults: tuple[Fault, ...] = ()

    def entries(self, platform: str | None = None) -> tuple[Entry, ...]:
        """All entries, or those that count on one platform."""
        both = self.conda + self.pip
        return both if platform is None else tuple(each for each in both if each.applies_to(platform))

    def check(self) -> None:
        """Refuse a file that nobody can lock as it is.

        Raises:
            InputError: with the place and the advice of the first fault that is fatal.
        """
        fatal = [fault for fault in self.faults if fault.fatal]
        if fatal:
            first = fatal[0]
            more = f"and {len(fatal) - 1} more" if len(fatal) > 1 else ""
            advice = first.next_step or f"'envaudit lint {self.path}' tells all of it."
            raise InputError(cleaned(first.message), where=first.place, why=more, next_step=cleaned(advice))
