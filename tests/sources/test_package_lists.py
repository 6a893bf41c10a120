"""pip freeze, pip inspect, conda list, explicit lists, exports."""

from __future__ import annotations

import pytest

from envaudit.errors import InputError
from tests.sources.samples import (
    CONDA_ENV_EXPORT,
    CONDA_EXPLICIT,
    CONDA_LIST,
    MD5,
    NVIDIA_SMI,
    PIP_FREEZE,
    PIP_INSPECT,
    SHA256,
    all_kinds,
    distributions,
    read,
    said,
)


def test_pip_freeze_says_versions_and_origins() -> None:
    """Without credentials; the file that conda or a user built from is no origin."""
    section = read(PIP_FREEZE)["packages"]
    url = "https://wheels.example/flash_attn-2.5.0%2Bcu12-cp311-cp311-linux_x86_64.whl"
    expected = {
        "own-tool": {"editable": True},
        "numpy": {"version": "1.26.4"},
        "typing-extensions": {"version": "4.9.0"},
        "flash-attn": {"version": "2.5.0+cu12", "direct_url": {"url": url}},
        "local-lib": {"version": "1.0"},
        "repo": {"editable": True, "commit": "0123456789012345678901234567890123456789"},
    }
    table = section.facts["distributions"]
    assert isinstance(table, dict)
    assert expected == {name: facts for name, facts in table.items() if facts is not None}


def test_pip_freeze_says_nothing_of_the_tools_that_it_leaves_out() -> None:
    """Null: neither there nor absent."""
    assert {"pip", "setuptools", "wheel", "distribute"} == {
        name for name, version in distributions(read("numpy==1.0\n")).items() if version is None
    }


@pytest.mark.parametrize(
    "comment",
    [
        "# Editable install with no version control (my.tool==0.1)\n",
        "# Editable Git install with no remote (my.tool==0.1)\n",
        "# Editable Git install (my.tool===0.1) with either a deleted local remote or ...:\n# '/gone'\n",
        "",
    ],
)
def test_pip_freeze_names_a_checkout_above_its_line(comment: str) -> None:
    """One without a name leaves the list open."""
    section = read(f"numpy==1.0\n{comment}-e /home/me/checkout\n")["packages"]
    assert comment == "" or {"editable": True} == section.facts["distributions"]["my-tool"]  # type: ignore[index]
    assert (("distributions",) if comment else ()) == section.whole
    assert ({} if comment else {"unnamed": 1}) == section.notes


@pytest.mark.parametrize("text", ["numpy>=1.0\n", "numpy==1.*\n", "numpy\n", "./dir\n", "-e .\n"])
def test_list_that_asks_is_no_pip_freeze(text: str) -> None:
    """It says what is wanted."""
    assert not all_kinds()["pip_freeze"].matches(text)


def test_pip_inspect_says_installers_origins_and_the_interpreter() -> None:
    """As PEP 610 has the origins."""
    sections = read(PIP_INSPECT)
    origin = {"url": "https://git.example/repo.git", "commit": "abc", "revision": "main"}
    assert {
        "numpy": {"version": "1.26.4", "installer": "pip"},
        "repo": {"version": "0.3", "installer": "pip", "direct_url": origin},
        "own": {"version": "1", "installer": None, "editable": True},
    } == sections["packages"].facts["distributions"]
    assert {"version": "3.11.7", "implementation": "cpython"} == sections["python"].facts
    assert {"architecture": "x86_64", "kernel": "6.1.0-18-amd64"} == sections["host"].facts


def test_pip_inspect_of_another_version_is_refused() -> None:
    """Its layout is not known."""
    with pytest.raises(InputError, match="version '2' of pip's report is not known"):
        read(PIP_INSPECT.replace('"version": "1",\n  "pip', '"version": "2",\n  "pip'))


def test_conda_list_parts_conda_from_pip() -> None:
    """The channel is that of the address, by its one name."""
    sections = read(CONDA_LIST)
    zlib = {"version": "1.3", "build": "h1234567_0", "channel": "conda-forge"}
    assert {"packages": {"zlib": zlib}} == sections["conda"].facts
    assert {"numpy": "1.26.4"} == said(sections)
    assert (("packages",), ()) == (sections["conda"].whole, sections["packages"].whole)


def test_explicit_list_says_builds_channels_and_hashes() -> None:
    """md5 or sha256 by its length; no token stays in what is kept."""
    section = read(CONDA_EXPLICIT)["conda"]
    forge = {"channel": "conda-forge"}
    assert {
        "zlib": {"version": "1.3", "build": "h1234567_0", "md5": MD5, **forge},
        "tzdata": {"version": "2024a", "build": "h0c530f3_0", "sha256": SHA256, **forge},
        "own-pkg": {"version": "1.0", "build": "0", "channel": "private"},
    } == section.facts["packages"]
    assert "TOKEN" not in str(section)


@pytest.mark.parametrize("line", ["/local/zlib.conda", "numpy=1.26", "https://x.example/zlib-1.3-0.conda"])
def test_explicit_list_with_a_line_of_another_form_is_refused(line: str) -> None:
    """Nothing is left out in silence."""
    with pytest.raises(InputError, match="line 8 is no address of a conda package"):
        read(f"{CONDA_EXPLICIT}{line}\n")


def test_env_export_says_name_place_packages_and_pip_part() -> None:
    """The channel where the line names it."""
    sections = read(CONDA_ENV_EXPORT)
    pytorch = {"version": "2.1.0", "build": "py3.11_cuda12.1_cudnn8.9.2_0", "channel": "pytorch"}
    assert {
        "name": "train",
        "prefix": "/opt/conda/envs/train",
        "packages": {"zlib": {"version": "1.3", "build": "h1234567_0"}, "pytorch": pytorch},
    } == sections["conda"].facts
    assert {"numpy": "1.26.4"} == said(sections)


def test_env_export_without_builds_is_told_by_its_prefix() -> None:
    """A hand-written file has none."""
    text = "name: a\ndependencies:\n  - zlib=1.3\nprefix: /opt/a\n"
    assert {"zlib": {"version": "1.3"}} == read(text)["conda"].facts["packages"]
    assert not all_kinds()["conda_env_export"].matches(text.replace("prefix: /opt/a\n", ""))


@pytest.mark.parametrize("line", ["numpy", "numpy>=1.20", "numpy=1.26.*", "{a: b}"])
def test_env_export_with_a_line_that_asks_is_refused(line: str) -> None:
    """An environment file is to be locked."""
    with pytest.raises(InputError, match=r"dependencies\[3\] is not exact.*envaudit lock"):
        read(CONDA_ENV_EXPORT.replace("prefix:", f"  - {line}\nprefix:"))


def test_nvidia_smi_says_driver_and_cards() -> None:
    """In NVML's words; what the kernel says is unknown."""
    facts = read(NVIDIA_SMI)["gpu"].facts
    assert ("550.54.15", "12.4", 1) == (facts["driver"], facts["cuda"], facts["count"])
    assert {"product": "NVIDIA L4", "memory_bytes": 23034 << 20} == facts["each"]
    assert "inventory" not in facts
