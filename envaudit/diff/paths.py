"""Which fact paths a comparison looks at: `--section`, `--only`, `--ignore`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable, Sequence, Tuple

from envaudit.errors import UsageError
from envaudit.model.codec import SECTION_SCHEMAS
from envaudit.model.drift import join_path
from envaudit.model.fingerprint import Fingerprint
from envaudit.model.pathpattern import PathPattern
from envaudit.model.section import Section

# The path segment under which a package's local version tag (`cu121`) is told apart.
LOCAL = "local"


@dataclass(frozen=True)
class PathFilter:
    """The paths that are compared. Without any part, all of them are.

    Attributes:
        sections: names; empty for all.
        only: patterns of which one must match; empty for all paths.
        ignore: patterns of which none may match.
    """

    sections: Tuple[str, ...] = ()
    only: Tuple[PathPattern, ...] = ()
    ignore: Tuple[PathPattern, ...] = ()

    @classmethod
    def of(
        cls,
        sections: Sequence[str] = (),
        only: Sequence[str] = (),
        ignore: Sequence[str] = (),
        known: Iterable[str] = (),
    ) -> PathFilter:
        """A filter from what the user typed.

        Args:
            sections: section names.
            only: patterns to keep.
            ignore: patterns to leave out.
            known: section names of the fingerprints at hand, beside those this version knows.

        Raises:
            UsageError: a pattern that is empty or badly escaped, or a section that cannot exist.
        """
        names = sorted({*SECTION_SCHEMAS, *known})
        for name in sections:
            if name not in names:
                raise _no_section(name, f"--section {name}", names)
        parsed = {"--only": only, "--ignore": ignore}
        patterns = {
            option: tuple(PathPattern.parse(text, option) for text in texts)
            for option, texts in parsed.items()
        }
        for option, of_option in patterns.items():
            for pattern in of_option:
                if not any(pattern.head.match(name) for name in names):
                    head = pattern.text.strip("/").split("/")[0]
                    raise _no_section(head, f"{option} {pattern.text}", names)
        return cls(tuple(sections), patterns["--only"], patterns["--ignore"])

    def ignores(self, path: str) -> bool:
        """Whether `path`, or one above it, is left out."""
        return any(pattern.whole.match(path) for pattern in self.ignore)

    def selects(self, path: str, value: object = None) -> bool:
        """Whether `path`, one above it, or one inside the map `value` is asked for.

        The inside counts because a map that is missing takes the facts within it along.
        """
        if not self.only or any(pattern.whole.match(path) for pattern in self.only):
            return True
        return isinstance(value, dict) and any(
            self.selects(f"{path}/{join_path(key)}", item) for key, item in value.items()
        )

    @property
    def contradicts_itself(self) -> bool:
        """Whether all that is asked for is left out as well."""
        return bool(self.only) and all(self.ignores(pattern.text) for pattern in self.only)

    def covers(self, section: str) -> bool:
        """Whether anything of a section may be compared, as far as its name tells."""
        if self.sections and section not in self.sections:
            return False
        if self.ignores(section):
            return False
        return not self.only or any(pattern.head.match(section) for pattern in self.only)

    def covered(self, sections: Iterable[str]) -> Tuple[str, ...]:
        """Those of `sections` of which anything may be compared, sorted."""
        return tuple(sorted(name for name in sections if self.covers(name)))

    def unmatched(self, fingerprints: Iterable[Fingerprint]) -> Tuple[str, ...]:
        """The sections and `--only` patterns that no fact of these fingerprints answers to.

        A section that was seen to be absent answers for all that would be in it.
        """
        sections = {section.digest: section for each in fingerprints for section in each.sections.values()}
        held = {section.name for section in sections.values()}
        gone = [name for name in self.sections if name not in held]
        asked = [each for each in sections.values() if not self.sections or each.name in self.sections]
        for pattern in self.only:
            if not any(_answers(section, pattern) for section in asked):
                gone.append(pattern.text)
        return tuple(gone)


def _answers(section: Section, pattern: PathPattern) -> bool:
    if pattern.text.endswith(f"/{LOCAL}"):
        # A local tag is told under a path of its own, but stands in the version.
        version = PathPattern.parse(f"{pattern.text[: -len(LOCAL)]}version", "")
        return _answers(section, version)
    if section.status in ("absent", "error"):
        return pattern.head.match(section.name) is not None
    return PathFilter(only=(pattern,)).selects(section.name, section.facts)


def _no_section(name: str, where: str, names: Sequence[str]) -> UsageError:
    from difflib import get_close_matches

    near = get_close_matches(name, names, n=1)
    advice = f"Did you mean '{near[0]}'?" if near else f"Sections: {', '.join(names)}."
    return UsageError(f"no section is called '{name}'", where=where, next_step=advice)
