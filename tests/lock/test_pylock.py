"""Answers of uv: a pylock.toml, and pins with notes on who asked for them."""

from __future__ import annotations

import pytest

from envaudit.errors import NeededError
from envaudit.lock.pylock import PipPackage, read_edges, read_pins, read_pylock
from envaudit.lock.wheels import platform_tags

# PROVENANCE: hand-made after what uv 0.13 prints for such requirements; the files do not exist.
PINS = """adios-db @ file:///tmp/x/adios_db-1.0-py3-none-any.whl
    # via
    #   -c provided.txt
    #   -r requirements.in
certifi==2024.2.2
    # via requests
fsspec[http]==2024.2.0
    # via
    #   -r requirements.in
    #   lightning
Torch_Metrics==1.4.0
    # via -r requirements.in
requests==2.32.3
    # via
    #   -r requirements.in
    #   torch-metrics
"""
COMMIT = "0123456789" * 4
LOCK = f"""lock-version = "1.0"
created-by = "uv"

[[packages]]
name = "tqdm"
version = "4.66.1"
sdist = {{ url = "https://files.example/tqdm-4.66.1.tar.gz", hashes = {{ sha256 = "aa" }} }}
wheels = [
    {{ url = "https://files.example/tqdm-4.66.1-py3-none-any.whl", hashes = {{ sha256 = "bb" }} }},
    {{ url = "https://files.example/tqdm-4.66.1-cp310-cp310-win_amd64.whl", hashes = {{ sha256 = "cc" }} }},
]

[[packages]]
name = "apex"
vcs = {{ type = "git", url = "https://git.example/apex", commit-id = "{COMMIT}", subdirectory = "python" }}

[[packages]]
name = "old"
version = "1.0"
sdist = {{ url = "https://files.example/old-1.0.tar.gz", hashes = {{ sha256 = "dd" }} }}

[[packages]]
name = "direct"
version = "2.0"
archive = {{ url = "https://files.example/direct-2.0-py3-none-any.whl", hashes = {{ sha256 = "ee" }} }}

[[packages]]
name = "numpy"
version = "1.26.4"
archive = {{ path = "/tmp/x/numpy-1.26.4-py3-none-any.whl", hashes = {{ sha256 = "ff" }} }}
"""


def read(text: str) -> list[PipPackage]:
    """The packages for Python 3.10 on linux-64, where conda provides numpy."""
    edges = {"tqdm": ("numpy",)}
    tags = platform_tags("linux-64", {})
    return list(read_pylock(text, edges=edges, python="3.10.14", tags=tags, without=frozenset({"numpy"})))


def test_edges_are_read_from_the_notes_below_the_pins() -> None:
    """Names are normalised; files and options are no packages."""
    expected = {"requests": ("certifi",), "lightning": ("fsspec",), "torch-metrics": ("requests",)}
    assert expected == read_edges(PINS)


def test_pins_leave_out_what_has_a_url() -> None:
    """Its constraint says it already."""
    assert [
        "certifi==2024.2.2",
        "fsspec==2024.2.0",
        "Torch_Metrics==1.4.0",
        "requests==2.32.3",
    ] == read_pins(PINS)


def test_package_is_the_one_file_that_fits() -> None:
    """A wheel before a source archive; a repository at its commit; none that conda provides."""
    address = f"git+https://git.example/apex@{COMMIT}#subdirectory=python"
    expected = [
        PipPackage("apex", "0", address, None, (), is_direct=True, has_wheel=False),
        PipPackage("direct", "2.0", "https://files.example/direct-2.0-py3-none-any.whl", "ee", (), True),
        PipPackage("old", "1.0", "https://files.example/old-1.0.tar.gz", "dd", (), False, False),
        PipPackage("tqdm", "4.66.1", "https://files.example/tqdm-4.66.1-py3-none-any.whl", "bb", ("numpy",)),
    ]
    assert expected == read(LOCK)


def test_release_with_no_file_for_the_target_is_told() -> None:
    """It cannot be installed there."""
    wheel = '{ url = "https://files.example/a-1.0-cp310-cp310-win_amd64.whl", hashes = { sha256 = "cc" } }'
    with pytest.raises(NeededError) as raised:
        read(f'[[packages]]\nname = "a"\nversion = "1.0"\nwheels = [{wheel}]\n')
    assert "no file of a 1.0 fits Python 3.10.14 on the target" == raised.value.what


@pytest.mark.parametrize(
    "text", ["[", "packages = 1", '[[packages]]\nversion = "1.0"\n', '[[packages]]\nname = "a"\nvcs = 1\n']
)
def test_answer_of_another_form_is_told(text: str) -> None:
    """A newer uv may write something else."""
    with pytest.raises(NeededError) as raised:
        read(text)
    assert ("uv's answer cannot be read", "Update uv.") == (raised.value.what, raised.value.next_step)
