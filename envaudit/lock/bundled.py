"""The pip part through the resolver that conda-lock carries, where uv cannot be had."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from typing import Any

from envaudit.errors import NeededError
from envaudit.lock.names import normalised
from envaudit.lock.pip import PipConflictError, PipRequest
from envaudit.lock.pylock import PipPackage
from envaudit.lock.virtual import VirtualPackages


def resolve_bundled(
    request: PipRequest, spec: Any, conda: Sequence[Any], virtual: VirtualPackages, table: str
) -> tuple[PipPackage, ...]:
    """As `resolve_pip`, slower and without source builds being held back by uv.

    Args:
        request: of one platform; its options are those that conda-lock's spec has anyway.
        spec: conda-lock's `LockSpecification`.
        conda: conda-lock's entries of the platform's conda part.
        virtual: the virtual packages.
        table: the name table.

    Raises:
        PipConflictError: no solution.
        NeededError: the index does not answer, or the resolver failed.
    """
    from conda_lock._vendor.poetry.mixology.failure import SolveFailureError
    from conda_lock._vendor.poetry.puzzle.exceptions import SolverProblemError
    from conda_lock.pypi_solver import solve_pypi

    wanted = {each.name: each for each in spec.dependencies[request.platform] if each.manager == "pip"}
    packages = virtual.conda_lock_repodata().all_repodata.get(request.platform, {}).get("packages")
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            solved = solve_pypi(
                pip_specs=wanted,
                use_latest=[],
                pip_locked={},
                conda_locked={each.name: each for each in conda},
                python_version=request.python,
                platform=request.platform,
                platform_virtual_packages=packages,
                pip_repositories=spec.pip_repositories,
                allow_pypi_requests=spec.allow_pypi_requests,
                mapping_url=f"file://{table}",
            )
    except (SolveFailureError, SolverProblemError) as error:
        raise PipConflictError(" ".join(str(error).split())) from None
    except Exception as error:
        # Connection errors of several libraries, and KeyErrors of the resolver's own.
        raise NeededError(
            "conda-lock's resolver failed",
            where=f"pip part, {request.platform}",
            why=f"{type(error).__name__}: {error}"[:600],
            next_step="Install uv, which resolves faster: pip install uv.",
        ) from None
    return tuple(_package(each) for _, each in sorted(solved.items()))


def _package(locked: Any) -> PipPackage:
    return PipPackage(
        name=normalised(locked.name),
        version=locked.version,
        url=locked.url,
        sha256=None if locked.url.startswith("git+") else locked.hash.sha256,
        dependencies=tuple(sorted(normalised(name) for name in locked.dependencies)),
        is_direct=locked.source is not None,
        has_wheel=locked.url.split("#")[0].endswith(".whl"),
    )
