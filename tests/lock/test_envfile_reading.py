"""An environment.yml read whole: entries with their places, and every fault with its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from envaudit.errors import InputError
from tests.lock.envfiles import HEAD, faults_of, written

WHOLE = """\
name: train
channels:
  - pytorch
  - nodefaults
platforms: [linux-64, osx-arm64]
category: dev
variables:
  SEED: 1
dependencies:
  - python=3.10   # a comment
  - pytorch::pytorch=2.1.0  # CUDA [linux]
  - 'pip'
  - pip:
    - -r requirements.txt
    - torchdata==0.7
prefix: /opt/envs/train
"""


def test_file_is_read_with_the_place_of_everything(tmp_path: Path) -> None:
    """Line and column count from 1, a quoted text begins at its quote."""
    (tmp_path / "requirements.txt").write_text("# ours\n  einops>=0.7\n")
    source = written(tmp_path, WHOLE)
    assert [] == faults_of(source)
    assert [("pytorch", 3, 5), ("nodefaults", 4, 5)] == [
        (each.text, each.line, each.column) for each in source.channels
    ]
    assert [
        ("python", "=3.10", 10, 5, None),
        ("pytorch", "=2.1.0", 11, 5, "linux"),
        ("pip", "", 12, 5, None),
    ] == [(each.name, each.version, each.line, each.column, each.selector) for each in source.conda]
    assert [
        ("", 14, "environment.yml"),
        ("einops", 2, "requirements.txt"),
        ("torchdata", 15, "environment.yml"),
    ] == [(each.name, each.line, Path(each.path).name) for each in source.pip]
    assert ("dev", "train", "/opt/envs/train") == (source.category, source.name.text, source.prefix.text)  # type: ignore[union-attr]
    assert ["SEED"] == [name for name, _ in source.variables]
    assert ["linux-64", "osx-arm64"] == [each.text for each in source.platforms]


def test_entry_with_a_selector_counts_on_its_platforms_alone(tmp_path: Path) -> None:
    """`# [linux]` holds on all Linux platforms, a line without one everywhere."""
    source = written(tmp_path, HEAD + "  - a # [linux]\n  - b # [osx64]\n  - c # see (1) [linux]\n")
    assert ["a", "c"] == [each.name for each in source.entries("linux-64")]
    assert ["b"] == [each.name for each in source.entries("osx-64")]


def test_comment_with_a_bracket_before_parentheses_is_no_selector(tmp_path: Path) -> None:
    """As conda-lock has it."""
    source = written(tmp_path, HEAD + "  - a # only [linux] (or so)\n")
    assert [None] == [each.platforms for each in source.conda]


def test_file_in_utf16_is_read(tmp_path: Path) -> None:
    """PowerShell wrote it; conda cannot read it."""
    source = written(tmp_path, b"\xff\xfe" + (HEAD + "  - a\r\n").encode("utf-16-le"))
    assert ("utf-16-le", True, ["a"]) == (
        source.encoding,
        source.has_mark,
        [one.name for one in source.conda],
    )


def test_line_ends_that_only_yaml_counts_do_not_shift_selectors(tmp_path: Path) -> None:
    """A next-line character in a comment begins a line to YAML, and to nobody else."""
    source = written(tmp_path, HEAD + "  # a\x85\n  - a # [linux]\n  - b # [osx]\n")
    assert ["linux", "osx"] == [each.selector for each in source.conda]


def test_alias_is_read_as_what_it_stands_for(tmp_path: Path) -> None:
    """Anchors are YAML, and conda reads them."""
    source = written(tmp_path, "channels: [c]\ndependencies:\n  - &np numpy=1.26\n  - pip:\n    - *np\n")
    assert ["numpy"] == [each.name for each in source.conda]
    assert [(3, 5, "requirement")] == faults_of(source)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", (1, 1, "empty")),
        ("\n# nothing\n", (1, 1, "empty")),
        ("- a\n- b\n", (1, 1, "shape")),
        ("hello\n", (1, 1, "shape")),
        ("name: x\ndependencies:\n\t- a\n", (3, 1, "syntax")),
        ("dependencies:\n  - a\n \t- b\n", (3, 2, "syntax")),
        ("dependencies:\n  - a\t\n", (2, 6, "syntax")),
        ("dependencies: [a\n", (2, 1, "syntax")),
        ("dependencies: [a]\n---\ndependencies: [b]\n", (2, 1, "syntax")),
        ("[" * 5000, (1, 1001, "syntax")),
        (HEAD + "  - a\x07\n", (3, 1, "syntax")),
        (HEAD + "  - a\n\ufeff", (4, 1, "syntax")),
        ("dependencies: [a]\ndependencies: [b]\n", (2, 1, "duplicate")),
        ("dependencies:\n  python: 3.8\n", (2, 3, "shape")),
        ("dependencies: a\n", (1, 15, "shape")),
        ("dependencies: &a\n  - *a\n", (1, 15, "shape")),
        ("dependencies:\n", (1, 1, "nothing")),
        ("channels: [c]\n", (1, 1, "shape")),
        ("channels: c\ndependencies: [a]\n", (1, 11, "shape")),
        ("channels: [[c]]\ndependencies: [a]\n", (1, 12, "shape")),
        ("platforms: [linux]\ndependencies: [a]\n", (1, 13, "platform")),
        ("variables: [a]\ndependencies: [a]\n", (1, 12, "shape")),
        ("name: [a]\ndependencies: [a]\n", (1, 7, "shape")),
        ("chanels: [c]\ndependencies: [a]\n", (1, 1, "key")),
        ("base: &b {channels: [c]}\n<<: *b\ndependencies: [a]\n", (2, 1, "shape")),
        (HEAD + "  - 3.8\n", (3, 5, "shape")),
        (HEAD + "  - yes\n", (3, 5, "shape")),
        (HEAD + "  -\n", (3, 4, "shape")),
        (HEAD + "  - [a]\n", (3, 5, "shape")),
        (HEAD + "  - python: 3.8\n", (3, 5, "shape")),
        (HEAD + "  - !!python/object/apply:os.system ['id']\n", (3, 5, "shape")),
        (HEAD + "  - a b c d\n", (3, 5, "spec")),
        (HEAD + "  - a[x]\n", (3, 5, "ignored")),
        (HEAD + "  - a=${VERSION}\n", (3, 5, "template")),
        (HEAD + "  - a={{ version }}\n", (3, 7, "template")),
        (HEAD + "  - {{ a }}\n", (3, 5, "template")),
        (HEAD + "  {% if gpu %}\n  - a\n", (3, 3, "template")),
        (HEAD + "  - a # [not win]\n", (3, 5, "selector")),
        (HEAD + "  - a # see [1]\n", (3, 5, "selector")),
        (HEAD + "  - pip: a\n", (3, 10, "shape")),
        (HEAD + "  - pip:\n    - a: b\n", (4, 7, "shape")),
        (HEAD + "  - pip:\n    - 3.8\n", (4, 7, "shape")),
        (HEAD + "  - pip:\n    - a=1\n", (4, 7, "requirement")),
    ],
)  # fmt: skip
def test_text_that_is_no_environment_has_a_fault_at_its_place(
    tmp_path: Path, text: str, expected: tuple[int, int, str]
) -> None:
    """Never a traceback, and never silence."""
    assert expected in faults_of(written(tmp_path, text))


def test_project_file_is_told_for_what_it_is(tmp_path: Path) -> None:
    """conda-lock takes a pyproject.toml too, so people try it."""
    (fault,) = written(tmp_path, '[project]\nname = "train"\n', "pyproject.toml").faults
    assert ("TOML, where an environment file is YAML", True) == (
        fault.message,
        "environment.yml" in fault.next_step,
    )


def test_pip_section_beside_the_dependencies_is_told_where_it_belongs(tmp_path: Path) -> None:
    """Its lines are passed over without a word by conda, and by the lock."""
    (fault,) = written(tmp_path, "channels: [c]\ndependencies: [a]\npip: [torch]\n").faults
    assert ("key", True) == (fault.kind, "below 'dependencies:'" in fault.next_step)


def test_template_marks_in_a_comment_are_no_fault(tmp_path: Path) -> None:
    """Only what YAML sees counts."""
    assert [] == faults_of(written(tmp_path, HEAD + "  - a  # {{ version }}\n# {% if %}\n"))


def test_yaml_bomb_is_refused_at_once(tmp_path: Path) -> None:
    """Nine lists of nine: nobody expands them."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]\n"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)]
    source = written(tmp_path, "".join(lines) + "dependencies: *a11\n")
    assert "shape" in {kind for _, _, kind in faults_of(source)}
    assert len(source.faults) < 20


