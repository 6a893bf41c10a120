"""The device's memory: patterns are written over most of what is free, and read back.

Constants find bits that are stuck or that neighbours of the other value drag along. A hash of the address
finds what no constant can: an address line that is stuck gives the right constant from the wrong place.
Two neighbouring bits that are shorted differ in half of the hashed words, so that three seeds and their
complements leave few pairs alike.

The hash of word i of block b is tile[i] ⊕ key[b], both from the counter hash: unlike for any two addresses,
and made by one pass over the memory. It is taken back in place, after which every block must be the tile:
a second read and write of each word, whose own errors stand in the result as well.
"""

from __future__ import annotations

from typing import Any, Callable, List, NamedTuple, Optional, Tuple

from envaudit.checks.bits import Mismatch
from envaudit.checks.counterhash import derive, words
from envaudit.checks.device import CPU, DeviceFacts
from envaudit.checks.operations import Case, not_runnable
from envaudit.checks.outcome import NOT_RUN, OK, WRONG, Outcome, milli_gbps

# 0, all ones, 0101…, 1010…: as signed words.
CONSTANTS = (0, -1, 0x5555555555555555, -0x5555555555555556)
SEEDS = 3

_WORD_BYTES = 8
_CPU_BYTES = 64 * 2**20
# What the driver, torch's own allocations and the making of the tiles need.
_LEFT_FREE_BYTES = 2 * 2**30
# Faulty words that are looked at one by one.
_EXAMINED = 1024


class Extent(NamedTuple):
    """How the memory is cut up: chunks of whole blocks, each allocated for itself."""

    chunks: int
    blocks: int
    block_words: int


def CASES(facts: DeviceFacts) -> List[Case]:  # noqa: N802
    """The constants, and the hashed addresses."""
    return [
        _case("memory/constants", f"{len(CONSTANTS)} patterns", constants),
        _case("memory/addresses", f"{SEEDS} seeds and their complements", addresses),
    ]


def _case(name: str, shape: str, test: Callable[..., Outcome]) -> Case:
    prepare = not_runnable(name, "int64", "a test of its own kind").prepare
    return Case(name, "int64", shape, True, prepare, own=test)


class Failures:
    """The faulty words of one test, as they are found."""

    def __init__(self) -> None:
        self.count = 0
        self.compared = 0
        self.flipped = 0
        self.passing = 0
        self.first: Optional[Tuple[int, int, int]] = None

    def add(self, got: Any, wanted: Any, first_word: int) -> None:
        """Hold the words that were read against those that were wanted, both on the device."""
        # Most of the memory is taken: one byte a word, and then block by block what is wrong.
        rows = got.reshape(-1, got.shape[-1])
        different = rows != wanted
        count = int(different.sum())
        self.count += count
        # Read wrong once, and right now that it is read again.
        self.passing += not count
        examined = 0
        for row in different.any(dim=1).nonzero().reshape(-1).tolist():
            places = different[row].nonzero().reshape(-1)[: _EXAMINED - examined]
            pairs = wanted.expand_as(rows[row])[places].tolist(), rows[row][places].tolist()
            for place, right, read in zip(places.tolist(), *pairs):
                self.flipped |= (right ^ read) & (2**64 - 1)
                if self.first is None:
                    self.first = (first_word + row * rows.shape[1] + place, right, read)
            examined += len(places)
            if examined >= _EXAMINED:
                break

    def mismatch(self) -> Optional[Mismatch]:
        """The first faulty word's address is counted in words from the start of the memory tested."""
        if self.first is None:
            return None
        place, wanted, got = self.first
        return Mismatch(
            wrong=self.count,
            compared=self.compared,
            first_index=(place,),
            expected_bits=f"{wanted & (2**64 - 1):016x}",
            got_bits=f"{got & (2**64 - 1):016x}",
            flipped_bits=tuple(bit for bit in range(64) if self.flipped >> bit & 1),
            max_abs="",
        )


def constants(facts: DeviceFacts, seed: int, effort: Any, clock: Callable[[], float]) -> Outcome:
    """Every constant over the whole memory, read back as the smallest and the largest word."""
    import torch

    def passes(chunks: List[Any], extent: Extent, failures: Failures, is_over: Callable[[], bool]) -> int:
        done = 0
        for constant in CONSTANTS:
            for chunk in chunks:
                chunk.fill_(constant)
            # The device is not waited for before it has read everything.
            read = [torch.aminmax(chunk) for chunk in chunks]
            wanted = torch.tensor(constant, device=chunks[0].device)
            for number, (chunk, (smallest, largest)) in enumerate(zip(chunks, read)):
                if int(smallest) != constant or int(largest) != constant:
                    failures.add(chunk, wanted, number * extent.blocks * extent.block_words)
            done += 1
            if is_over():
                break
        return done

    return _tested("memory/constants", len(CONSTANTS), 2, passes, facts, effort, clock)


