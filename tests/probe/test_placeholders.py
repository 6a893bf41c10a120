"""Users, hosts, jobs and folders inside values, by their names instead."""

from __future__ import annotations

import pytest

from envaudit.probe.placeholders import Placeholders

_ENVIRON = {
    "HOME": "/home/al",
    "USER": "al_user",
    "TMPDIR": "/scratch/al_user/job.81231",
    "SLURM_JOB_ID": "81231",
}
_HOSTS = ["gpu01.cluster.example", "gpu01"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("/home/al", "$HOME"),
        ("/home/al/lib:/usr/lib", "$HOME/lib:/usr/lib"),
        ("/home/alice/lib", "/home/alice/lib"),
        ("/opt/home/al/lib", "/opt/home/al/lib"),
        ("/home/al.old", "/home/al.old"),
        ("/scratch/al_user/job.81231/x", "$TMPDIR/x"),
        ("/scratch/al_user/other", "/scratch/$USER/other"),
        ("/local/gpu01/x", "/local/$HOSTNAME/x"),
        ("/local/gpu01.cluster.example/x", "/local/$HOSTNAME/x"),
        ("/local/gpu012/x", "/local/gpu012/x"),
        ("run-81231-a", "run-$JOB_ID-a"),
        ("812310", "812310"),
        ("Ring", "Ring"),
    ],
)
def test_value_gets_the_longest_placeholder_at_word_bounds(value: str, expected: str) -> None:
    """Only a whole component is replaced, and the longest text first."""
    assert expected == Placeholders(_ENVIRON, _HOSTS).put(value)


@pytest.mark.parametrize(
    "value", ["8", "/usr/local/cuda-12.8/lib64", "expandable_segments:True,x:8", "2.8.8"]
)
def test_short_job_number_is_not_taken_for_every_number(value: str) -> None:
    """Job 8 is not the 8 of a thread count or a version."""
    assert value == Placeholders({"SLURM_JOB_ID": "8"}, []).put(value)


def test_short_job_number_beside_its_word_is_replaced() -> None:
    """In `/tmp/job_8` the number can be nothing else."""
    assert "/tmp/job_$JOB_ID/x" == Placeholders({"SLURM_JOB_ID": "8"}, []).put("/tmp/job_8/x")


@pytest.mark.parametrize(
    "environ", [{"HOME": "/"}, {"HOME": ""}, {"TMPDIR": "/tmp"}, {"USER": "root"}, {"USER": "a"}]
)
def test_word_that_stands_for_nobody_is_kept(environ: dict[str, str]) -> None:
    """A home of `/`, the common /tmp and root say nothing of one user, host or job."""
    value = "/tmp/a/root/x"
    assert value == Placeholders(environ, ["localhost"]).put(value)
