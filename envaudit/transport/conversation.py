"""One node's exchange: the probe goes in, the answer comes out, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from envaudit.errors import InputError
from envaudit.model.codec import expect, fingerprint_of_answer, parse_json
from envaudit.model.fingerprint import Fingerprint, Missing
from envaudit.transport import boot, causes, frames
from envaudit.transport.clockoffset import SILENCE_S, Measure, Timebase, noted
from envaudit.transport.engine import Listener
from envaudit.transport.interface import Opened, Request, Target, Transport, header_for
from envaudit.transport.node import ANSWER_SCHEMA
from envaudit.transport.parcel import Parcel

# Once the answer is whole the command has this long to end by itself.
_LEAVE_S = 1.0
_COMPLAINT_BYTES = 4096


class Conversation(Listener):
    """Sends BOOT its header and payload, and reads the answer within the limits.

    Once that is whole the node is sent the pings of its `Measure`, where it has one.

    Attributes:
        result: the node's fingerprint as it came, or why there is none; None while that is open.
        refused: why the probe would not run, "" when it did.
    """

    def __init__(
        self,
        transport: Transport,
        target: Target,
        request: Request,
        parcel: Parcel,
        opened: Opened,
        when_through: Callable[[str, str], None],
        timebase: Timebase,
        measure: Measure | str,
    ) -> None:
        super().__init__()
        self.target = target
        self.result: Fingerprint | Missing | None = None
        self.refused = ""
        self._transport = transport
        self._request = request
        self._parcel = parcel
        self._when_through = when_through
        self._opened = opened
        self._timebase = timebase
        self._measure = measure
        self._pinging: Measure | None = None
        self._reader = frames.Reader(opened.nonce, watch_for=boot.STOP)
        self._complaint = b""
        self._heard_bytes = 0
        self._rc: int | None = None
        self._worker: Any = None
        self._hurried_s = 0.0

    # What ClusterShell tells.

    def ev_pickup(self, worker: Any, node: str) -> None:
        """The command has been started; its standard input stays open until the answer is whole."""
        self._worker = worker
        self.open(worker)

    def ev_hup(self, worker: Any, node: str, rc: int | None) -> None:
        """The command has ended."""
        self._rc = rc

    def ev_close(self, worker: Any, timedout: bool) -> None:
        """All is over, whatever the reason."""
        if timedout:
            self.late(self.target.node)
        if self.result is None:
            self._settle(self._cause())

    def hear(self, node: str, client: Any, chunk: bytes, *, is_stderr: bool) -> None:
        """A piece of output from a command of this machine."""
        heard_ns = self._timebase.now_ns()
        if self._pinging is not None:
            if client is not None and not is_stderr:
                self._go_on(self._pinging, client, chunk, heard_ns)
        elif self.take(chunk, is_stderr=is_stderr) and client is not None:
            if self._reader.whole:
                self._ping_or_dismiss(client, self.result)
            else:
                client.abort()

    def _ping_or_dismiss(self, client: Any, result: Fingerprint | Missing | None) -> None:
        if isinstance(self._measure, Measure) and isinstance(result, Fingerprint):
            self._pinging = self._measure
            client.set_nextfire(SILENCE_S)
            client._write(client.worker.SNAME_STDIN, self._measure.begin())
        else:
            _dismiss(client)

    def _go_on(self, measure: Measure, client: Any, chunk: bytes, heard_ns: int) -> None:
        """Take a pong and send the next ping, or let the node go."""
        ping = measure.hear(chunk, heard_ns)
        if ping:
            client._write(client.worker.SNAME_STDIN, ping)
        elif measure.done:
            self._pinging = None
            _dismiss(client)

    @property
    def outcome(self) -> Fingerprint | Missing | None:
        """The result, with how far the node's clock is off among its notes where that was asked for."""
        if isinstance(self.result, Fingerprint) and self._measure:
            return noted(self.result, self._timebase, self._measure)
        return self.result

    def late(self, node: str) -> None:
        """The node's time is over."""
        if self.result is None and self._hurried_s:
            why = f"the others did not hear it, and it was silent for {self._hurried_s:g} s after that"
            self._settle(Missing("timeout", why, "Look at what hangs on the node."))
        if self.result is None:
            self._settle(causes.of_timeout(self._ended(), self._request.timeout_s))

    def open(self, worker: Any) -> None:
        """Send header and payload, as soon as there is one; or what is left of them."""
        if self._opened.rest is None:
            self._parcel.hand_to(lambda payload: self._send(worker, payload))
        elif self._opened.rest:
            worker.write(self._opened.rest)

    def _send(self, worker: Any, payload: boot.Payload) -> None:
        worker.write(
            header_for(
                self._transport,
                self.target,
                self._request,
                payload,
                nonce=self._opened.nonce,
                pings=isinstance(self._measure, Measure),
            )
        )
        worker.write(payload.zip_bytes)

    def hurry(self, seconds: float) -> None:
        """Wait so long for an answer, and no longer."""
        if self.result is None and not self._hurried_s and self._worker is not None:
            self._hurried_s = seconds
            for client in self._worker._engine_clients():
                client.set_nextfire(seconds)

    def give_up(self, missing: Missing) -> None:
        """Settle from outside, where nothing is settled yet."""
        if self.result is None:
            self._settle(missing)

    # What follows from it.

    def take(self, chunk: bytes, *, is_stderr: bool) -> bool:
        """Take a piece of output; whether nothing more is wanted from this node."""
        if self.result is not None:
            return False
        self._heard_bytes += len(chunk)
        if self._heard_bytes > frames.MAX_RAW_BYTES:
            limit = f"{frames.MAX_RAW_BYTES >> 20} MiB"
            self._settle(self._corrupt(f"more than {limit} of output that is no answer"))
        elif is_stderr:
            self._complaint = (self._complaint + chunk)[-_COMPLAINT_BYTES:]
        else:
            try:
                self._reader.feed(chunk)
                if self._reader.whole:
                    self._settle(self._read_answer(self._reader.text()))
            except frames.FrameError as error:
                self._settle(self._corrupt(str(error)))
        return self.result is not None

    def _settle(self, result: Fingerprint | Missing) -> None:
        self.result = result
        outcome = result.kind if isinstance(result, Missing) else "done"
        self._when_through(self.target.node, outcome)

    def _read_answer(self, text: str) -> Fingerprint | Missing:
        where = "answer"
        try:
            said = parse_json(text, where)
            expect(said, dict, where)
            if said.get("schema") != ANSWER_SCHEMA or isinstance(said.get("schema"), bool):
                return Missing(
                    "corrupt",
                    f"an answer from another version of envaudit (schema {said.get('schema')!r:.40})",
                    "Use the same envaudit on both sides.",
                )
            for key in ("refused", "crashed"):
                if key in said:
                    expect(said[key], str, f"{where}.{key}")
            if "refused" in said:
                self.refused = causes.one_line(said["refused"], 500)
                why = f"the probe refused to run: {self.refused}"
                return Missing("crashed", why, "Mend that, or choose another interpreter with --python.")
            if "crashed" in said:
                why = f"the probe failed: {causes.one_line(said['crashed'])}"
                return Missing("crashed", why, "Please report this.")
            return fingerprint_of_answer(
                said.get("answer"), node=self.target.node, source="probe", where=where
            )
        except InputError as error:
            why = causes.one_line(f"{error.where}: {error.what}" + (f" ({error.why})" if error.why else ""))
            if error.what.startswith("schema "):
                return Missing(
                    "corrupt", f"an answer from another version of envaudit: {why}", error.next_step
                )
            return Missing("corrupt", f"not a probe's answer: {why}", "Try again, and report it if it stays.")

    def _cause(self) -> Missing:
        word, text = boot.stop_of(self._reader.stop_line)
        if word:
            return causes.of_stop(word, text, self.target.python)
        if self._reader.seen:
            words = causes.last_words(self._ended().complaint)
            return Missing(
                "truncated",
                f"the answer broke off ({self._transport.words})" + (f": {words}" if words else ""),
                "Try again; if it stays, look for what ends processes on the node (memory, limits).",
            )
        return causes.of_end(self._ended())

    def _corrupt(self, why: str) -> Missing:
        return Missing(
            "corrupt",
            f"{causes.one_line(why)} ({self._transport.words})",
            f"See what '{self._transport.trial(self.target)}' prints.",
        )

    def _ended(self) -> causes.Ended:
        return causes.Ended(
            node=self.target.node,
            python=self.target.python,
            words=self._transport.words,
            trial=self._transport.trial(self.target),
            rc=self._rc,
            complaint=self._complaint.decode("utf-8", "replace"),
            last_line=self._reader.last_line.decode("utf-8", "replace"),
        )


def _dismiss(client: Any) -> None:
    """Close the node's standard input, which ends what is left of the run there."""
    client._set_write_eof(client.worker.SNAME_STDIN)
    client.set_nextfire(_LEAVE_S)