def addresses(facts: DeviceFacts, seed: int, effort: Any, clock: Callable[[], float]) -> Outcome:
    """The hash of each address and its complement, for every seed."""

    def passes(chunks: List[Any], extent: Extent, failures: Failures, is_over: Callable[[], bool]) -> int:
        done = 0
        for number in range(SEEDS):
            own = derive(seed, f"memory {number}")
            for complement in (False, True):
                _hashed_pass(chunks, extent, own, complement, failures)
                done += 1
                if is_over():
                    return done
        return done

    return _tested("memory/addresses", 2 * SEEDS, 4, passes, facts, effort, clock)


def _hashed_pass(chunks: List[Any], extent: Extent, seed: int, complement: bool, failures: Failures) -> None:
    import torch

    device = chunks[0].device
    # Made on the CPU: what the suspect makes of it is compared with what it did not make.
    tile_on_host = words(extent.block_words, derive(seed, "tile"), "cpu")
    tile = tile_on_host.to(device)
    keys = words(extent.chunks * extent.blocks, derive(seed, "keys"), "cpu")
    keys = (~keys if complement else keys).reshape(extent.chunks, extent.blocks, 1).to(device)
    for chunk, key in zip(chunks, keys):
        torch.bitwise_xor(tile, key, out=chunk)
    # The device is not waited for before it has read everything.
    wrong = []
    for chunk, key in zip(chunks, keys):
        chunk.bitwise_xor_(key)
        smallest, largest = torch.aminmax(chunk, dim=0)
        wrong.append(((smallest != tile) | (largest != tile)).any())
    for number, chunk in enumerate(chunks):
        if bool(wrong[number]):
            failures.add(chunk, tile, number * extent.blocks * extent.block_words)
    # One block for the host to see with its own eyes.
    seen = chunks[-1][-1].cpu()
    if not failures.count and not torch.equal(seen, tile_on_host):
        failures.add(seen, tile_on_host, (extent.chunks * extent.blocks - 1) * extent.block_words)


def _tested(
    name: str,
    wanted: int,
    transfers: int,
    passes: Callable[..., int],
    facts: DeviceFacts,
    effort: Any,
    clock: Callable[[], float],
) -> Outcome:
    # `transfers`: how often a pattern's test reads or writes each word.
    chunks, extent, asked = _allocated(facts, effort.memory_permille)
    if not chunks:
        return Outcome(name, NOT_RUN, "too little of the memory is free")
    failures = Failures()
    tested = extent.chunks * extent.blocks * extent.block_words * _WORD_BYTES
    _wait(facts)
    began = clock()
    try:
        done = passes(chunks, extent, failures, lambda: clock() >= effort.deadline)
        _wait(facts)
    finally:
        chunks.clear()
        _given_back(facts)
    took_ns = max(1, int((clock() - began) * 1e9))
    failures.compared = done * tested // _WORD_BYTES
    status, reason = OK, ""
    if failures.count:
        offset = failures.first[0] * _WORD_BYTES if failures.first else 0
        status = WRONG
        reason = f"{failures.count} words read back wrong, the first {offset} bytes into what was tested"
    elif failures.passing:
        status = WRONG
        reason = f"{failures.passing} times words were read wrong, and right when they were read again"
    elif done < wanted:
        status, reason = NOT_RUN, f"{done} of {wanted} patterns were right when the time for it was over"
    elif extent.chunks < asked:
        # Somebody else takes memory at the same time: what was free a moment ago is no more.
        gib = [f"{count * tested // extent.chunks / 2**30:.0f}" for count in (extent.chunks, asked)]
        status, reason = (
            NOT_RUN,
            f"too little of the memory could be had: {gib[0]} of {gib[1]} GiB were right",
        )
    return Outcome(
        case=name,
        status=status,
        reason=reason,
        repeats=done,
        wrong_repeats=int(status == WRONG),
        mismatch=failures.mismatch(),
        median_ns=took_ns // done,
        milli_gbps=milli_gbps(done * transfers * tested, took_ns),
        tested_bytes=tested,
    )


def _allocated(facts: DeviceFacts, permille: int) -> Tuple[List[Any], Extent, int]:
    """As many chunks as the fraction asks for and the device gives, and how many were asked for."""
    import torch

    shape = Extent(1, 128, 2**16) if facts.kind == CPU else Extent(1, 128, 2**20)
    chunk_bytes = shape.blocks * shape.block_words * _WORD_BYTES
    if facts.kind == CPU:
        wanted = _CPU_BYTES
    else:
        torch.cuda.empty_cache()
        free, _ = torch.cuda.mem_get_info(torch.device(facts.device))
        wanted = min(free * permille // 1000, free - _LEFT_FREE_BYTES)
    # Any other error of a GPU is none of too little memory.
    refused = RuntimeError if facts.kind == CPU else torch.cuda.OutOfMemoryError
    chunks: List[Any] = []
    asked = max(0, wanted) // chunk_bytes
    for _ in range(asked):
        try:
            chunk = torch.empty(shape.blocks, shape.block_words, dtype=torch.int64, device=facts.device)
        except refused:
            break
        chunks.append(chunk)
    return chunks, shape._replace(chunks=len(chunks)), asked


def _wait(facts: DeviceFacts) -> None:
    if facts.kind != CPU:
        import torch

        torch.cuda.synchronize(torch.device(facts.device))


def _given_back(facts: DeviceFacts) -> None:
    if facts.kind != CPU:
        import torch

        torch.cuda.empty_cache()
