"""Messages as bytes: what is sound arrives as it was, whatever is not is refused and harms nothing."""

from __future__ import annotations

import json
import math
from typing import Any, List

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envaudit.control import codec
from tests.control.meeting_place import sealed

KEY = codec.key_of(b"token", b"m" * 32, b"h" * 32)
LIMIT = 4096

WORD = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
BODY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | WORD,
    lambda below: st.lists(below, max_size=4) | st.dictionaries(WORD, below, max_size=4),
    max_leaves=12,
)
KIND = st.from_regex(r"_?[a-z][a-z0-9_.-]{0,47}", fullmatch=True)


def opener(key: bytes = KEY, direction: bytes = codec.TO_HUB, limit: int = LIMIT) -> codec.Opener:
    """A receiver."""
    return codec.Opener(key, direction, limit)


def frames(*bodies: Any, key: bytes = KEY, direction: bytes = codec.TO_HUB) -> List[bytes]:
    """Sound frames, one a body."""
    sealer = codec.Sealer(key, direction)
    return [b"".join(sealer.seal("word", codec.encode_body(body, 1 << 20))) for body in bodies]


def heard(receiver: codec.Opener, *chunks: bytes) -> List[Any]:
    """The bodies that come out."""
    found = []
    for chunk in chunks:
        receiver.feed(chunk)
        message = receiver.next()
        while message is not None:
            found.append(message.body)
            message = receiver.next()
    return found


@given(st.lists(st.tuples(KIND, BODY), max_size=5), st.data())
def test_messages_in_whatever_pieces_arrive_as_they_were(messages: List[Any], data: st.DataObject) -> None:
    """TCP cuts a stream where it likes."""
    sealer = codec.Sealer(KEY, codec.TO_HUB)
    stream = b"".join(
        b"".join(sealer.seal(kind, codec.encode_body(body, 1 << 20))) for kind, body in messages
    )
    receiver = opener(limit=1 << 20)
    found, at = [], 0
    while at < len(stream):
        size = data.draw(st.integers(1, len(stream) - at))
        receiver.feed(stream[at : at + size])
        at += size
        message = receiver.next()
        while message is not None:
            found.append((message.kind, message.body))
            message = receiver.next()
    assert messages == found
    assert "" == receiver.error
    assert 0 == receiver.partial_bytes


@given(st.binary(max_size=400))
def test_arbitrary_bytes_are_never_a_message(data: bytes) -> None:
    """Who does not know the key says nothing."""
    receiver = opener()
    assert [] == heard(receiver, data)
    assert receiver.partial_bytes <= len(data)


