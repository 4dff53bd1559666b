"""Small requests and responses of many connections, received or sent by one call.

`receive_each` and `send_each` are written in C (`_sockets.c`). The Python functions are the fallback where there was no
C compiler. A test compares both.

Rules
1. The functions in C keep the interpreter's lock. Such a system call does not wait for a peer and takes 1 to 3 µs. To
   give the lock away costs as much when a handler waits for it: it is woken, finds the lock taken again, and sleeps.
2. So they move little: `EACH_BYTES` from a socket, `SEND_BYTES_MAX` to one, `AT_ONCE` sockets a call, and no more
   responses once they have `SENT_BYTES_MAX`. On the loopback the receiver's half of TCP runs in a send, and a client
   with the smallest segments makes 8 KiB take 0.15 ms.
3. An error of one socket is its own: the others of the call have their result.
4. Files are not written this way. The write of a small batch takes as long, but it can wait for the disk, and all
   threads would wait with it.

Threads: the processor that owns the connections.
"""

from __future__ import annotations

import errno
import os
from typing import Final

__all__ = (
    "AT_ONCE",
    "EACH_BYTES",
    "SEND_BYTES_MAX",
    "SENT_BYTES_MAX",
    "python_receive_each",
    "python_send_each",
    "receive_each",
    "send_each",
)

EACH_BYTES: Final = 2048
SEND_BYTES_MAX: Final = 8192
SENT_BYTES_MAX: Final = 32 * 1024
AT_ONCE: Final = 64


def python_receive_each(descriptors: list[int], /) -> list[bytearray | int]:
    """Receive up to EACH_BYTES from each socket, which does not block.

    Returns for each what came, nothing at the end of its stream, or the negative number of its error.
    """
    received: list[bytearray | int] = []
    for descriptor in descriptors:
        try:
            received.append(bytearray(os.read(descriptor, EACH_BYTES)))
        except OSError as error:
            received.append(_number(error))
    return received


def python_send_each(descriptors: list[int], data: list[bytes], /) -> list[int]:
    """Send its bytes to each socket, which does not block.

    Returns for each how many its kernel took, or the negative number of its error.
    """
    sent: list[int] = []
    for descriptor, piece in zip(descriptors, data, strict=True):
        try:
            sent.append(os.write(descriptor, piece))
        except OSError as error:
            sent.append(_number(error))
    return sent


def _number(error: OSError) -> int:
    return -errno.EAGAIN if isinstance(error, BlockingIOError) else -(error.errno or errno.EIO)


try:
    from barnabas.broker.network.batches._sockets import receive_each, send_each
except ImportError:  # there was no C compiler, or the machine is simulated
    receive_each, send_each = python_receive_each, python_send_each
