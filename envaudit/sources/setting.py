"""For what machine a report is read, and with whose words for channels and addresses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

# Of the interpreters in use when nobody said which: a marker that all agree on is decided.
_PYTHONS = tuple(f"3.{minor}.{patch}" for minor in range(8, 16) for patch in (0, 30))
# conda's name of a platform to PEP 508's `platform_machine`.
_MACHINES = {
    "linux-64": "x86_64",
    "linux-aarch64": "aarch64",
    "linux-ppc64le": "ppc64le",
    "linux-s390x": "s390x",
    "osx-64": "x86_64",
    "osx-arm64": "arm64",
    "win-64": "AMD64",
    "win-arm64": "ARM64",
}
_SYSTEMS = {
    "linux": {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"},
    "osx": {"sys_platform": "darwin", "platform_system": "Darwin", "os_name": "posix"},
    "win": {"sys_platform": "win32", "platform_system": "Windows", "os_name": "nt"},
}


@dataclass(frozen=True)
class Setting:
    """The target of a lock that serves several, and the probe's own words.

    Attributes:
        platform: conda's name, `linux-64`.
        python: the interpreter's full version; None where it is not known.
        implementation: of the interpreter, `cpython`.
        channel_name: from a channel's address to its one name, as the probe has it.
        clean: an address without credentials, as the probe has it.
    """

    platform: str
    python: str | None
    channel_name: Callable[[str], str]
    clean: Callable[[str], str]
    implementation: str = "cpython"

    def holds(self, marker: str, **more: frozenset[str] | str) -> bool | None:
        """Whether a marker of PEP 508 holds on the target; None where that cannot be told.

        Args:
            marker: its text; an empty one always holds.
            more: further variables, such as `extra`, or `dependency_groups` of PEP 751.
        """
        if not marker:
            return True
        from packaging.markers import InvalidMarker, Marker, UndefinedComparison, UndefinedEnvironmentName

        try:
            parsed = Marker(marker)
            pythons = (self.python,) if self.python else _PYTHONS
            answers = {parsed.evaluate({**self._variables(python), **more}) for python in pythons}
        except (
            InvalidMarker,
            UndefinedComparison,
            UndefinedEnvironmentName,
            KeyError,
            TypeError,
            ValueError,
        ):
            return None
        except RecursionError:
            return None
        return answers.pop() if len(answers) == 1 else None

    def serves(self, requires_python: str) -> bool | None:
        """Whether a `requires-python` takes the target's interpreter; None where that cannot be told."""
        from packaging.specifiers import SpecifierSet

        if not requires_python:
            return True
        try:
            wanted = SpecifierSet(requires_python)
            pythons = (self.python,) if self.python else _PYTHONS
            answers = {wanted.contains(python, prereleases=True) for python in pythons}
        except ValueError:  # no specifier, no version, or a number longer than Python reads
            return None
        return answers.pop() if len(answers) == 1 else None

    def _variables(self, python: str) -> dict[str, str]:
        system = self.platform.partition("-")[0]
        return {
            **_SYSTEMS.get(system, _SYSTEMS["linux"]),
            "platform_machine": _MACHINES.get(self.platform, self.platform.partition("-")[2]),
            "platform_release": "",
            "platform_version": "",
            "python_version": ".".join(python.split(".")[:2]),
            "python_full_version": python,
            "implementation_name": self.implementation,
            "implementation_version": python,
            "platform_python_implementation": "CPython"
            if self.implementation == "cpython"
            else self.implementation,
            "extra": "",
        }
