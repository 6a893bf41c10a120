"""The whole default probe as a node runs it, against the bare start of its interpreter."""

from __future__ import annotations

import subprocess
import time

from envaudit.transport import boot, bundle


def seconds(python: str, runs: int) -> tuple[list[float], list[float]]:
    """Of each run of the default sections, fed by a pipe, and of an interpreter that does nothing.

    Raises:
        RuntimeError: a probe did not answer.
    """
    payload = bundle.wire_payload(compressed=False)
    header = boot.header_line(payload, nonce="a" * 32, node="bench", deadline_s=60, request={"tool": "bench"})
    probes, bare = [], []
    for _ in range(runs):
        began = time.monotonic()
        with subprocess.Popen(
            [python, *boot.ARGUMENTS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            for part in (header, payload.zip_bytes):
                view = memoryview(part)
                while view:
                    view = view[process.stdin.write(view) or 0 :]
            answer = process.stdout.read()
            probes.append(time.monotonic() - began)
        if b"@envaudit " not in answer:
            raise RuntimeError("the probe did not answer")
        began = time.monotonic()
        subprocess.run([python, "-I", "-B", "-c", "pass"], check=True)
        bare.append(time.monotonic() - began)
    return probes, bare
