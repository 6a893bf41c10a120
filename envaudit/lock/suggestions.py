"""What would give a CUDA build where a solve gave a CPU build, tried and not only said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from envaudit.errors import InputError, NeededError
from envaudit.lock.channels import Channel
from envaudit.lock.gpubuilds import CPU, FRAMEWORKS, requests, variant_of
from envaudit.lock.lockfile import Lock, LockedPackage
from envaudit.lock.request import LockRequest, solving_of
from envaudit.lock.spec import Spec, spec_of


def tried_suggestions(
    request: LockRequest,
    lock: Lock,
    specs: Mapping[str, Sequence[Spec]],
    channels: Sequence[Channel],
) -> dict[str, bool]:
    """What would ask for a CUDA build of a framework that came as a CPU build, and whether it solves."""
    for platform in request.platforms:
        entries = [entry for source in request.sources for entry in source.entries(platform)]
        cuda = any(package.name == "__cuda" for package in request.virtual.of(platform))
        if requests(entries)[1] or not cuda:
            continue
        for package in lock.of(platform, categories=None, manager="conda"):
            if package.name in FRAMEWORKS and variant_of(package) == CPU:
                return {
                    text: _solves(request, platform, (*specs[platform], spec_of(text)), channels)
                    for text in _candidates(package, specs[platform])
                }
    return {}


def _candidates(package: LockedPackage, specs: Sequence[Spec]) -> tuple[str, ...]:
    """The build pin, on the version that the source asks for, and the metapackage of conda-forge."""
    name = "pytorch" if package.name == "libtorch" else package.name
    asked = next((spec.bare for spec in specs if spec.name == name), name)
    version = asked[len(name) :].strip().replace(" ", "")
    pin = f"{name}{version}=*cuda*" if version.startswith("=") else f"{name} {version or '*'} *cuda*"
    return (pin, "pytorch-gpu") if name == "pytorch" else (pin,)


def _solves(request: LockRequest, platform: str, specs: Sequence[Spec], channels: Sequence[Channel]) -> bool:
    alone = replace(request, existing=None)
    try:
        with solving_of(alone, {platform: specs}, channels, {}, None) as solving:
            return not solving.result().conflicts
    except (InputError, NeededError):
        return False