@given(BODY, st.data())
def test_one_flipped_bit_is_never_heard(body: Any, data: st.DataObject) -> None:
    """In the length, the JSON or the HMAC."""
    (frame,) = frames(body)
    bit = data.draw(st.integers(0, 8 * len(frame) - 1))
    broken = bytearray(frame)
    broken[bit // 8] ^= 1 << bit % 8
    # A shorter length cuts the frame elsewhere, a longer one waits for what never comes.
    assert [] == heard(opener(limit=1 << 20), bytes(broken))


@given(st.permutations(range(4)))
def test_frames_in_another_order_are_refused_from_the_first_wrong_one_on(order: List[int]) -> None:
    """Nothing that was recorded is taken at another place."""
    sent = frames(0, 1, 2, 3)
    sound = 0
    while sound < 4 and order[sound] == sound:
        sound += 1
    receiver = opener()
    assert list(range(sound)) == heard(receiver, *(sent[at] for at in order))
    assert (sound < 4) == ("repeated" in receiver.error)


def test_frame_a_second_time_is_refused() -> None:
    """A replay ends the connection; what came before it was heard."""
    first, second = frames("a", "b")
    receiver = opener()
    assert ["a", "b"] == heard(receiver, first + second + second)
    assert "repeated" in receiver.error
    assert [] == heard(receiver, frames("a", "b", "c", "d")[3])


@pytest.mark.parametrize(
    "frame",
    [
        frames("x", key=codec.key_of(b"tokem", b"m" * 32, b"h" * 32)),
        frames("x", key=codec.key_of(b"token", b"n" * 32, b"h" * 32)),
        frames("x", key=codec.key_of(b"token", b"m" * 32, b"i" * 32)),
        frames("x", key=codec.key_of(b"", b"m" * 32, b"h" * 32)),
        frames("x", direction=codec.TO_MEMBER),
    ],
    ids=["another token", "another member", "another hub", "no token", "the other direction"],
)
def test_frame_of_another_connection_is_refused(frame: List[bytes]) -> None:
    """Token, both nonces and the direction are in each HMAC."""
    receiver = opener()
    assert [] == heard(receiver, *frame)
    assert "of another token" in receiver.error


@pytest.mark.parametrize("length", [0, 1, LIMIT + 1, 2**31, 2**32 - 1])
def test_length_beyond_the_limits_is_refused_at_once(length: int) -> None:
    """Nobody waits for four gigabytes."""
    receiver = opener()
    assert [] == heard(receiver, length.to_bytes(4, "big"))
    assert receiver.error.startswith(f"a message of {length} bytes")
    receiver.feed(b"x" * 1000)
    assert 0 == receiver.partial_bytes


def test_message_as_long_as_the_limit_is_taken() -> None:
    """One byte more is not."""
    body = "x" * (LIMIT - len('[0,"word",""]'))
    assert [body] == heard(opener(), *frames(body))
    assert [] == heard(opener(), *frames(body + "x"))


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b"", "a message of 0 bytes"),
        (b"{}", "not [sequence, kind, body]"),
        (b'[0,"word"]', "not [sequence, kind, body]"),
        (b'[0,"word",1,2]', "not [sequence, kind, body]"),
        (b'[0,"word",1', "not JSON"),
        (b'[0,"word",1]]', "not JSON"),
        (b"\x80\x04K\x01.", "not JSON"),
        (b'[0,"word","\xff"]', "not JSON"),
        (b'[0,"word",NaN]', "not JSON"),
        (b'[0,"word",-Infinity]', "not JSON"),
        (b'[0,"word",1e999]', "not JSON"),
        (b'[0,"word",' + b"9" * 2000 + b"]", "not JSON"),
        (b'[0,"word",1.' + b"9" * 2000 + b"]", "not JSON"),
        (b'[0,"word",' + b"[" * 300 + b"]" * 300 + b"]", "nested deeper than 32"),
        (b'[0,"word",' + b'{"a":' * 34 + b"1" + b"}" * 34 + b"]", "nested deeper than 32"),
        (b'[0,"word","\\ud800"]', "half characters"),
        (b'[0,"word",{"\\uDC80":1}]', "half characters"),
        (b'[1,"word",1]', "out of order"),
        (b'[0.0,"word",1]', "out of order"),
        (b'[false,"word",1]', "out of order"),
        (b'["0","word",1]', "out of order"),
        (b"[0,null,1]", "of no kind"),
        (b'[0,"",1]', "of no kind"),
        (b'[0,"Word",1]', "of no kind"),
        (b'[0,"word\\n",1]', "of no kind"),
        (b'[0,"__",1]', "of no kind"),
        (b'[0,"' + b"w" * 60 + b'",1]', "of no kind"),
    ],
)
def test_sealed_message_that_is_unsound_is_refused(payload: bytes, why: str) -> None:
    """A member that knows the token may be broken, or hostile."""
    receiver = opener(limit=1 << 20)
    assert [] == heard(receiver, sealed(codec.Sealer(KEY, codec.TO_HUB), payload))
    assert why in receiver.error


