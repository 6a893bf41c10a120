"""Nodes that lie, babble, hang or die: each costs itself alone, and its cause is named."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid

import pytest

from envaudit.model.fingerprint import Fingerprint, Missing
from envaudit.transport import Request, Target, gather
from tests.transport.asking import PRETENDER, ask_one, pretend, processes_with, wait_for


@pytest.mark.parametrize(
    "mode",
    ["obedient", "banner", "glued", "carriage", "shuffled", "repeated", "other_name", "noisy_then_good"],
)
def test_gather_noise_around_an_answer_is_ignored(mode: str) -> None:
    """Banners, prompts, CRLF, disorder, repetition and a claimed name do not matter."""
    result = ask_one(mode)
    assert isinstance(result, Fingerprint), result
    assert "node01" == result.node
    assert {"NCCL_ALGO": "Ring"} == result.sections["env"].facts


@pytest.mark.parametrize(
    ("mode", "kind", "words"),
    [
        ("wrong_nonce", "truncated", "no answer, though the command ended with 0"),
        ("cut", "truncated", "broke off"),
        ("contradiction", "corrupt", "twice with different content"),
        ("wrong_digest", "corrupt", "digest differs"),
        ("bomb", "corrupt", "inflates to more than 16 MiB"),
        ("deep", "corrupt", "nested deeper"),
        ("deep_facts", "corrupt", "nested deeper than 32"),
        ("floats", "corrupt", "floats are not facts"),
        ("newer_section", "corrupt", "another version of envaudit"),
        ("newer_answer", "corrupt", "another version of envaudit (schema 2)"),
        ("no_json", "corrupt", "not JSON"),
        ("no_object", "corrupt", "expected dict, got list"),
        ("refused", "crashed", "refused to run: /opt/python can be written by others."),
        ("silent", "truncated", "no answer, though the command ended with 0"),
        ("leaves_at_once", "truncated", "no answer, though the command ended with 0"),
        ("crashed", "crashed", "RuntimeError: no such luck"),
        ("killed", "crashed", "ended by SIGKILL"),
        ("garbage_lines", "corrupt", "more than 32 MiB"),
        ("garbage_without_newline", "corrupt", "more than 32 MiB"),
        ("garbage_on_stderr", "corrupt", "more than 32 MiB"),
    ],
)
def test_gather_misbehaving_node_is_missing_with_its_cause(mode: str, kind: str, words: str) -> None:
    """Every fault has its kind and words that name it."""
    result = ask_one(mode)
    assert isinstance(result, Missing), result
    assert kind == result.kind
    assert words in result.why
    assert result.next_step


def test_gather_hostile_words_are_neutralised() -> None:
    """Terminal controls in a node's words do not reach the cause."""
    result = ask_one("hostile_text")
    assert isinstance(result, Missing)
    assert "the probe failed: a ]0;x b c" == result.why


@pytest.mark.parametrize("mode", ["stubborn", "half_and_hang"])
def test_gather_hanging_node_times_out_and_is_ended(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the timeout the command is ended with its children, even where they ignore SIGTERM."""
    mark = uuid.uuid4().hex
    monkeypatch.setenv("MARK", mark)
    started = time.monotonic()
    result = ask_one(mode, timeout_s=1)
    elapsed_s = time.monotonic() - started
    assert isinstance(result, Missing)
    assert ("timeout", "no answer in 1 s") == (result.kind, result.why[:16])
    assert "--timeout" in result.next_step
    assert 0.9 < elapsed_s < 4
    assert wait_for(lambda: not processes_with(mark), 2)


def test_gather_node_that_stays_after_its_answer_counts_and_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is taken as it is; the command gets a second to leave."""
    mark = uuid.uuid4().hex
    monkeypatch.setenv("MARK", mark)
    started = time.monotonic()
    result = ask_one("stays_after_answer", timeout_s=30)
    assert isinstance(result, Fingerprint)
    assert time.monotonic() - started < 5
    assert wait_for(lambda: not processes_with(mark), 2)


def test_gather_one_bad_node_leaves_the_others_whole() -> None:
    """Nodes of one run do not share their faults; every node has its place in the snapshot."""
    nodes = [f"node{number:02d}" for number in range(1, 7)]
    targets = [Target(node, sys.executable) for node in nodes]
    outcomes = {}

    class Progress:
        def update(self, node: str, outcome: str) -> None:
            assert node not in outcomes
            outcomes[node] = outcome

    transport = pretend("obedient")
    broken = pretend("cut")
    plain = transport.argv
    transport.argv = lambda target: (broken.argv if target.node == "node03" else plain)(target)  # type: ignore[method-assign]
    snapshot = gather(transport, targets, Request(timeout_s=20, fanout=2), Progress())
    assert ["node01", "node02", "node04", "node05", "node06"] == sorted(snapshot.by_node)
    assert {"node03": "truncated"} == {node: gone.kind for node, gone in snapshot.missing.items()}
    assert {node: "truncated" if node == "node03" else "done" for node in nodes} == outcomes


@pytest.mark.parametrize("mode", ["garbage_lines", "garbage_without_newline", "bomb", "deep"])
def test_gather_flood_keeps_memory_bounded(mode: str) -> None:
    """300 MB of garbage do not become 300 MB of memory: the peak stays near that of a quiet run."""
    peaks_mib = {}
    for each in ("obedient", mode):
        program = (
            "import resource, sys\n"
            "from tests.transport.asking import ask_one\n"
            "ask_one(sys.argv[1])\n"
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)\n"
        )
        argv = [sys.executable, "-c", program, each]
        root = os.path.dirname(os.path.dirname(os.path.dirname(PRETENDER)))
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, cwd=root, check=True)
        peaks_mib[each] = int(done.stdout)
    assert peaks_mib[mode] - peaks_mib["obedient"] < 96
