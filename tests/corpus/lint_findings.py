"""What `envaudit lint` says to each public input, read against what the file holds.

PROVENANCE: line, column and rule only, of the files that ../shared/corpus/INDEX.md and
condalock_failures/README.md describe. An input without findings is one that must pass: what goes
wrong with it elsewhere comes after the reading (see `AFTER_READING`).
"""

from __future__ import annotations


class Expected:
    """How many entries a file has for conda and for pip, and the findings as `line:column rule`."""

    def __init__(self, conda: int, pip: int, *findings: str) -> None:
        self.conda = conda
        self.pip = pip
        self.findings = findings


EXPECTED = {
    "environments/01-stable-diffusion.yml": Expected(6, 19, "29:7 EA024", "30:7 EA024", "31:7 EA025"),
    "environments/02-openfold.yml": Expected(28, 4, "8:5 EA030", "39:9 EA024"),
    "environments/03-diffusion-policy-real.yml": Expected(
        43, 15, "59:7 EA026", "65:7 EA026", "69:7 EA027", "70:7 EA026"
    ),
    "environments/06-stylegan3.yml": Expected(13, 5),
    "environments/08-dit.yml": Expected(4, 3, "10:5 EA021"),
    "environments/09-dinov2-extras.yml": Expected(10, 5, "7:5 EA014", "20:7 EA024", "21:7 EA023"),
    "environments/12-ilastik-dev.yml": Expected(50, 0, "57:5 EA030"),
    "environments/13-bertchen.yml": Expected(25, 4, "15:5 EA009"),
    "environments/15-clay.yml": Expected(2, 14, "10:7 EA023"),
    "environments/16-pangeo-pytorch.yml": Expected(6, 0),
    "environments/17-raven-utf16.yml": Expected(17, 62, "1:1 EA005", "6:5 EA012"),
    "environments/18-aiops-winexport.yml": Expected(39, 44, "7:5 EA012"),
    "environments/20-mic-prefix.yml": Expected(56, 202, "158:7 EA028", "252:7 EA027", "265:9 EA011"),
    "environments/21-diffdock.yml": Expected(
        6, 22, "7:5 EA014", "19:7 EA023", "20:7 EA023", "22:7 EA024", "31:7 EA010", "38:5 EA020"
    ),
    "environments/22-fairchem-gpu.yml": Expected(15, 13, "5:3 EA014", "16:7 EA023", "27:7 EA028"),
    "environments/24-2dgs.yml": Expected(8, 10, "6:5 EA014", "12:5 EA030", "23:7 EA025", "24:7 EA025"),
    "environments/26-nam-gpu.yml": Expected(18, 6, "10:5 EA014", "24:5 EA030", "39:9 EA025"),
    "environments/29-rfdiffusion.yml": Expected(7, 2, "4:5 EA014"),
    "environments/30-invokeai-lin-cuda.yml": Expected(
        7, 36, "5:5 EA014", "45:7 EA024", "46:7 EA024", "47:7 EA024", "48:7 EA024", "49:7 EA024", "50:7 EA025"
    ),
    "environments/34-karabo.yml": Expected(42, 0, "61:5 EA007"),
    "environments/35-conda-empty-deps.yml": Expected(0, 0, "4:1 EA008"),
    "environments/36-conda-valid-keys.yml": Expected(1, 0, "8:9 EA011"),
    "environments/37-conda-channel-envvars.yml": Expected(1, 0, "7:5 EA014"),
    "environments/39-mamba-whitespace.yml": Expected(4, 0),
    "environments/40-condalock-selectors.yml": Expected(4, 0, "5:5 EA009"),
    "environments/42-condalock-pip-url.yml": Expected(1, 2, "8:7 EA026"),
    "condalock_failures/01-pip-pin-dropped.yml": Expected(2, 1),
    "condalock_failures/02-no-pip-two-platforms.yml": Expected(3, 0),
    "condalock_failures/03-pip-options-pre-extra-index.yml": Expected(
        1, 4, "5:7 EA029", "6:7 EA023", "8:7 EA024"
    ),
    "condalock_failures/04-pip-r-requirements.yml": Expected(2, 1, "3:25 EA014", "8:7 EA022"),
    "condalock_failures/05-pip-find-links-pytorch3d.yml": Expected(7, 2, "1:55 EA014", "11:7 EA023"),
    "condalock_failures/06-git-subdirectory-fragment.yml": Expected(2, 1, "6:7 EA024"),
    "condalock_failures/07-uppercase-pip-name.yml": Expected(1, 1, "5:5 EA021"),
    "condalock_failures/08-dask-name-confusion.yml": Expected(2, 1, "6:7 EA028"),
    "condalock_failures/09-pip-transitive-missing.yml": Expected(2, 1),
    "condalock_failures/10-cuda-from-other-os.yml": Expected(2, 0),
    "condalock_failures/11-channel-added-to-existing-lock.yml": Expected(1, 0),
    "condalock_failures/12-pip-dep-only-on-conda.yml": Expected(4, 1, "8:9 EA024"),
    "condalock_failures/13-cu13-aarch64-needs-cuda-virtual-pkg.yml": Expected(3, 0),
}

# Where the right behaviour of an input that lint passes is held by tests.
AFTER_READING = {
    "01-pip-pin-dropped": "the pin stays in the spec; the lock is held to it",
    "02-no-pip-two-platforms": "pip is optional",
    "09-pip-transitive-missing": "the lock's closure",
    "10-cuda-from-other-os": "virtual packages are given, not read from this machine",
    "11-channel-added-to-existing-lock": "a stale lock says which channel was added",
    "13-cu13-aarch64-needs-cuda-virtual-pkg": "the solver's words name the virtual package",
}