@pytest.mark.parametrize("depth", [100_000, 400_000])
def test_sealed_message_of_brackets_alone_is_refused(depth: int) -> None:
    """No stack overflows."""
    payload = b'[0,"word",' + b"[" * depth + b"]" * depth + b"]"
    receiver = opener(limit=1 << 20)
    assert [] == heard(receiver, sealed(codec.Sealer(KEY, codec.TO_HUB), payload))
    assert receiver.error


def test_nesting_up_to_the_limit_is_taken() -> None:
    """32 lists in one another."""
    body: Any = 1
    for _ in range(codec.MAX_DEPTH):
        body = [body]
    assert [body] == heard(opener(), *frames(body))


def test_long_digits_in_text_are_taken() -> None:
    """Only numbers are limited."""
    body = ["9" * 64, 12345678901234567890, "\\ud800", "\U0001f600"]
    assert [body] == heard(opener(), *frames(body))


@settings(max_examples=300)
@given(st.binary(min_size=2, max_size=200))
def test_sealed_garbage_is_a_message_or_an_error(payload: bytes) -> None:
    """Nothing else comes out, no exception either."""
    receiver = opener()
    found = heard(receiver, sealed(codec.Sealer(KEY, codec.TO_HUB), payload))
    assert bool(found) != bool(receiver.error)


@settings(max_examples=300)
@given(BODY, st.data())
def test_sealed_json_that_is_damaged_is_a_message_or_an_error(body: Any, data: st.DataObject) -> None:
    """Likewise close to what is sound."""
    payload = bytearray(json.dumps([0, "word", body]).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(
            st.sampled_from(b'[]{}",:\\u0d8eE-9N\x00\xff')
        )
    receiver = opener()
    found = heard(receiver, sealed(codec.Sealer(KEY, codec.TO_HUB), bytes(payload)))
    assert bool(found) != bool(receiver.error)
    json.dumps(found, ensure_ascii=False, allow_nan=False).encode()


def test_error_holds_none_of_the_senders_words() -> None:
    """They end on terminals."""
    receiver = opener()
    heard(receiver, sealed(codec.Sealer(KEY, codec.TO_HUB), b'[0,"\x1b[31mboo",1]'))
    assert "boo" not in receiver.error
    assert receiver.error.isprintable()


@pytest.mark.parametrize("body", [math.nan, [math.inf], {"a": object()}, {1, 2}, b"bytes"])
def test_body_that_is_not_json_is_an_error_of_the_caller(body: Any) -> None:
    """It never leaves."""
    with pytest.raises(ValueError, match="JSON"):
        codec.encode_body(body, LIMIT)


def test_body_too_long_is_an_error_of_the_caller() -> None:
    """Rather than of its receiver."""
    with pytest.raises(ValueError, match="4096 are allowed"):
        codec.encode_body("x" * LIMIT, LIMIT)


@pytest.mark.parametrize("kind", ["", "Word", "w w", 'w"', "w" * 60, "1", "w\n"])
def test_kind_that_is_none_is_an_error_of_the_caller(kind: str) -> None:
    """It stands in the JSON as it is."""
    with pytest.raises(ValueError, match="no kind"):
        codec.Sealer(KEY, codec.TO_HUB).seal(kind, b"1")


def test_undecodable_name_is_sent_with_marks_in_it() -> None:
    """A path that is no UTF-8 does not keep a node out."""
    body = {"path": "a\udcffb", "pair": "\U0001f600", "written": "\\udcff"}
    expected = {"path": "a\ufffdb", "pair": "\U0001f600", "written": "\\udcff"}
    assert [expected] == heard(opener(), *frames(body))


@given(st.binary(max_size=60))
def test_greeting_is_read_only_where_it_is_one(data: bytes) -> None:
    """What a scanner says is none."""
    assert codec.greeting_of(data) is None
    ours = codec.Greeting(7, True, False, b"n" * 32)
    assert ours == codec.greeting_of(ours.to_bytes())
    assert codec.may_be_greeting(ours.to_bytes()[: len(data)])
