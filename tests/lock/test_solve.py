"""Solving against real channels on this machine: what comes out, under which names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from envaudit.errors import InputError, NeededError, UsageError
from envaudit.lock.condarc import DEFAULT_ALIAS, Settings
from envaudit.lock.solve import Solution, start_solving
from envaudit.lock.spec import channels_for, spec_of
from envaudit.lock.virtual import virtual_packages
from tests.lock.channel import LocalChannel, build_channel, served

CORPUS = Path(__file__).resolve().parents[3] / "shared" / "corpus" / "channel"


def _solve(
    texts: Sequence[str],
    names: Sequence[str],
    folder: Path,
    *,
    platforms: Sequence[str] = ("linux-64",),
    settings: Settings | None = None,
    cuda: str = "12.6",
    **options: Any,
) -> Solution:
    settings = settings or Settings(remote_max_retries=0)
    specs = [spec_of(text, f"environment.yml:{line}:5") for line, text in enumerate(texts, 3)]
    channels, _ = channels_for(names, specs, settings)
    wanted = dict.fromkeys(platforms, specs)
    virtual = virtual_packages(cuda=cuda)
    with start_solving(wanted, channels, settings, virtual, cache_dir=str(folder), **options) as solving:
        return solving.result()


def _versions(solution: Solution, platform: str = "linux-64") -> dict[str, str]:
    return {record.name: record.version for record in solution.records[platform]}


class _Told:
    """Remembers what a solve said of itself."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, str]] = []

    def phase(self, platform: str, phase: str, detail: str) -> None:
        self.lines.append((platform, phase, detail))


def test_solve_of_one_platform_gives_whole_records_by_name(
    train_channel: LocalChannel, tmp_path: Path
) -> None:
    """What a lock needs of each package is there, and the order is that of the names."""
    told = _Told()
    solution = _solve(["python=3.10", "numpy=1.26"], [train_channel.url], tmp_path, progress=told)
    records = solution.records["linux-64"]
    assert [record.name for record in records] == sorted(record.name for record in records)
    numpy = next(record for record in records if record.name == "numpy")
    assert (numpy.version, numpy.build, numpy.subdir) == ("1.26.4", "py310hb13e2d6_0", "linux-64")
    assert numpy.url == f"{train_channel.url}/linux-64/numpy-1.26.4-py310hb13e2d6_0.conda"
    assert len(numpy.sha256 or "") == 64
    assert any(need.startswith("python ") for need in numpy.depends)
    assert told.lines == [
        ("", "channels", f"1/1 {train_channel.url}"),
        ("linux-64", "solve", ""),
        ("linux-64", "done", f"{len(records)} packages"),
    ]


def test_solve_with_two_specs_of_one_name_satisfies_both(train_channel: LocalChannel, tmp_path: Path) -> None:
    """`numpy>=1.25` and `numpy<2` leave 1.26.4 between 1.24.4 and 2.0.1."""
    solution = _solve(["numpy>=1.25", "numpy<2"], [train_channel.url], tmp_path)
    assert _versions(solution)["numpy"] == "1.26.4"


@pytest.mark.parametrize(("add_pip", "expected"), [(True, True), (False, False)])
def test_solve_of_python_brings_pip_as_the_user_has_it(
    train_channel: LocalChannel, tmp_path: Path, add_pip: bool, expected: bool
) -> None:
    """As conda does: pip comes with python, unless the settings say otherwise."""
    solution = _solve(["python"], [train_channel.url], tmp_path, settings=Settings(add_pip=add_pip))
    assert ("pip" in _versions(solution)) is expected


def test_solve_staying_with_a_lock_moves_only_what_is_left_out(
    train_channel: LocalChannel, tmp_path: Path
) -> None:
    """The update of one package: the rest keeps its versions, and pip is not lost."""
    old = _solve(["python=3.10.13", "numpy=1.24", "pip"], [train_channel.url], tmp_path).records["linux-64"]
    kept = [record for record in old if record.name != "numpy"]
    solution = _solve(["python", "numpy"], [train_channel.url], tmp_path, locked={"linux-64": kept})
    expected = {record.name: record.version for record in old} | {"numpy": "2.0.1"}
    assert _versions(solution) == expected


