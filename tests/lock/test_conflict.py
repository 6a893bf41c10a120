"""The solver's explanation in the words of the source file, short, with what to do.

PROVENANCE: the explanations are recorded from py-rattler 0.28.0 over ../shared/corpus/channel and over
channels made for it; long ones are made of their lines.
"""

from __future__ import annotations

from typing import Any

import pytest

from envaudit.lock.channels import resolve_channels
from envaudit.lock.condarc import Settings
from envaudit.lock.conflict import MAX_HINTS, MAX_LINES, Conflict, conflict_of
from envaudit.lock.spec import spec_of
from envaudit.lock.virtual import VirtualPackage

GLIBC = """Cannot solve the request because of: \
dask * cannot be installed because there are no viable options:
└─ dask 2026.1.1 would require
   └─ tornado >=6.2, which cannot be installed because there are no viable options:
      └─ tornado 6.5.4 would require
         └─ __glibc >=2.34,<3.0.a0, for which no candidates were found.
"""
CUDA = """Cannot solve the request because of: The following packages are incompatible
└─ pytorch >=2.10.0 cuda13* cannot be installed because there are no viable options:
   └─ pytorch 2.10.0 would require
      └─ __cuda *, for which no candidates were found.
"""
OTHER_PYTHON = """Cannot solve the request because of: \
numpy <2.0 cannot be installed because there are no viable options:
└─ numpy 1.26.4 would require
   └─ python >=3.10,<3.11.0a0, for which no candidates were found.
"""


def _conflict(
    text: str,
    *specs: str,
    channels: tuple[str, ...] = ("conda-forge",),
    virtual: tuple[VirtualPackage, ...] = (VirtualPackage("__glibc", "2.28"),),
    **told: Any,
) -> Conflict:
    answer = {
        "platform": "linux-64",
        "text": text,
        "unknown": {},
        "offers": {},
        "has_platform": True,
        **told,
    }
    return conflict_of(
        answer,
        [spec_of(each, f"e.yml:{line}:5") for line, each in enumerate(specs, 1)],
        resolve_channels(channels, Settings()),
        virtual,
    )


def test_conflict_over_a_virtual_package_of_the_source_says_what_is_assumed() -> None:
    """No channel has such a package, and neither has the pip section."""
    conflict = _conflict(
        "Cannot solve the request because of: No candidates were found for __cuda >=13.\n",
        "__cuda>=13",
        "__glibc>=2.17",
        virtual=(VirtualPackage("__cuda", "11.4"), VirtualPackage("__glibc", "2.28")),
        unknown={"__cuda": "", "__glibc": ""},
    )
    assert ["e.yml:1:5"] == [spec.where for spec in conflict.specs]
    assert conflict.hints == (
        "Needed of the machine is __cuda >=13, assumed is 11.4 for linux-64. If the nodes have it, "
        "give --cuda VERSION, or list it in a --virtual-packages file under subdirs.linux-64.packages.",
    )


def test_conflict_over_the_machines_glibc_says_needed_and_assumed() -> None:
    """The cause hangs four levels below the spec that the user wrote."""
    conflict = _conflict(GLIBC, "numpy", "dask")
    assert [spec.text for spec in conflict.specs] == ["dask"]
    assert conflict.hints == (
        "Needed of the machine is __glibc >=2.34,<3.0.a0, assumed is 2.28 for linux-64. If the nodes have "
        "it, list it in a --virtual-packages file under subdirs.linux-64.packages.",
    )
    assert (
        conflict.explanation[-1].strip() == "└─ __glibc >=2.34,<3.0.a0, for which no candidates were found."
    )


def test_conflict_over_a_cuda_that_nobody_assumed_says_how_to_assume_one() -> None:
    """conda-lock's defaults have no __cuda on some platforms, and its error does not say so."""
    (hint,) = _conflict(CUDA, "pytorch>=2.10.0=cuda13*").hints
    assert "__cuda *, none is assumed for linux-64" in hint
    assert "--cuda VERSION" in hint


