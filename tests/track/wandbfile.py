"""The records of a `.wandb` file, as `wandb sync` would send them.

The file is a LevelDB log (https://github.com/google/leveldb/blob/main/doc/log_format.md) of Protobuf
messages, after seven bytes of its own: `:W&B`, a magic number and a version. This wandb brings the
messages, and no reader in Python.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_HEADER_BYTES = 7
_BLOCK_BYTES = 32768
# A whole record, or the last part of one.
_ENDS = (1, 4)


def records_of(path: Path) -> Iterator[Any]:
    """Each message of the file, in order."""
    from wandb.proto import wandb_internal_pb2

    data = path.read_bytes()
    assert data.startswith(b":W&B")
    place, message = _HEADER_BYTES, b""
    while place + 7 <= len(data):
        left = _BLOCK_BYTES - place % _BLOCK_BYTES
        if left < 7:
            # Too small for a header: the rest of the block is empty.
            place += left
            continue
        _checksum, length, kind = struct.unpack_from("<IHB", data, place)
        place += 7
        message += data[place : place + length]
        place += length
        if kind in _ENDS:
            record = wandb_internal_pb2.Record()
            record.ParseFromString(message)
            yield record
            message = b""
