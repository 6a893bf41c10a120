"""Which wheel an installer takes on a machine that is not here."""

from __future__ import annotations

import pytest

from envaudit.lock.wheels import best_wheel, platform_tags

URL = "https://files.example/"
WHEELS = [
    f"{URL}numpy-1.26.4-cp310-cp310-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
    f"{URL}numpy-1.26.4-cp310-cp310-manylinux_2_28_x86_64.whl",
    f"{URL}numpy-1.26.4-cp310-cp310-macosx_11_0_arm64.whl",
    f"{URL}numpy-1.26.4-cp311-cp311-manylinux_2_17_x86_64.whl",
    f"{URL}numpy-1.26.4-cp310-cp310-win_amd64.whl",
    f"{URL}numpy-1.26.4-py3-none-any.whl",
    f"{URL}no-wheel-name.whl",
]


@pytest.mark.parametrize(
    ("platform", "virtual", "python", "expected"),
    [
        ("linux-64", {"__glibc": "2.28"}, "3.10.14", 1),
        ("linux-64", {"__glibc": "2.17"}, "3.10.14", 0),
        ("linux-64", {}, "3.11.9", 3),
        ("linux-aarch64", {}, "3.10.14", 5),
        ("osx-arm64", {"__osx": "11.0"}, "3.10.14", 2),
        ("osx-64", {}, "3.10.14", 5),
        ("win-64", {}, "3.10.14", 4),
        ("linux-64", {}, "3.13.0", 5),
    ],
)
def test_wheel_with_the_most_specific_tag_is_taken(
    platform: str, virtual: dict[str, str], python: str, expected: int
) -> None:
    """For the target's interpreter, system and glibc, not for those of this machine."""
    assert WHEELS[expected] == best_wheel(WHEELS, python, platform_tags(platform, virtual))


def test_wheel_with_the_higher_build_number_is_taken() -> None:
    """As the specification of wheels has it."""
    wheels = [f"{URL}a-1.0-{build}-py3-none-any.whl" for build in ("2", "10")]
    assert wheels[1] == best_wheel(wheels, "3.10", platform_tags("linux-64", {}))


def test_wheels_that_fit_nothing_give_none() -> None:
    """Nothing is taken that would not run."""
    assert best_wheel(WHEELS[2:5], "3.10.14", platform_tags("linux-64", {})) is None


def test_platform_without_wheels_has_no_tags() -> None:
    """Zos, emscripten and the like."""
    assert [] == platform_tags("zos-z", {})
