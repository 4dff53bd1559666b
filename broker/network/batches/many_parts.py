"""The parts of a large response, buffers and regions of files, sent by one call.

The functions are written in C (`_sockets.c`). Those in Python are the fallback where there was no C compiler; a test
compares both.

Why: a client that reads fast takes 128 to 256 KiB whenever its socket has space. What the broker does in between, it
does with cold caches. In Python that took half as long as the system calls.

The functions in C give the interpreter's lock away, once for all system calls: a file may have to be read from the
disk.

Threads: the processor that owns the connection.
"""

from __future__ import annotations

import errno
import os
import select
import socket
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from barnabas.protocol.schema import Part

__all__ = ("OUTPUTS", "failure", "python_send_parts", "python_wait_and_send", "send_parts", "wait_and_send")

OUTPUTS: Final = 8  # sockets
_BUFFERS_MAX: Final = 16  # of one system call
_EVENTS_MAX: Final = 64


def python_send_parts(sock: socket.socket, parts: list[Part], most: int, /) -> tuple[int, int, bool, int]:
    """Send parts through a socket that does not block, until it is full or about `most` bytes are sent.

    Returns how many parts are sent, how many bytes of the next one, whether the socket is full (an edge will then
    report that it has space), and an errno or 0. It is ENODATA for a file that ends before its region does.
    """
    done = sent = 0
    try:
        while done < len(parts):
            if size_of(parts[done]) == sent:
                done, sent = done + 1, 0
                continue
            if most <= 0:
                break
            count = _send_some(sock, parts, done, sent, most)
            most -= count
            sent += count
            while sent and sent >= (size := size_of(parts[done])):
                sent -= size
                done += 1
    except BlockingIOError:
        return done, sent, True, 0
    except OSError as error:
        return done, sent, False, error.errno or errno.EIO
    return done, sent, False, 0


def failure(number: int) -> OSError:
    """Return the exception for an errno of these functions."""
    if number == errno.ENODATA:
        return OSError("the file ends before the slice to be sent")
    return OSError(number, os.strerror(number))


def _send_some(sock: socket.socket, parts: list[Part], first: int, skipped: int, most: int) -> int:
    """Send some of a region, or of all buffers before the next one, without the first bytes; return how many."""
    part = parts[first]
    if not isinstance(part, (bytes, bytearray, memoryview)):
        count = min(part.size - skipped, most)
        sent = os.sendfile(sock.fileno(), part.fileno(), part.position + skipped, count)
        if not sent:
            raise OSError(errno.ENODATA, os.strerror(errno.ENODATA))
        return sent
    buffers: list[bytes | memoryview] = [memoryview(part)[skipped:]]
    for part in parts[first + 1 : first + _BUFFERS_MAX]:
        if not isinstance(part, (bytes, bytearray, memoryview)):
            break
        buffers.append(part)
    # Why: a header and the file region after it should share a packet.
    flags = socket.MSG_MORE if any(map(size_of, parts[first + len(buffers) :])) else 0
    return sock.sendmsg(buffers, (), flags)


def python_wait_and_send(
    selector: select.epoll, timeout_ns: int, descriptors: list[int], _parts: list[list[Part]], _most: int, /
) -> tuple[list[tuple[int, int]], list[tuple[int, int, bool, int]], int]:
    """Wait until a selector has events; the function in C sends meanwhile, each time a full socket has space.

    `descriptors` are at most OUTPUTS full sockets of the selector, `parts` what each has to send. The wait ends when
    there are other events, after the time, and when a socket is not full any more: most of its parts or about `most`
    bytes are sent, or it failed. Returns the events that were not handled; for each socket what `send_parts` returns;
    and for how many nanoseconds it sent.
    """
    return selector.poll(timeout_ns / 1e9, _EVENTS_MAX), [(0, 0, True, 0)] * len(descriptors), 0


def size_of(part: Part) -> int:
    """Return the bytes of a part."""
    return len(part) if isinstance(part, (bytes, bytearray, memoryview)) else part.size


try:
    from barnabas.broker.network.batches._sockets import send_parts, wait_and_send
except ImportError:  # there was no C compiler, or the machine is simulated
    send_parts, wait_and_send = python_send_parts, python_wait_and_send
