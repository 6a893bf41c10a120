"""What the solver is asked for, and what conda-lock is given to hash."""

from __future__ import annotations

from pathlib import Path

import pytest

from envaudit.errors import InputError, UsageError
from envaudit.lock.condarc import Settings
from envaudit.lock.lockspec import conda_lock_spec
from envaudit.lock.names import TABLE
from envaudit.lock.sourcefile import SourceFile, read_source
from envaudit.lock.spec import Spec, channels_for, spec_of, specs_of, tied_to

MAPPING = Path(TABLE).as_uri()


def _source(path: Path, text: str, encoding: str = "utf-8") -> SourceFile:
    path.write_bytes(text.encode(encoding))
    return read_source(str(path))


@pytest.mark.parametrize(
    ("text", "name", "bare", "channel", "subdir"),
    [
        ("numpy>=1.20", "numpy", "numpy>=1.20", "", ""),
        ("PyYAML", "pyyaml", "PyYAML", "", ""),
        ("pytorch::pytorch=2.1.0", "pytorch", "pytorch=2.1.0", "pytorch", ""),
        ("conda-forge/linux-64::zlib", "zlib", "zlib", "conda-forge", "linux-64"),
        ("nvidia/label/cuda-11.7.0::cuda", "cuda", "cuda", "nvidia/label/cuda-11.7.0", ""),
        ("https://h.example/c::a 1.*", "a", "a 1.*", "https://h.example/c", ""),
        ("a[channel=pytorch]", "a", "a", "pytorch", ""),
        ("a[version='>=1', channel='pytorch']", "a", "a[version='>=1']", "pytorch", ""),
        ("pyuvdata[casa]", "pyuvdata", "pyuvdata", "", ""),
        ("https://h.example/c/linux-64/a-1.0-0.conda", "a", "a ==1.0 0", "https://h.example/c", "linux-64"),
        (
            f"file:///c/noarch/a-1-0.conda#{'0F' * 16}",
            "a",
            f"a ==1 0[md5={'0f' * 16}]",
            "file:///c",
            "noarch",
        ),
        (f"c://h/a-1-0.conda#sha256:{'1' * 64}", "a", f"a ==1 0[sha256={'1' * 64}]", "c://h", ""),
        ("c://h/a-1-0.conda#note", "a", "a ==1 0", "c://h", ""),
    ],
)
def test_spec_of_a_text_knows_its_name_and_channel(
    text: str, name: str, bare: str, channel: str, subdir: str
) -> None:
    """All the forms in which people tie a package to a channel."""
    assert spec_of(text, "e.yml:7:5") == Spec(text, name, bare, "e.yml:7:5", channel, subdir)


@pytest.mark.parametrize("text", ["", "-e .", ">=1", "a =="])
def test_spec_of_what_is_none_names_the_place(text: str) -> None:
    """Nothing reaches the solver that it would read as something else."""
    with pytest.raises(InputError, match=r"^e\.yml:7:5: "):
        spec_of(text, "e.yml:7:5")


def test_specs_of_a_file_keep_both_of_one_name(tmp_path: Path) -> None:
    """`numpy>=1.20` and `numpy<2` together, where conda-lock keeps the last."""
    source = _source(tmp_path / "e.yml", "dependencies:\n  - numpy>=1.20\n  - numpy<2\n")
    assert [spec.text for spec in specs_of([source], "linux-64")] == ["numpy>=1.20", "numpy<2"]


def test_specs_of_a_file_follow_its_selectors(tmp_path: Path) -> None:
    """A line for another platform does not count."""
    source = _source(tmp_path / "e.yml", "dependencies:\n  - a  # [linux]\n  - b  # [osx]\n  - d\n")
    assert [spec.text for spec in specs_of([source], "linux-64")] == ["a", "d"]
    assert [spec.text for spec in specs_of([source], "osx-arm64")] == ["b", "d"]


@pytest.mark.parametrize(("conda", "expected"), [("python", ["python", "pip"]), ("pip=24.0", ["pip=24.0"])])
def test_specs_of_a_file_with_a_pip_section_ask_for_pip_once(
    tmp_path: Path, conda: str, expected: list[str]
) -> None:
    """A pin of pip stays a pin: conda-lock makes `pip *` of it."""
    source = _source(tmp_path / "e.yml", f"dependencies:\n  - {conda}\n  - pip:\n    - six\n")
    assert [spec.text for spec in specs_of([source], "linux-64")] == expected