def test_faults_are_told_to_a_limit(tmp_path: Path) -> None:
    """A file that is no environment has a fault in every line."""
    source = written(tmp_path, HEAD + "  - =\n" * 500)
    assert (101, "400 further faults") == (len(source.faults), source.faults[-1].message)


def test_check_refuses_a_fatal_fault_with_place_and_advice(tmp_path: Path) -> None:
    """What `lock` says instead of solving for something else."""
    source = written(tmp_path, HEAD + "  - a=>1\n  - b\n  - b=>2\n")
    with pytest.raises(InputError) as refused:
        source.check()
    assert (
        f"{source.path}:3:5: 'a=>1' is no package: '=>1' is no version (and 1 more). "
        f"'envaudit lint {source.path}' tells all of it."
    ) == str(refused.value)


def test_check_passes_what_is_odd_but_can_be_locked(tmp_path: Path) -> None:
    """An unknown key is no reason to refuse."""
    written(tmp_path, "x: 1\n" + HEAD + "  - a[x]\n").check()


def test_refusal_does_not_show_a_credential(tmp_path: Path) -> None:
    """An error message ends in logs."""
    source = written(tmp_path, HEAD + "  - https://me:hunter2@host/c::a=>1\n")
    with pytest.raises(InputError) as refused:
        source.check()
    assert "hunter2" not in str(refused.value)