def test_conflict_with_another_spec_names_both_sides() -> None:
    """What a branch ends at may be what another line of the file has fixed."""
    conflict = _conflict(OTHER_PYTHON, "python >3.11", "scipy", "numpy <2.0")
    assert [spec.where for spec in conflict.specs] == ["e.yml:3:5", "e.yml:1:5"]


def test_conflict_of_unknown_names_stands_in_the_order_of_the_file() -> None:
    """They are at fault before anything that the solver says of the others."""
    conflict = _conflict(OTHER_PYTHON, "zz", "numpy <2.0", "aa", unknown={"aa": "", "zz": "zziplib"})
    assert [spec.text for spec in conflict.specs] == ["zz", "aa"]
    assert conflict.hints == (
        "No channel (conda-forge) has 'aa' for linux-64; is it a package of the pip section?",
        "No channel has 'zz' for linux-64; did you mean 'zziplib'?",
    )


@pytest.mark.parametrize(("channels", "count"), [(("pytorch", "nvidia"), 1), (("conda-forge",), 2)])
def test_conflict_without_python_asks_for_the_channel_that_has_it(
    channels: tuple[str, ...], count: int
) -> None:
    """To the channels of a file conda appends `defaults`; the people who wrote these files counted on it."""
    conflict = _conflict("x", "python", "pip", channels=channels, unknown={"python": "", "pip": ""})
    assert len(conflict.hints) == count
    assert ("conda-forge missing among 'channels:'" in conflict.hints[0]) is (count == 1)


def test_conflict_of_a_long_explanation_is_shortened_and_says_by_how_much() -> None:
    """Real ones have thousands of lines; what repeats says nothing."""
    lines = "\n".join(f"├─ package-{number} would require" for number in range(50))
    explanation = _conflict(f"The following packages are incompatible\n{lines}\n{lines}", "a").explanation
    assert len(explanation) == MAX_LINES
    assert explanation[-1] == f"({50 + 1 - MAX_LINES + 1} more lines)"


def test_conflict_of_many_unknown_names_has_few_hints() -> None:
    """An export of another platform has dozens."""
    unknown = {f"package-{number:02d}": "" for number in range(20)}
    hints = _conflict("x", *unknown, unknown=unknown).hints
    assert (len(hints), hints[-1]) == (MAX_HINTS, f"({20 - MAX_HINTS + 1} more)")


def test_conflict_of_many_builds_names_some() -> None:
    """conda-forge has hundreds of one version."""
    offers = {"numpy": {"versions": ["1", "2"], "builds": [f"b{number}" for number in range(9)]}}
    assert _conflict("x", "numpy=1=z", offers=offers).hints == (
        "Of numpy in that version the channels have other builds for linux-64: b0, b1, b2, b3 and 5 more.",
    )


def test_conflict_does_not_repeat_the_addresses_of_channels() -> None:
    """They may be long, and hold what nobody should read."""
    text = 'Cannot solve the request because of: No candidates were found for a 1.*[channel="https://h.example/c/"].'
    assert _conflict(text, "https://h.example/c::a=1").explanation == ("No candidates were found for a 1.*.",)


def test_conflict_over_the_assumed_driver_says_needed_and_assumed() -> None:
    """The cuda-version of a CUDA 12 build constrains the driver; nothing is missing from a channel."""
    text = """The following packages are incompatible
├─ __cuda * can be installed with any of the following options:
│  └─ __cuda 11.4
└─ pytorch ==2.6 *cuda* cannot be installed because there are no viable options:
   └─ pytorch 2.6.0 would require
      └─ cuda-version >=12.6,<13, which cannot be installed because there are no viable options:
         └─ cuda-version 12.6 would constrain
            └─ __cuda >=12, which conflicts with any installable versions previously reported
"""
    conflict = _conflict(text, "pytorch=2.6=*cuda*", virtual=(VirtualPackage("__cuda", "11.4"),))
    assert [spec.text for spec in conflict.specs] == ["pytorch=2.6=*cuda*"]
    assert conflict.hints == (
        "Needed of the machine is __cuda >=12, assumed is 11.4 for linux-64. If the nodes have it, "
        "give --cuda VERSION, or list it in a --virtual-packages file under subdirs.linux-64.packages.",
    )
