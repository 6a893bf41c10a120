"""The solver's own process: reads one question on standard input, answers in lines of JSON.

py-rattler's runtime may abort the interpreter while that shuts down, after the work is done
(`PyGILState_Release`, about 2 of 80 runs), so the process that holds it leaves by `os._exit`, and
the process that asked never loads it. What goes wrong is a line too: `fault` for a channel or a
spec, `conflict` for what cannot be solved.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from envaudit.lock.flexible import solve_flexible

_MAX_WORDS = 2000  # Characters of a library's error text that are passed on.
_TIMEOUT_S = 600  # For one address: 200 MB of an index over a slow line.
_NO_CANDIDATE = re.compile(r"No candidates were found for ([^\s\[]+)")


def main() -> None:
    """Answer the question on standard input; never returns."""
    question = json.load(sys.stdin)
    # The cache of channel indexes holds their addresses, tokens of the user's included.
    os.umask(0o077)
    status = 0
    try:
        asyncio.run(_answer(question))
    except _Fault as fault:
        _say({"fault": fault.words})
    except BaseException as error:
        _say({"fault": {"kind": "crash", "text": f"{type(error).__name__}: {error}"[:_MAX_WORDS]}})
        status = 1
    sys.stdout.flush()
    os._exit(status)


class _Fault(Exception):
    """Ends the run with one line of words for the process that asked."""

    def __init__(self, **words: Any) -> None:
        super().__init__(words)
        self.words = words


def _say(line: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


async def _follow(parent: int) -> None:
    """Leave when the process that asked was killed: a slow channel would hold this one for minutes."""
    while os.getppid() == parent:
        await asyncio.sleep(0.5)
    os._exit(1)


async def _answer(question: Mapping[str, Any]) -> None:
    following = asyncio.create_task(_follow(os.getppid()))
    try:
        await _answer_all(question)
    finally:
        following.cancel()


async def _answer_all(question: Mapping[str, Any]) -> None:
    gateway = _gateway(question)
    platforms: Sequence[str] = sorted(question["platforms"])
    urls = await _reachable(gateway, question["channels"], platforms)
    limit = asyncio.Semaphore(max(1, int(question["jobs"])))

    async def one(platform: str) -> None:
        async with limit:
            _say({"progress": [platform, "solve", ""]})
            await _solve(gateway, question, urls, platform)

    await asyncio.gather(*(one(platform) for platform in platforms))


def _gateway(question: Mapping[str, Any]) -> Any:
    from rattler import Config, Gateway, SourceConfig
    from rattler.networking import Client

    client = Client.from_config(
        Config.from_toml(question["client"]), max_retries=question["retries"], timeout=_TIMEOUT_S
    )
    return Gateway(
        cache_dir=question["cache_dir"],
        default_config=SourceConfig(cache_action=question["cache_action"]),
        client=client,
    )


async def _reachable(gateway: Any, channels: Sequence[Any], platforms: Sequence[str]) -> list[str]:
    """Of each channel the first address that answers; this also reads the indexes into the gateway."""
    from rattler.exceptions import GatewayError

    read = 0

    async def one(channel: Mapping[str, Any]) -> str:
        nonlocal read
        failures = []
        for url in channel["urls"]:
            names = gateway.names([url], [*platforms, "noarch"], channel_relations="disabled")
            try:
                # The client tries again what took too long, as often as what failed at once.
                await asyncio.wait_for(names, _TIMEOUT_S)
            except asyncio.TimeoutError:
                failures.append(f"timed out: no whole index in {_TIMEOUT_S} s")
                continue
            except GatewayError as error:
                failures.append(str(error)[:_MAX_WORDS])
                continue
            read += 1
            _say({"progress": ["", "channels", f"{read}/{len(channels)} {channel['canonical']}"]})
            return str(url)
        raise _Fault(kind="channel", place=channel["place"], texts=failures)

    return list(await asyncio.gather(*(one(channel) for channel in channels)))


async def _solve(gateway: Any, question: Mapping[str, Any], urls: list[str], platform: str) -> None:
    from rattler import ChannelPriority, Subdir, solve
    from rattler.exceptions import GatewayError, SolverError

    task = question["platforms"][platform]
    sources = _sources(question["channels"], urls)
    arguments: dict[str, Any] = {
        "gateway": gateway,
        "platforms": [Subdir(platform), Subdir("noarch")],
        "virtual_packages": _virtual(task["virtual"]),
        "locked_packages": await _locked(gateway, urls, task["locked"], platform),
        "channel_relations": "disabled",
        "add_pip_as_python_dependency": question["add_pip"],
    }
    wanted = _with_pip(task, question["add_pip"])
    specs = _specs(wanted, urls)
    asked = [*specs, *_all_candidates(task["specs"], len(sources))]
    helped: Sequence[str] | None = None
    try:
        if question["priority"] == "flexible":
            # Pip is wanted for itself where the settings add it to python.
            roots = {spec["name"] for spec in wanted} | ({"pip"} if question["add_pip"] else set())
            records, helped = await solve_flexible(sources, asked, roots, arguments)
        elif question["priority"] == "strict":
            records = await solve(sources, asked, channel_priority=ChannelPriority.Strict, **arguments)
        else:
            records = await solve(sources, specs, channel_priority=ChannelPriority.Disabled, **arguments)
    except SolverError as error:
        await _tell_conflict(gateway, urls, task, platform, str(error))
        return
    except GatewayError as error:
        raise _Fault(kind="index", text=str(error)[:_MAX_WORDS]) from None
    tables = sorted(
        (json.loads(record.to_json()) for record in records), key=lambda table: str(table["name"])
    )
    if question["add_pip"]:
        _let_python_need_pip(tables)
    _say({"platform": platform, "helped": helped, "records": tables})


def _let_python_need_pip(tables: Sequence[dict[str, Any]]) -> None:
    """As the solver has it of a python that it chose itself; one that was locked lacks it."""
    if any(table["name"] == "pip" for table in tables):
        for table in tables:
            if table["name"] == "python" and "pip" not in table["depends"]:
                table["depends"].append("pip")


def _sources(channels: Sequence[Any], urls: Sequence[str]) -> list[Any]:
    """Channels in order; those of one group become one source with one priority."""
    from rattler import Channel
    from rattler.repo_data.multi_source import MultiSource

    tiers: dict[tuple[str, int], list[Any]] = {}
    for place, (channel, url) in enumerate(zip(channels, urls)):
        group = channel["group"]
        tiers.setdefault((group, -1 if group else place), []).append(Channel(url))
    return [MultiSource(group, members) if group else members[0] for (group, _), members in tiers.items()]


def _all_candidates(specs: Sequence[Any], sources: int) -> list[Any]:
    """The bare names of the specs that no channel is tied to.

    The gateway reads only the candidates that a spec allows: for `numpy=2.1` a first channel with
    numpy 2.0 would not count as having numpy, and strict priority would let the second one in.
    """
    from rattler import MatchSpec

    tied = {spec["name"] for spec in specs if spec["tied"] is not None}
    names = {spec["name"] for spec in specs if spec["bare"].lower() != spec["name"]}
    return [MatchSpec(name, strict=False) for name in sorted(names - tied)] if sources > 1 else []


def _with_pip(task: Mapping[str, Any], add_pip: bool) -> list[Any]:
    """The specs, and pip where it was locked as a dependency of python.

    The solver adds that dependency to what a channel offers, not to the records it should stay
    with: without this an update would lose pip.
    """
    specs = list(task["specs"])
    if add_pip and {"pip", "python"} <= {item["name"] for item in task["locked"]}:
        specs.append({"text": "pip", "bare": "pip", "name": "pip", "where": "", "subdir": "", "tied": None})
    return specs


def _specs(specs: Sequence[Any], urls: Sequence[str]) -> list[Any]:
    from rattler import MatchSpec

    parsed = []
    for spec in specs:
        text, tied = spec["bare"], spec["tied"]
        if tied is not None:
            place = urls[tied] if isinstance(tied, int) else tied
            text = f"{place}/{spec['subdir']}::{text}" if spec["subdir"] else f"{place}::{text}"
        try:
            parsed.append(MatchSpec(text, strict=False))
        except Exception as error:
            raise _Fault(kind="spec", spec=spec["text"], where=spec["where"], text=str(error)) from None
    return parsed


def _virtual(packages: Sequence[Sequence[str]]) -> list[Any]:
    from rattler import GenericVirtualPackage, PackageName, Version
    from rattler.package import BuildString

    return [
        GenericVirtualPackage(PackageName(name), Version(version), BuildString(build or "0"))
        for name, version, build in packages
    ]


async def _locked(gateway: Any, urls: Sequence[str], locked: Sequence[Any], platform: str) -> list[Any]:
    """The channel's own records of what is locked; what it no longer has is not held to."""
    if not locked:
        return []
    wanted = {(item["subdir"], item["file_name"]): item["sha256"] for item in locked}
    found = await gateway.query(
        list(urls),
        [platform, "noarch"],
        sorted({item["name"] for item in locked}),
        recursive=False,
        channel_relations="disabled",
    )
    return [
        record
        for records in found
        for record in records
        if (record.subdir, record.file_name) in wanted
        and wanted[record.subdir, record.file_name] in (None, record.sha256 and record.sha256.hex())
    ]


