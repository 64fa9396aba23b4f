"""A websocket client that may break every rule of the protocol."""

from __future__ import annotations

import base64
import os
import socket
import struct

TEXT, CLOSE, PING, FIN = 1, 8, 9, 0x80


class RawSocket:
    """Says hello at once; ``receive_buffer`` makes a reader that falls behind quickly."""

    def __init__(self, port: int, receive_buffer: int | None = None) -> None:
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(10)
        self.socket.connect(("127.0.0.1", port))
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(
            f"GET /ws/generate HTTP/1.1\r\nHost: localhost:{port}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
            "Sec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        self.buffer = bytearray()
        while b"\r\n\r\n" not in self.buffer:
            self.buffer += self.socket.recv(4096)
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        assert b" 101 " in head.split(b"\r\n")[0]
        assert b"permessage-deflate" not in head

    def send(
        self, first: int, payload: bytes, masked: bool = True, length: int | None = None
    ) -> None:
        size = len(payload) if length is None else length
        bit = 0x80 if masked else 0
        if size < 126:
            head = struct.pack("!BB", first, bit | size)
        elif size < 65536:
            head = struct.pack("!BBH", first, bit | 126, size)
        else:
            head = struct.pack("!BBQ", first, bit | 127, size)
        mask = b"\x00\x00\x00\x00" if masked else b""
        self.socket.sendall(head + mask + payload)

    def frame(self) -> tuple[int, bytes] | None:
        """The next frame's opcode and payload; None at the end of the stream."""
        head = self._take(2)
        if head is None:
            return None
        size = head[1] & 0x7F
        if size >= 126:
            more = self._take(2 if size == 126 else 8)
            if more is None:
                return None
            size = int.from_bytes(more, "big")
        payload = self._take(size)
        return None if payload is None else (head[0] & 0x0F, payload)

    def _take(self, size: int) -> bytes | None:
        while len(self.buffer) < size:
            try:
                chunk = self.socket.recv(1 << 20)
            except ConnectionResetError:
                return None
            if not chunk:
                return None
            self.buffer += chunk
        taken, self.buffer = self.buffer[:size], self.buffer[size:]
        return bytes(taken)

    def close_code(self) -> int | None:
        while (frame := self.frame()) is not None:
            if frame[0] == 8:
                return struct.unpack("!H", frame[1][:2])[0] if frame[1] else 1005
        return None
