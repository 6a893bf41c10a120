"""Laws of what a lock was made for."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from envaudit.lock.freshness import changes_between
from envaudit.lock.inputs import Inputs

_NAMES = st.text("abcxyz-", min_size=1, max_size=8)
_VERSIONS = st.sampled_from(["", ">=1.20", "=3.10", "2.0.1 *cuda*", "; sys_platform == 'linux'"])


@st.composite
def _lines(draw: st.DrawFn) -> tuple[str, ...]:
    lines = draw(st.lists(st.tuples(st.sampled_from(["conda", "pip", "dev: pip"]), _NAMES, _VERSIONS)))
    return tuple(sorted({" ".join(part for part in line if part) for line in lines}))


@st.composite
def _inputs(draw: st.DrawFn) -> Inputs:
    platforms = draw(st.sets(st.sampled_from(["linux-64", "osx-arm64", "win-64"]), min_size=1))
    return Inputs(
        channels=tuple(draw(st.lists(_NAMES, unique=True))),
        specs={platform: draw(_lines()) for platform in sorted(platforms)},
        virtual=dict.fromkeys(sorted(platforms), ("__cuda=12.4", "__glibc=2.28")),
        cuda=draw(st.sampled_from([None, "none", "12.4"])),
        priority=draw(st.sampled_from(["", "strict", "flexible"])),
        platforms=tuple(draw(st.sampled_from([(), ("linux-64",)]))),
    )


@settings(max_examples=100, deadline=None)
@given(_inputs())
def test_inputs_come_back_from_the_metadata_of_a_lock(inputs: Inputs) -> None:
    """Reading undoes writing."""
    assert inputs == Inputs.from_custom(inputs.to_custom())


@settings(max_examples=100, deadline=None)
@given(_inputs())
def test_nothing_has_changed_against_itself(inputs: Inputs) -> None:
    """A lock is fresh for what it was made for."""
    assert [] == changes_between(inputs, inputs)


@settings(max_examples=100, deadline=None)
@given(_inputs(), _inputs())
def test_specs_and_channels_that_differ_are_a_change(before: Inputs, now: Inputs) -> None:
    """No difference passes in silence."""
    differ = before.channels != now.channels or any(
        before.specs.get(platform, ()) != specs for platform, specs in now.specs.items()
    )
    changed = [line for line in changes_between(before, now) if not line.startswith("channel priority")]
    assert differ == bool(changed)