def test_channels_of_specs_alone_come_last_and_are_told() -> None:
    """A lock must list them, or it cannot be read back."""
    specs = [spec_of("pytorch::pytorch"), spec_of("numpy"), spec_of("conda-forge::zlib")]
    channels, extra = channels_for(["conda-forge"], specs, Settings())
    assert [channel.canonical for channel in channels] == ["conda-forge", "pytorch"]
    assert [channel.canonical for channel in extra] == ["pytorch"]
    assert [tied_to(spec, channels, Settings()) for spec in specs] == [1, None, 0]


def test_spec_of_a_multichannel_is_tied_to_the_group() -> None:
    """`defaults::numpy` may come from any member."""
    spec = spec_of("defaults::numpy")
    channels, _ = channels_for(["defaults"], [spec], Settings())
    assert tied_to(spec, channels, Settings()) == "defaults"


def test_conda_locks_spec_keeps_what_conda_lock_keeps(tmp_path: Path) -> None:
    """The hash must be the one that conda-lock itself finds: the last spec of a name, and `pip *`."""
    source = _source(
        tmp_path / "e.yml",
        "channels: [conda-forge]\n"
        "dependencies:\n  - numpy>=1.20\n  - numpy<2\n  - pip=24.0\n  - pip: [six]\n",
    )
    spec = conda_lock_spec([source], ["linux-64"], mapping_url=MAPPING)
    found = [(each.manager, each.name, each.version) for each in spec.dependencies["linux-64"]]
    assert found == [("conda", "numpy", "<2"), ("conda", "pip", "*"), ("pip", "six", "*")]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_conda_locks_spec_of_another_encoding_is_that_of_the_same_text(tmp_path: Path, encoding: str) -> None:
    """A file that went through PowerShell hashes as the one it was before."""
    text = "channels: [conda-forge]\ncategory: dev\n"
    text += "dependencies:\n  - numpy=1.26  # [linux]\n  - pip: ['six>=1']\n"
    specs = [
        conda_lock_spec([_source(tmp_path / name, text, how)], ["linux-64"], mapping_url=MAPPING)
        for name, how in (("a.yml", "utf-8"), ("b.yml", encoding))
    ]
    assert specs[0].dependencies == specs[1].dependencies
    assert specs[0].channels == specs[1].channels
    assert [str(path) for path in specs[1].sources] == [str(tmp_path / "b.yml")]


def test_conda_locks_spec_of_option_lines_and_paths_leaves_them_out(tmp_path: Path) -> None:
    """conda-lock raises at them; what has a name goes in, from included files too."""
    (tmp_path / "r.txt").write_text("wandb\n")
    source = _source(
        tmp_path / "e.yml",
        "dependencies:\n  - pip:\n    - --pre\n    - -r r.txt\n    - ./local\n"
        "    - git+https://h.example/g/tool.git@0123456789012345678901234567890123456789#subdirectory=py\n"
        "    - apex[cpp]@ https://h.example/apex-1.0-py3-none-any.whl\n"
        "    - https://h.example/flash_attn-2.5.0-py3-none-any.whl\n    - https://h.example/master.zip\n",
    )
    spec = conda_lock_spec([source], ["linux-64"], mapping_url=MAPPING)
    assert [each.name for each in spec.dependencies["linux-64"] if each.manager == "pip"] == [
        "wandb",
        "tool",
        "apex",
        "flash-attn",
    ]


def test_conda_locks_spec_of_files_with_other_channels_is_refused(tmp_path: Path) -> None:
    """Nobody can say which channel comes first; each file is told with its own, in the user's words."""
    sources = [
        _source(tmp_path / f"{name}.yml", f"channels: [{name}]\ndependencies: [a]\n") for name in ("x", "y")
    ]
    with pytest.raises(UsageError, match="do not agree on their channels") as raised:
        conda_lock_spec(sources, ["linux-64"], mapping_url=MAPPING)
    assert f"({tmp_path}/x.yml: x; {tmp_path}/y.yml: y)" in str(raised.value)