async def _tell_conflict(
    gateway: Any, urls: Sequence[str], task: Mapping[str, Any], platform: str, text: str
) -> None:
    """Pass on the solver's words, and the nearest names of those that no channel has."""
    names = await gateway.names(list(urls), [platform, "noarch"], channel_relations="disabled")
    own = await gateway.names(list(urls), [platform], channel_relations="disabled")
    known = {name.normalized for name in names}
    asked = {spec["name"] for spec in task["specs"]}
    empty = [spec for spec in task["specs"] if spec["name"] in set(_NO_CANDIDATE.findall(text)) & known]
    _say(
        {
            "conflict": {
                "platform": platform,
                "text": text,
                "unknown": {name: _nearest(name, known) for name in sorted(asked - known)},
                "offers": {spec["name"]: await _offers(gateway, urls, platform, spec) for spec in empty},
                "has_platform": bool(own),
            }
        }
    )


def _nearest(name: str, known: Collection[str]) -> str:
    """`openssh` for `openssh-client`, `pytorch` for `torch`; empty where nothing is near."""
    import difflib

    shorter = [other for other in known if name.startswith(other + "-")]
    if shorter:
        return max(shorter, key=len)
    close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.75)
    longer = [other for other in known if other.endswith(name) or other.startswith(name + "-")]
    return next(iter([*close, *sorted(longer, key=len)]), "")


async def _offers(
    gateway: Any, urls: Sequence[str], platform: str, spec: Mapping[str, Any]
) -> dict[str, list[str]]:
    """What the channels have of a package: lowest and highest version, and builds of the one asked for."""
    from rattler import MatchSpec

    found = await gateway.query(
        list(urls), [platform, "noarch"], [spec["name"]], recursive=False, channel_relations="disabled"
    )
    records = [record for records in found for record in records]
    versions = sorted({record.version for record in records})
    asked = MatchSpec(spec["bare"], strict=False)
    builds: list[str] = []
    if asked.build is not None:
        of_version = MatchSpec(f"{spec['name']} {asked.version or '*'}", strict=False)
        builds = sorted({str(record.build) for record in records if of_version.matches(record)})
    return {"versions": [str(version) for version in (*versions[:1], *versions[1:][-1:])], "builds": builds}


if __name__ == "__main__":
    main()