def test_solve_behind_a_mirror_names_the_canonical_channel(
    train_channel: LocalChannel, tmp_path: Path
) -> None:
    """Fetched from a folder, named as everyone else knows it."""
    settings = Settings(mirrored_channels={"https://conda.example/train": (train_channel.url,)})
    solution = _solve(["numpy"], ["https://conda.example/train"], tmp_path, settings=settings)
    record = next(record for record in solution.records["linux-64"] if record.name == "numpy")
    assert record.channel == "https://conda.example/train"
    assert record.url.startswith("https://conda.example/train/linux-64/numpy-")


@pytest.mark.parametrize("how", ["path", "URL", "mirror"])
def test_solve_from_a_folder_with_a_strange_name_finds_its_way(
    train_channel: LocalChannel, tmp_path: Path, how: str
) -> None:
    """Spaces and other letters are written another way in a URL, by some."""
    folder = tmp_path / "ein Kanal für µ"
    folder.symlink_to(train_channel.folder)
    name = {"path": str(folder), "URL": f"file://{folder}", "mirror": "train"}[how]
    settings = Settings(mirrored_channels={"train": (str(folder),)})
    records = _solve(["numpy"], [name], tmp_path / "cache", settings=settings).records["linux-64"]
    if how == "mirror":
        assert {record.url.rpartition("/linux-64/")[0] for record in records if record.name == "numpy"} == {
            f"{DEFAULT_ALIAS}/train"
        }
    else:
        assert all(record.url.startswith(folder.as_uri() + "/") for record in records)


def test_solve_with_a_mirror_that_is_down_takes_the_next(channels_root: Path, tmp_path: Path) -> None:
    """Mirrors are tried in the order of the settings."""
    with served(channels_root) as server:
        settings = Settings(
            mirrored_channels={"train": ("http://127.0.0.1:1/train", f"{server.url}/train")},
            remote_max_retries=0,
        )
        solution = _solve(["numpy"], ["train"], tmp_path, settings=settings)
    assert {record.channel for record in solution.records["linux-64"]} == {"train"}


