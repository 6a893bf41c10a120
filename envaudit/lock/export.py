"""An environment as something that rebuilds it: from a lock, or from a snapshot of a past good run."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from envaudit.errors import InputError, UsageError
from envaudit.lock.channels import resolve_channels
from envaudit.lock.condarc import DEFAULT_ALIAS, DEFAULTS_HOST, Settings
from envaudit.lock.lockfile import CONDA_NAME, HEX, PIP_NAME, URL, VERSION, Lock, LockedPackage
from envaudit.lock.names import distributions_of, normalised
from envaudit.lock.wheelinstall import is_repository
from envaudit.model.fingerprint import Fingerprint
from envaudit.model.locked import is_of_pip, platform_of

_EXTENSIONS = (".conda", ".tar.bz2")
# One line: a folder may have spaces in its name.
_CHANNEL = re.compile(r"\S[^\x00-\x1f\x7f-\x9f\u2028\u2029]*\Z")

# From distributions (`name==version`, or `name @ url`) of one platform and a Python to their files.
ResolvePip = Callable[[Sequence[str], str, str], Sequence[LockedPackage]]


@dataclass(frozen=True)
class Environment:
    """What is exported.

    Attributes:
        name: for `name:` of an environment file.
        platform: `linux-64`.
        channels: as a lock names them, the most important first.
        conda: conda packages; of a snapshot, one that has no address has an empty URL.
        pip: pip packages; of a snapshot without file and hash until they are resolved.
        origin: where it comes from, for a comment.
        content_hash: of the lock it comes from, else None.
        sources: of that lock.
        python: version of the interpreter, where a snapshot tells it; no conda package need have brought it.
    """

    name: str
    platform: str
    channels: tuple[str, ...]
    conda: tuple[LockedPackage, ...]
    pip: tuple[LockedPackage, ...]
    origin: str
    content_hash: str | None = None
    sources: tuple[str, ...] = ()
    python: str | None = None

    def __post_init__(self) -> None:
        """Refuse what would be another line, or an option, in a file: a node may have said anything.

        Raises:
            InputError: a name, version, build, address or hash that is none.
        """
        words = [("a channel", channel, _CHANNEL) for channel in self.channels]
        for package in (*self.conda, *self.pip):
            name = CONDA_NAME if package.manager == "conda" else PIP_NAME
            words += [("the name of a package", package.name, name), ("a version", package.version, VERSION)]
            urls = (("an address", package.url, URL), ("an address", package.source_url, URL))
            hashes = (("an md5", package.md5, HEX), ("a sha256", package.sha256, HEX))
            more = (("a build", package.build, VERSION), *urls, *hashes)
            words += [(what, text, form) for what, text, form in more if text]
        for what, text, form in words:
            if not form.match(text):
                raise InputError(f"{text!r:.80} is not {what}, so it is not exported", where=self.origin)


def of_lock(lock: Lock, platform: str, categories: Collection[str]) -> Environment:
    """The environment that a lock describes for one platform and some categories.

    Raises:
        UsageError: the lock has no such platform or category, or nothing of it for that platform.
    """
    if platform not in lock.platforms:
        raise UsageError(
            f"the lock has no packages for {platform}",
            where=lock.path,
            next_step=f"It has {', '.join(lock.platforms)}: name one with --platform.",
        )
    lock.check_has(platform, categories)
    name = os.path.basename(lock.path)
    for ending in (".yml", ".yaml", ".conda-lock", "-lock"):
        name = name[: -len(ending)] if name.endswith(ending) and name != ending else name
    conda = lock.of(platform, categories, "conda")
    return Environment(
        name=name,
        platform=platform,
        channels=_channels([channel.url for channel in lock.channels], conda),
        conda=conda,
        pip=lock.of(platform, categories, "pip"),
        origin=os.path.basename(lock.path),
        content_hash=lock.content_hash.get(platform),
        sources=lock.sources,
    )


def of_fingerprint(fingerprint: Fingerprint, platform: str | None = None) -> Environment:
    """The environment that a node had.

    Args:
        fingerprint: its sections `conda` and `packages` are needed.
        platform: `linux-64`; default: by the node's machine.

    Raises:
        UsageError: the node is of another platform.
        InputError: a section is not there, or was not read as a whole.
    """
    for needed in ("conda", "packages"):
        section = fingerprint.sections.get(needed)
        if section is None or section.status not in ("ok", "absent"):
            state = "not there" if section is None else section.status
            raise InputError(
                f"section {needed} is {state}, so the environment is not known as a whole",
                where=fingerprint.node,
                next_step="Take another snapshot.",
            )
    own = platform_of(fingerprint, platform or "linux-64")
    if platform not in (None, own):
        raise UsageError(
            f"the snapshot has no packages for {platform}", where=fingerprint.node, why=f"it is of {own}"
        )
    facts, notes = fingerprint.sections["conda"].facts, fingerprint.sections["conda"].notes
    table, urls = facts.get("packages"), notes.get("urls")
    conda = tuple(
        _recorded(name, of, urls if isinstance(urls, dict) else {}, own)
        for name, of in sorted((table if isinstance(table, dict) else {}).items())
        if isinstance(of, dict)
    )
    brought = {each for package in conda for each in distributions_of(package.name)}
    distributions = fingerprint.sections["packages"].facts.get("distributions")
    pip = tuple(
        _distribution(name, of, own)
        for name, of in sorted((distributions if isinstance(distributions, dict) else {}).items())
        if is_of_pip(of) or (name not in brought and not conda and isinstance(of, dict))
    )
    interpreter = fingerprint.sections.get("python")
    rows = table.values() if isinstance(table, dict) else ()
    stated = [str(of.get("channel") or "") for of in rows if isinstance(of, dict)]
    return Environment(
        name=str(facts.get("name") or "environment"),
        platform=own,
        channels=_channels([], conda) or tuple(dict.fromkeys(filter(None, stated))),
        conda=conda,
        pip=pip,
        origin=f"{fingerprint.node} as of {fingerprint.captured_at}",
        python=_text(interpreter.facts.get("version")) if interpreter else None,
    )


def with_files(environment: Environment, resolve: ResolvePip, form: str) -> Environment:
    """The environment with file and hash for each pip package, where a snapshot has none.

    Raises:
        UsageError: it has pip packages, and its Python is not known, or is not conda's where `form` is.
    """
    bare = [package for package in environment.pip if not package.sha256 and not is_repository(package)]
    if not bare:
        return environment
    of_conda = (package.version for package in environment.conda if package.name == "python")
    python = next(of_conda, environment.python if form == "requirements" else None)
    if python is None and environment.python is not None:
        raise UsageError(
            "its Python is of no conda package, so no conda environment rebuilds it",
            where=environment.origin,
            next_step="Export it with --as requirements.",
        )
    if python is None:
        raise UsageError(
            "which Python it was is not known, so its wheels are not either",
            where=environment.origin,
            next_step="Export it with --as environment, which needs no wheels.",
        )
    lines = [
        f"{package.name} @ {package.url}" if package.url else f"{package.name}=={package.version}"
        for package in bare
    ]
    kept = [package for package in environment.pip if package not in bare]
    return replace(environment, pip=(*kept, *resolve(lines, python, environment.platform)))


def explicit(environment: Environment) -> str:
    """The list that `conda create --file` takes; pip packages are comments in it.

    Raises:
        InputError: the address of a package is not known.
    """
    lines = [f"# {environment.origin}", f"# platform: {environment.platform}", "@EXPLICIT"]
    for package in environment.conda:
        _demand_url(package, environment)
        lines.append(f"{package.url}#{package.md5 or f'sha256:{package.sha256}'}")
    lines += [f"# pip {_requirement(package)}" for package in environment.pip]
    return "".join(f"{line}\n" for line in lines)


def environment_yml(environment: Environment) -> str:
    """An environment.yml with version and build of each package."""
    several = len(environment.channels) > 1
    channels = (
        [*environment.channels, "nodefaults"] if "defaults" not in environment.channels else ["defaults"]
    )
    lines = [f"# {environment.origin}, {environment.platform}", f"name: {json.dumps(environment.name)}"]
    lines += ["channels:", *(f"  - {_scalar(channel)}" for channel in channels)]
    lines += ["platforms:", f"  - {environment.platform}", "dependencies:"]
    for package in environment.conda:
        channel = f"{_channel_name(package.channel)}::" if several and package.url else ""
        lines.append(f"  - {channel}{package.name}={package.version}={package.build}")
    if environment.pip:
        lines += ["  - pip:", *(f"    - {_pin(package)}" for package in environment.pip)]
    return "".join(f"{line}\n" for line in lines)


def requirements(environment: Environment) -> str:
    """A requirements file with hashes, of the pip part; conda packages are comments in it."""
    lines = [f"# {environment.origin}, {environment.platform}"]
    for package in environment.pip:
        hashes = f" --hash=sha256:{package.sha256}" if package.sha256 else ""
        lines.append(_pin(package) + hashes)
    names = [f"{package.name}={package.version}" for package in environment.conda]
    if names:
        lines += ["# not of pip: these are conda packages", *(f"#   {name}" for name in names)]
    return "".join(f"{line}\n" for line in lines)


def conda_lock(environment: Environment) -> str:
    """A conda-lock.yml of one platform.

    A snapshot knows no source file: the content hash is then that of the packages, so that no
    environment.yml is ever taken for its source.

    Raises:
        InputError: address or md5 of a conda package, or the file of a pip package, is not known.
    """
    import yaml

    entries = [_entry(package, environment) for package in (*environment.conda, *environment.pip)]
    digest = hashlib.sha256(json.dumps(entries, sort_keys=True).encode()).hexdigest()
    document = {
        "version": 1,
        "metadata": {
            "content_hash": {environment.platform: environment.content_hash or digest},
            "channels": [{"url": channel, "used_env_vars": []} for channel in environment.channels],
            "platforms": [environment.platform],
            "sources": list(environment.sources),
        },
        "package": entries,
    }
    text: str = yaml.safe_dump(document, sort_keys=False, width=1000)
    return f"# {environment.origin}\n{text}"


FORMATS: dict[str, Callable[[Environment], str]] = {
    "explicit": explicit,
    "environment": environment_yml,
    "requirements": requirements,
    "conda-lock": conda_lock,
}
NEED_FILES = ("explicit", "requirements", "conda-lock")


def _recorded(name: str, facts: dict[str, object], urls: dict[str, object], platform: str) -> LockedPackage:
    url = urls.get(name)
    build = facts.get("build")
    return LockedPackage(
        name=name,
        version=str(facts.get("version")),
        manager="conda",
        platform=platform,
        url=url if isinstance(url, str) and url.endswith(_EXTENSIONS) else "",
        md5=_text(facts.get("md5")),
        sha256=_text(facts.get("sha256")),
        recorded_build=build if isinstance(build, str) else "",
    )


def _distribution(name: str, facts: dict[str, object], platform: str) -> LockedPackage:
    origin = facts.get("direct_url")
    url = ""
    if isinstance(origin, dict) and origin.get("url") not in (None, "local"):
        url = str(origin["url"])
        if origin.get("commit"):
            url = f"git+{url}@{origin['commit']}"
    return LockedPackage(
        name=name, version=str(facts.get("version")), manager="pip", platform=platform, url=url
    )


def _channels(named: Sequence[str], conda: Sequence[LockedPackage]) -> tuple[str, ...]:
    """The channels of a lock, and those of its packages that it does not name."""
    # Nothing is fetched, so that a variable in an address needs no value.
    plain = [name for name in named if "$" not in name]
    bases = {channel.base for channel in (resolve_channels(plain, Settings()) if plain else ())}
    bases.update(name.rstrip("/") for name in named if "$" in name)
    more = {_channel_name(package.channel): None for package in conda if package.url}
    return (
        *named,
        *(name for name in more if name not in named and not any(_base(name) == base for base in bases)),
    )


def _base(name: str) -> str:
    if "://" in name:
        return name
    return f"{DEFAULTS_HOST if name.startswith('pkgs/') else DEFAULT_ALIAS}/{name}"


def _channel_name(url: str) -> str:
    """A channel's bare name where conda's default alias has it, else its URL."""
    for root in (DEFAULT_ALIAS, DEFAULTS_HOST):
        if url.startswith(root + "/"):
            return url[len(root) + 1 :]
    return url


def _scalar(channel: str) -> str:
    """As YAML has it."""
    return channel if URL.match(channel) else json.dumps(channel, ensure_ascii=False)


def _pin(package: LockedPackage) -> str:
    if package.source_url or is_repository(package):
        return f"{package.name} @ {package.source_url or package.url}"
    return f"{package.name}=={package.version}"


def _requirement(package: LockedPackage) -> str:
    place = f" @ {package.url}" if package.url else f"=={package.version}"
    return f"{package.name}{place}" + (f" --hash=sha256:{package.sha256}" if package.sha256 else "")


def _entry(package: LockedPackage, environment: Environment) -> dict[str, object]:
    _demand_url(package, environment)
    if package.manager == "conda" and not package.md5:
        raise InputError(
            f"the md5 of {package.name} is not known, and conda-lock's format needs it",
            where=environment.origin,
            next_step="Export it with --as explicit.",
        )
    entry: dict[str, object] = {
        "name": package.name if package.manager == "conda" else normalised(package.name),
        "version": package.version,
        "manager": package.manager,
        "platform": package.platform,
        "dependencies": dict(package.dependencies),
        "url": package.url,
        "hash": {key: value for key, value in (("md5", package.md5), ("sha256", package.sha256)) if value},
        "category": min(package.categories, key=lambda name: (name != "main", name)),
        "optional": "main" not in package.categories,
    }
    if package.source_url:
        entry["source"] = {"type": "url", "url": package.source_url}
    return entry


def _demand_url(package: LockedPackage, environment: Environment) -> None:
    if not package.url:
        raise InputError(
            f"where {package.name} {package.version} came from is not known",
            where=environment.origin,
            next_step="Export it with --as environment, which needs no addresses.",
        )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
