"""The pip section as uv reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from envaudit.lock.piplines import PipLines, pip_lines
from tests.lock.sources import source_of

COMMIT = "0123456789" * 4


def lines_of(folder: Path, *pip: str) -> PipLines:
    """Of a source with these lines in its pip section."""
    return pip_lines(source_of(folder, "python", pip=pip).pip)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("tqdm==4.66.1", "tqdm==4.66.1"),
        (f"git+https://git.example/a.git@{COMMIT}", f"git+https://git.example/a.git@{COMMIT}"),
        (
            f"git+https://git.example/a.git@{COMMIT}#egg=a&subdirectory=python",
            f"a @ git+https://git.example/a.git@{COMMIT}#subdirectory=python",
        ),
        (
            f"-e git+https://git.example/a.git@{COMMIT}#egg=a",
            f"a @ git+https://git.example/a.git@{COMMIT}",
        ),
        (
            f"a[x] @ git+https://git.example/a.git@{COMMIT}",
            f"a[x] @ git+https://git.example/a.git@{COMMIT}",
        ),
        (
            "a @ https://files.example/a-1.0-py3-none-any.whl",
            "a @ https://files.example/a-1.0-py3-none-any.whl",
        ),
    ],
)
def test_requirement_is_given_to_uv_in_a_form_that_it_takes(tmp_path: Path, line: str, expected: str) -> None:
    """A repository has its name before the address; an editable one is pinned like the rest."""
    assert ((expected,), ()) == lines_of(tmp_path, f"'{line}'")[:2]


def test_local_path_is_left_out(tmp_path: Path) -> None:
    """No lock can hold what lies on one machine; lint says so with its line."""
    assert PipLines((), (), False) == lines_of(tmp_path, "-e .", "./submodules/knn")


def test_options_that_decide_what_is_resolved_are_passed_on(tmp_path: Path) -> None:
    """Several on a line too; paths count from the file that has the line."""
    (tmp_path / "constraints.txt").write_text("tqdm<5\n")
    lines = lines_of(
        tmp_path,
        "--extra-index-url https://a.example/simple --trusted-host a.example",
        "-f wheels",
        "-f https://b.example/list.html",
        "-c constraints.txt",
        "--pre",
        "--no-index",
    )
    expected = (
        "--extra-index-url https://a.example/simple",
        f"--find-links {tmp_path}/wheels",
        "--find-links https://b.example/list.html",
        f"-c {tmp_path}/constraints.txt",
        "--no-index",
    )
    assert (expected, True) == (lines.options, lines.prerelease)


def test_included_lines_stand_in_the_place_of_their_include(tmp_path: Path) -> None:
    """`-r requirements.txt` itself is not passed on."""
    (tmp_path / "requirements.txt").write_text("tqdm\nwandb>=0.16\n")
    assert (("tqdm", "wandb>=0.16"), ()) == lines_of(tmp_path, "-r requirements.txt")[:2]


def test_repositories_of_conda_lock_are_indexes(tmp_path: Path) -> None:
    """The key `pip-repositories` of its own."""
    lines = pip_lines((), ["https://a.example/simple"])
    assert ("--extra-index-url https://a.example/simple",) == lines.options


def test_default_index_does_not_count_where_the_source_says_so() -> None:
    """`allow-pypi-requests: false`: a name of the company's own must not come from elsewhere."""
    repositories = ["https://a.example/simple", "https://b.example/simple"]
    expected = ("--index-url https://a.example/simple", "--extra-index-url https://b.example/simple")
    assert expected == pip_lines((), repositories, default_index=False).options
    assert ("--no-index",) == pip_lines((), default_index=False).options
