"""One channel has one name, however its address was written."""

from __future__ import annotations

import pytest

from envaudit.probe.channels import canonical_channel


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("conda-forge", "conda-forge"),
        ("https://conda.anaconda.org/conda-forge", "conda-forge"),
        ("https://conda.anaconda.org/conda-forge/linux-64", "conda-forge"),
        ("https://conda.anaconda.org/conda-forge/noarch/", "conda-forge"),
        ("https://alice:pw@mirror.corp/t/tk-1/conda-forge/linux-64", "conda-forge"),
        ("https://mirror.edu/anaconda/cloud/pytorch/linux-64", "pytorch"),
        ("https://repo.anaconda.com/pkgs/main/linux-64", "pkgs/main"),
        ("http://mirror.edu:8080/anaconda/pkgs/main/linux-64", "pkgs/main"),
        ("https://conda.anaconda.org/nvidia/label/cuda-12.1.0/linux-64", "nvidia/label/cuda-12.1.0"),
        ("https://mirror.edu/nvidia/label/cuda-12.1.0/linux-64", "nvidia/label/cuda-12.1.0"),
        ("https://conda.anaconda.org/t/ab-12-cd/myteam/linux-aarch64", "myteam"),
        ("https://repo.prefix.dev/myteam/linux-64", "myteam"),
        ("https://art.corp/api/conda/private/linux-64", "art.corp/api/conda/private"),
        ("file:///srv/channel/linux-64", "file:/srv/channel"),
        ("pypi", "pypi"),
        ("", ""),
        ("https://", ""),
        ("https://conda.anaconda.org/", ""),
    ],
)
def test_address_of_a_channel_becomes_its_name(address: str, expected: str) -> None:
    """Mirror, token, user info, scheme and platform are no part of what a channel is."""
    assert expected == canonical_channel(address)
