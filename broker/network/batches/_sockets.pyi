import select
import socket

from barnabas.protocol.schema import Part

EACH_BYTES: int
OUTPUTS: int

def receive_each(descriptors: list[int], /) -> list[bytearray | int]: ...
def send_each(descriptors: list[int], data: list[bytes], /) -> list[int]: ...
def send_parts(sock: socket.socket, parts: list[Part], most: int, /) -> tuple[int, int, bool, int]: ...
def wait_and_send(
    selector: select.epoll, timeout_ns: int, descriptors: list[int], parts: list[list[Part]], most: int, /
) -> tuple[list[tuple[int, int]], list[tuple[int, int, bool, int]], int]: ...
