"""Every public environment file to its specs, to conda-lock's spec, and to the solver where it can."""

from __future__ import annotations

from pathlib import Path

import pytest

from envaudit.errors import EnvauditError
from envaudit.lock.condarc import Settings
from envaudit.lock.lockspec import conda_lock_spec
from envaudit.lock.names import TABLE
from envaudit.lock.solve import start_solving
from envaudit.lock.sourcefile import read_source
from envaudit.lock.spec import channels_for, specs_of
from envaudit.lock.virtual import virtual_packages

pytestmark = pytest.mark.corpus

CHANNELS = ("pytorch", "nvidia", "conda-forge")
FOLDERS = ("environments", "condalock_failures")

# What comes of each file: the number of packages of a platform, the specs at fault, the channels
# that corpus/channel does not have, or why it cannot be solved at all.
EXPECTED = {
    "condalock_failures/01-pip-pin-dropped.yml": "linux-64 at fault python=3.12.1",
    "condalock_failures/02-no-pip-two-platforms.yml": (
        "linux-64 at fault conda=25.7.0, pytest=8.4.1; "
        "linux-aarch64 at fault python=3.13, conda=25.7.0, pytest=8.4.1"
    ),
    "condalock_failures/03-pip-options-pre-extra-index.yml": "linux-64 29 packages",
    "condalock_failures/04-pip-r-requirements.yml": "refused: 'docs/requirements.txt' cannot be read",
    "condalock_failures/05-pip-find-links-pytorch3d.yml": "not here: pkgs/main, pkgs/r, fvcore, iopath",
    "condalock_failures/06-git-subdirectory-fragment.yml": "linux-64 28 packages",
    "condalock_failures/07-uppercase-pip-name.yml": "not here: pkgs/main, pkgs/r",
    "condalock_failures/08-dask-name-confusion.yml": "linux-64 at fault dask",
    "condalock_failures/09-pip-transitive-missing.yml": "linux-64 at fault python=3.12.7",
    "condalock_failures/10-cuda-from-other-os.yml": "linux-64 at fault cudatoolkit =11.0",
    "condalock_failures/11-channel-added-to-existing-lock.yml": "linux-64 at fault python=3.11",
    "condalock_failures/12-pip-dep-only-on-conda.yml": "linux-64 at fault adios_db",
    "condalock_failures/13-cu13-aarch64-needs-cuda-virtual-pkg.yml": (
        "linux-64 at fault cuda-version>=13.0; linux-aarch64 at fault python=3.12, pytorch>=2.10.0=cuda13*"
    ),
    "environments/01-stable-diffusion.yml": "not here: pkgs/main, pkgs/r",
    "environments/02-openfold.yml": "not here: bioconda",
    "environments/03-diffusion-policy-real.yml": "not here: pytorch3d",
    "environments/06-stylegan3.yml": (
        "linux-64 at fault python >= 3.8, pip, numpy>=1.20, click>=8.0, pillow=8.3.1, scipy=1.7.1, "
        "cudatoolkit=11.1, requests=2.26.0, tqdm=4.62.2, ninja=1.10.2, matplotlib=3.4.2, imageio=2.9.0"
    ),
    "environments/08-dit.yml": "linux-64 at fault python >= 3.8, torchvision, pip",
    "environments/09-dinov2-extras.yml": "not here: pkgs/main, pkgs/r, xformers",
    "environments/12-ilastik-dev.yml": "not here: ilastik-forge/label/patched-2, ilastik-forge",
    "environments/13-bertchen.yml": "linux-64 222 packages; osx-arm64 183 packages; win-64 213 packages",
    "environments/15-clay.yml": "linux-64 at fault python=3.11",
    "environments/16-pangeo-pytorch.yml": "linux-64 at fault jupyterlab-nvdashboard",
    "environments/17-raven-utf16.yml": "not here: pkgs/main, pkgs/r",
    "environments/18-aiops-winexport.yml": "not here: pkgs/main, pkgs/r",
    "environments/20-mic-prefix.yml": "not here: pkgs/main, pkgs/r",
    "environments/21-diffdock.yml": "not here: pyg, pkgs/main, pkgs/r",
    "environments/22-fairchem-gpu.yml": "not here: pkgs/main, pkgs/r",
    "environments/24-2dgs.yml": "not here: pkgs/main, pkgs/r",
    "environments/26-nam-gpu.yml": "not here: pkgs/main, pkgs/r",
    "environments/29-rfdiffusion.yml": "not here: pkgs/main, pkgs/r, dglteam",
    "environments/30-invokeai-lin-cuda.yml": "not here: pkgs/main, pkgs/r",
    "environments/34-karabo.yml": "not here: i4ds, nvidia/label/cuda-11.7.0",
    "environments/35-conda-empty-deps.yml": "not here: anaconda",
    "environments/36-conda-valid-keys.yml": "not here: anaconda",
    "environments/37-conda-channel-envvars.yml": "refused: the variable CONDA_TOKEN is not set",
    "environments/39-mamba-whitespace.yml": "linux-64 at fault numpy < 2.0, python > 3.11",
    "environments/40-condalock-selectors.yml": (
        "osx-arm64 at fault clang_osx-arm64; osx-64 at fault python <3.11, clang_osx-64; "
        "linux-64 at fault gcc_linux-64>=6"
    ),
    "environments/42-condalock-pip-url.yml": "linux-64 29 packages",
}


def _outcome(path: Path, corpus: Path, cache: Path) -> str:
    """What `EXPECTED` says of a file."""
    places = {name: ((corpus / "channel" / name).as_uri(),) for name in CHANNELS}
    settings = Settings(mirrored_channels=places, remote_max_retries=0)
    try:
        source = read_source(str(path))
        source.check()
        platforms = [each.text for each in source.platforms] or ["linux-64"]
        specs = {platform: specs_of([source], platform) for platform in platforms}
        every = [spec for wanted in specs.values() for spec in wanted]
        channels, _ = channels_for([each.text for each in source.channels], every, settings)
        conda_lock_spec([source], platforms, mapping_url=Path(TABLE).as_uri())
    except EnvauditError as error:
        return f"refused: {error.what.partition(' (')[0]}"
    absent = [channel.canonical for channel in channels if channel.canonical not in CHANNELS]
    if absent:
        return f"not here: {', '.join(absent)}"
    virtual = virtual_packages(cuda="12.6")
    with start_solving(specs, channels, settings, virtual, cache_dir=str(cache)) as solving:
        solution = solving.result()
    conflicts = {each.platform: ", ".join(spec.text for spec in each.specs) for each in solution.conflicts}
    return "; ".join(
        f"{platform} at fault {conflicts[platform]}"
        if platform in conflicts
        else f"{platform} {len(solution.records[platform])} packages"
        for platform in platforms
    )


def test_every_public_file_is_solved_or_told_why_not(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No file is left out, none ends in a traceback, and the whole table is printed."""
    monkeypatch.delenv("CONDA_TOKEN", raising=False)
    files = sorted(path for folder in FOLDERS for path in (corpus / folder).glob("*.yml"))
    found = {str(path.relative_to(corpus)): _outcome(path, corpus, tmp_path) for path in files}
    with capsys.disabled():
        print("\nWhat the solver makes of the public environment files:")
        for name, outcome in found.items():
            print(f"  {name:64} {outcome}")
    assert found == EXPECTED
