"""Frames: what was cut comes together again, and nothing else does."""

from __future__ import annotations

import binascii
import hashlib
import json
import random
import zlib
from typing import List

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envaudit.transport import frames

NONCE = "0123456789abcdef0123456789abcdef"
ASCII_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
).map(json.dumps)


def read(output: bytes, step: int = 65536, nonce: str = NONCE) -> frames.Reader:
    """A reader that was fed some output in pieces."""
    reader = frames.Reader(nonce, watch_for=b"@envaudit-stop ")
    for at in range(0, len(output), step):
        reader.feed(output[at : at + step])
    return reader


def forged(*pieces: bytes, total: int = -1) -> bytes:
    """Frames with pieces of one's own."""
    total = len(pieces) - 1 if total < 0 else total
    return b"".join(
        b"@envaudit %s n %d/%d %s\n" % (NONCE.encode(), i, total, p) for i, p in enumerate(pieces)
    )


def sealed(blob: bytes) -> bytes:
    """One frame of content under a right digest."""
    return forged(
        binascii.b2a_base64(hashlib.sha256(blob).digest()).strip(), binascii.b2a_base64(blob).strip()
    )


@given(ASCII_JSON, st.integers(1, 5000), st.booleans())
def test_frames_cut_anywhere_give_the_text_back(text: str, step: int, crlf: bool) -> None:
    """Whatever the pieces and the line ends, reading undoes encoding."""
    output = b"".join(frames.encode(text, nonce=NONCE, node="node01"))
    reader = read(output.replace(b"\n", b"\r\n") if crlf else output, step)
    assert reader.whole
    assert text == reader.text()


@given(st.data())
def test_frames_of_two_tasks_mixed_line_by_line_stay_apart(data: st.DataObject) -> None:
    """Tasks of srun are mixed by lines; each reader takes its own nonce alone."""
    texts = [json.dumps(random.Random(seed).choices(range(10**9), k=2000)) for seed in (1, 2)]
    nonces = [NONCE, NONCE[::-1]]
    queues = [frames.encode(text, nonce=nonce, node="n") for text, nonce in zip(texts, nonces)]
    mixed: List[bytes] = []
    while any(queues):
        queue = data.draw(st.sampled_from([queue for queue in queues if queue]))
        mixed.append(queue.pop(0))
    for text, nonce in zip(texts, nonces):
        assert text == read(b"".join(mixed), nonce=nonce).text()


@given(st.binary(max_size=3000), st.integers(1, 700))
def test_frames_arbitrary_bytes_never_become_an_answer(noise: bytes, step: int) -> None:
    """Without the nonce nothing is an answer, and nothing raises."""
    reader = read(noise + b"\n@envaudit 00 n 0/1 AAAA\n", step)
    assert (False, False) == (reader.seen, reader.whole)


@given(st.lists(st.tuples(st.integers(-1, 12), st.integers(-1, 12), st.binary(max_size=12)), max_size=12))
def test_frames_arbitrary_frames_are_refused_or_read(rows: List[tuple[int, int, bytes]]) -> None:
    """Frames under the right nonce give a text, a FrameError or nothing; never another exception."""
    reader = frames.Reader(NONCE)
    try:
        for index, total, piece in rows:
            reader.feed(b"@envaudit %s n %d/%d %s\n" % (NONCE.encode(), index, total, piece))
        if reader.whole:
            reader.text()
    except frames.FrameError:
        pass


@given(ASCII_JSON, st.data())
def test_frames_one_changed_character_is_noticed(text: str, data: st.DataObject) -> None:
    """A changed content or digest never passes for the text that was sent."""
    lines = frames.encode(text, nonce=NONCE, node="n")
    index = data.draw(st.integers(0, len(lines) - 1))
    line = lines[index]
    at = data.draw(st.integers(line.rindex(b" ") + 1, len(line) - 2))
    lines[index] = line[:at] + (b"A" if line[at : at + 1] != b"A" else b"B") + line[at + 1 :]
    try:
        assert text == read(b"".join(lines)).text()
    except frames.FrameError:
        pass


def test_encode_lines_fit_a_pipe_whole() -> None:
    """No line is longer than what a pipe takes in one piece, even under the longest name."""
    text = json.dumps(random.Random(3).choices(range(10**9), k=5000))
    lines = frames.encode(text, nonce=NONCE, node="n" * 253)
    assert len(lines) > 5
    assert max(map(len, lines)) <= 4096


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (forged(b"AAAA", b"AAAA"), "digest differs"),
        (forged(b"!", b"A"), "no base64"),
        (sealed(b"no deflate"), "does not inflate"),
        (sealed(zlib.compress(b"x" * 100)[:-3]), "incomplete"),
        (sealed(zlib.compress("ü".encode())), "beyond ASCII"),
        (sealed(zlib.compress(b" " * (frames.MAX_INFLATED_BYTES + 1))), "more than 16 MiB"),
    ],
)
def test_text_of_a_bad_answer_raises_with_the_reason(output: bytes, words: str) -> None:
    """Everything that is wrong with a whole set of frames is told."""
    reader = read(output)
    assert reader.whole
    with pytest.raises(frames.FrameError, match=words):
        reader.text()


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (forged(b"AAAA", total=99999), "99999 frames"),
        (forged(b"AAAA", total=0), "0 frames"),
        (forged(b"AA", b"BB", total=5) + forged(b"AA", total=4), "0/4 in an answer of 5"),
        (forged(b"AA", total=5) + forged(b"AB", total=5), "twice with different content"),
        (forged(b"AA", b"BB", b"CC", total=1), "2/1 in an answer of 1"),
    ],
)
def test_feed_contradicting_frames_raises(output: bytes, words: str) -> None:
    """Frames that cannot belong together are noticed at once."""
    if "2/1" in words:
        output = output.replace(b" 1/1 ", b" 2/1 ")
    with pytest.raises(frames.FrameError, match=words):
        read(output)


def test_feed_answer_at_the_limit_is_taken() -> None:
    """The inflated limit itself still passes."""
    text = " " * frames.MAX_INFLATED_BYTES
    assert text == read(b"".join(frames.encode(text, nonce=NONCE, node="n"))).text()


@pytest.mark.parametrize("step", [1000, 65536, 10**9])
def test_feed_overlong_line_is_dropped_and_what_follows_read(step: int) -> None:
    """A line beyond 64 KiB costs itself alone, and is not kept."""
    overlong = b"@envaudit %s n 0/1 %s\n" % (NONCE.encode(), b"A" * frames.MAX_LINE_BYTES)
    reader = read(overlong + b"".join(frames.encode("[1]", nonce=NONCE, node="n")), step)
    assert "[1]" == reader.text()


def test_feed_beyond_the_raw_limit_stops_looking() -> None:
    """What comes after 32 MiB is no answer any more."""
    reader = read(
        bytes(frames.MAX_RAW_BYTES) + b"\n" + b"".join(frames.encode("[1]", nonce=NONCE, node="n")), 1 << 20
    )
    assert (True, False) == (reader.overflown, reader.seen)


def test_feed_keeps_the_last_words_that_are_no_frame() -> None:
    """What a shell said, and BOOT's own last line, are kept to explain a missing answer."""
    reader = read(b"one\n@envaudit-stop python 3.6.15\ntwo\n\n")
    assert (b"two", b"@envaudit-stop python 3.6.15") == (reader.last_line, reader.stop_line)