@pytest.mark.parametrize("kind", ["token", "password"])
def test_solve_with_credentials_in_variables_names_the_variables(
    channels_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The server asks for them, and the records never hold them."""
    monkeypatch.setenv("CHANNEL_USER", "me")
    monkeypatch.setenv("CHANNEL_SECRET", "tk-0815")
    options = {"token": "tk-0815"} if kind == "token" else {"password": "me:tk-0815"}
    with served(channels_root, **options) as server:
        host = server.url.removeprefix("http://")
        name = {
            "token": f"http://{host}/t/${{CHANNEL_SECRET}}/train",
            "password": f"http://${{CHANNEL_USER}}:${{CHANNEL_SECRET}}@{host}/train",
        }[kind]
        solution = _solve(["numpy"], [name], tmp_path)
    records = solution.records["linux-64"]
    assert {record.channel for record in records} == {name}
    assert all(record.url.startswith(name + "/") for record in records)
    assert "tk-0815" not in repr(solution)


@pytest.mark.parametrize(
    ("priority", "expected"), [("strict", "2.0.1"), ("flexible", "2.0.1"), ("disabled", "2.1.0")]
)
def test_solve_by_priority_takes_the_first_channel_or_the_highest_version(
    channels_root: Path, tmp_path: Path, priority: str, expected: str
) -> None:
    """Both channels have numpy, the second one a later version."""
    names = [(channels_root / name).as_uri() for name in ("train", "extra")]
    solution = _solve(["numpy", "python=3.10"], names, tmp_path, priority=priority)
    assert (_versions(solution)["numpy"], solution.helped) == (expected, {})


def test_solve_by_flexible_priority_lets_a_lower_channel_help(channels_root: Path, tmp_path: Path) -> None:
    """Only the second channel has numpy 2.1: strict refuses and says so, flexible takes it and says so."""
    names = [(channels_root / name).as_uri() for name in ("train", "extra")]
    flexible = _solve(["numpy=2.1"], names, tmp_path)
    assert (_versions(flexible)["numpy"], flexible.helped) == ("2.1.0", {"linux-64": ("numpy",)})
    (conflict,) = _solve(["numpy=2.1"], names, tmp_path, priority="strict").conflicts
    assert [spec.text for spec in conflict.specs] == ["numpy=2.1"]
    assert any("channel_priority: flexible" in hint for hint in conflict.hints)


def test_solve_by_flexible_priority_opens_the_lower_channel_for_what_is_missing_alone(tmp_path: Path) -> None:
    """The first channel lacks `a 2` and what that needs; its own `c` stays before the later one."""
    recipe = {"subdir": "noarch", "noarch": "generic", "format": "conda", "number": 0, "build": "0"}
    offers: dict[str, list[tuple[str, str, list[str]]]] = {
        "first": [("a", "1.0", []), ("b", "1.0", []), ("c", "1.0", [])],
        "second": [("a", "2.0", ["b >=2"]), ("b", "2.0", ["c"]), ("c", "2.0", [])],
    }
    urls = [
        build_channel(
            tmp_path / channel,
            more=[
                (name, {**recipe, "version": version, "depends": depends})
                for name, version, depends in packages
            ],
            recipes=False,
        ).url
        for channel, packages in offers.items()
    ]
    solution = _solve(["a=2"], urls, tmp_path / "cache")
    assert _versions(solution) == {"a": "2.0", "b": "2.0", "c": "1.0"}
    assert solution.helped == {"linux-64": ("a", "b")}
    assert _versions(_solve(["a=2"], urls, tmp_path / "cache", priority="disabled"))["c"] == "2.0"


def test_solve_of_a_spec_with_its_channel_takes_it_from_there(channels_root: Path, tmp_path: Path) -> None:
    """`channel::package` counts over every priority, also for a channel that is not listed."""
    train, extra = ((channels_root / name).as_uri() for name in ("train", "extra"))
    solution = _solve([f"{extra}::numpy", "python=3.10"], [train], tmp_path, priority="strict")
    assert {record.channel for record in solution.records["linux-64"] if record.name == "numpy"} == {extra}


def test_solve_of_a_multichannel_gives_its_members_one_priority(channels_root: Path, tmp_path: Path) -> None:
    """Under strict priority a later version in the second member still wins."""
    members = tuple((channels_root / name).as_uri() for name in ("train", "extra"))
    settings = Settings(custom_multichannels={"ours": members}, channel_priority="strict")
    solution = _solve(["numpy", "python=3.10"], ["ours"], tmp_path, settings=settings)
    assert _versions(solution)["numpy"] == "2.1.0"


def test_solve_without_cuda_takes_the_build_that_needs_none(
    train_channel: LocalChannel, tmp_path: Path
) -> None:
    """The virtual packages decide which build of pytorch there is."""
    builds = {
        cuda: next(
            record.build
            for record in _solve(["pytorch=2.6"], [train_channel.url], tmp_path, cuda=cuda).records[
                "linux-64"
            ]
            if record.name == "pytorch"
        )
        for cuda in ("12.6", "none")
    }
    assert ("cuda" in builds["12.6"], "cuda" in builds["none"]) == (True, False)


def test_solve_where_nothing_is_possible_names_the_specs_and_the_nearest_name(
    train_channel: LocalChannel, tmp_path: Path
) -> None:
    """Two names that no channel has, beside one that is fine."""
    (conflict,) = _solve(["python", "openssh-client", "torch"], [train_channel.url], tmp_path).conflicts
    assert [(spec.text, spec.where) for spec in conflict.specs] == [
        ("openssh-client", "environment.yml:4:5"),
        ("torch", "environment.yml:5:5"),
    ]
    assert conflict.hints == (
        "No channel has 'openssh-client' for linux-64; did you mean 'openssh'?",
        "No channel has 'torch' for linux-64; did you mean 'pytorch'?",
    )


def test_solve_of_a_version_that_is_not_there_tells_which_are(
    train_channel: LocalChannel, tmp_path: Path
) -> None:
    """A typing error in a version is the usual cause."""
    (conflict,) = _solve(["numpy>=99"], [train_channel.url], tmp_path).conflicts
    assert conflict.explanation == ("No candidates were found for numpy >=99.",)
    assert conflict.hints == ("Of numpy the channels have 1.24.4 to 2.0.1 for linux-64.",)


def test_solve_of_a_build_that_is_not_there_tells_which_are(
    train_channel: LocalChannel, tmp_path: Path
) -> None:
    """An export of another platform has builds that this one never had."""
    (conflict,) = _solve(["numpy=1.26.4=py39haa95532_0"], [train_channel.url], tmp_path).conflicts
    assert conflict.hints == (
        "Of numpy in that version the channels have other builds for linux-64: "
        "py310hb13e2d6_0, py311h64a7726_0.",
    )


def test_solve_of_specs_that_contradict_each_other_names_both(
    train_channel: LocalChannel, tmp_path: Path
) -> None:
    """The two are named, not what hangs below them."""
    (conflict,) = _solve(["python=3.10", "python=3.11", "numpy"], [train_channel.url], tmp_path).conflicts
    assert [spec.text for spec in conflict.specs] == ["python=3.10", "python=3.11"]
    assert conflict.explanation[0] == "The following packages are incompatible"


def test_solve_that_fails_on_one_platform_keeps_the_other(
    train_channel: LocalChannel, tmp_path: Path
) -> None:
    """The channel has nothing for this platform, and that is what is said."""
    solution = _solve(["numpy"], [train_channel.url], tmp_path, platforms=("linux-aarch64", "linux-64"))
    assert list(solution.records) == ["linux-64"]
    (conflict,) = solution.conflicts
    assert conflict.platform == "linux-aarch64"
    assert conflict.hints == (f"None of the channels ({train_channel.url}) has packages for linux-aarch64.",)


def test_solve_offline_works_from_the_index_that_was_read_before(channels_root: Path, tmp_path: Path) -> None:
    """The channel is gone, its index is still in the cache."""
    with served(channels_root) as server:
        name = f"{server.url}/train"
        first = _solve(["numpy"], [name], tmp_path)
    assert _solve(["numpy"], [name], tmp_path, offline=True).records == first.records


def test_solve_offline_without_an_index_says_so(tmp_path: Path) -> None:
    """Nothing is fetched behind the user's back."""
    with pytest.raises(NeededError, match="no index of it in the cache"):
        _solve(["numpy"], ["http://127.0.0.1:1/train"], tmp_path, offline=True)


def test_solve_of_nothing_is_an_empty_environment(train_channel: LocalChannel, tmp_path: Path) -> None:
    """A file with an empty list of dependencies is a file."""
    assert _solve([], [train_channel.url], tmp_path).records == {"linux-64": ()}


def test_solve_twice_gives_the_same(train_channel: LocalChannel, tmp_path: Path) -> None:
    """A lock made twice is one lock."""
    first, second = (_solve(["pytorch", "numpy"], [train_channel.url], tmp_path) for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"platforms": ("linux-65",)}, UsageError, "unknown platform 'linux-65'"),
        ({"priority": "sometimes"}, UsageError, "channel priority 'sometimes'"),
    ],
)
def test_solve_with_a_senseless_option_is_refused(
    train_channel: LocalChannel, tmp_path: Path, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    """Before any process is started."""
    with pytest.raises(error, match=words):
        _solve(["numpy"], [train_channel.url], tmp_path, **options)


def test_solve_of_a_spec_that_only_the_solver_refuses_names_its_place(
    train_channel: LocalChannel, tmp_path: Path
) -> None:
    """Our own reading of specs lets pass what looks right."""
    with pytest.raises(InputError, match=r"^environment.yml:3:5: 'numpy=1.2.\*.3' is no package spec"):
        _solve(["numpy=1.2.*.3"], [train_channel.url], tmp_path)


def test_solving_that_is_left_early_ends_its_process(train_channel: LocalChannel, tmp_path: Path) -> None:
    """Ctrl-C leaves nothing behind."""
    specs = {"linux-64": [spec_of("numpy")]}
    channels, _ = channels_for([train_channel.url], specs["linux-64"], Settings())
    with start_solving(specs, channels, Settings(), virtual_packages(), cache_dir=str(tmp_path)) as solving:
        pass
    assert solving._process.returncode is not None


@pytest.mark.corpus
def test_solve_of_real_metadata_gives_the_gpu_build(tmp_path: Path) -> None:
    """PyTorch 2.1 with CUDA 11.8 and all it needs, as a public lock has it."""
    if not CORPUS.is_dir():
        pytest.skip("../shared/corpus/channel is absent")
    settings = Settings(
        mirrored_channels={name: ((CORPUS / name).as_uri(),) for name in ("pytorch", "nvidia", "conda-forge")}
    )
    names = ["pytorch", "nvidia", "conda-forge"]
    solution = _solve(["python=3.10", "pytorch=2.1.0"], names, tmp_path, settings=settings, cuda="11.8")
    records = {record.name: record for record in solution.records["linux-64"]}
    assert (len(records), records["pytorch"].build) == (80, "py3.10_cuda11.8_cudnn8.7.0_0")
    assert records["pytorch"].channel == "pytorch"
