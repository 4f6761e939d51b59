"""One TLS connection: a transport for the protocol above it, and a protocol for the transport below it.

asyncio's own TLS is not used, because TLS sniffing has already read the first byte, and because the raw
protocol needs half-close: a client that has sent its last request still gets its replies.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from bedrockjobs.tls import certificate_name

HANDSHAKE_BYTES_MAX = 64 * 1024
"""Maximum bytes received in a handshake; a certificate chain has less than 20 KiB."""

PIECE_BYTES = 256 * 1024
"""Maximum bytes encrypted or decrypted at a time, which bounds the memory for copies."""

CERTIFICATE_NAME = "certificate_name"
"""Key for ``get_extra_info``: the name in the peer's certificate; empty if there is no certificate or no
name."""


class TLSStream(asyncio.Transport, asyncio.Protocol):
    """Encrypts and decrypts one connection.

    ``ready`` is called after the handshake and sets the protocol. If the handshake fails, ``failed`` is
    called with the reason instead, and the connection is closed.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        ready: Callable[[TLSStream], None],
        failed: Callable[[Exception], None],
        server_name: str | None = None,
        *,
        in_turn: Callable[[Callable[[], object]], object] | None = None,
    ) -> None:
        """Create the server's side, or with ``server_name`` the client's side of a connection to that server.

        A step of the handshake takes up to a millisecond. ``in_turn`` gets each step and calls it after other
        connections have had their turn. Without ``in_turn``, steps are taken immediately.
        """
        super().__init__()
        self._context = context
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_name is None, server_hostname=server_name
        )
        self._ready: Callable[[TLSStream], None] | None = ready
        self._failed = failed
        self._handshake_bytes = 0
        self._in_turn = in_turn
        self._waits = self._holds = self._is_cut = False
        """Whether a step of the handshake waits for its turn; and whether, during that wait, reading was
        paused, or the peer's input has ended."""
        self._transport: asyncio.Transport | None = None
        self._protocol: asyncio.BaseProtocol | None = None
        self._reading = True
        self._ended = self._end_reported = False
        """Whether the peer has sent close_notify, and whether ``eof_received`` was called for it."""
        self._closing = False
        self._error: Exception | None = None

    # --- the protocol of the transport below ---------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the handshake."""
        self._transport = cast(asyncio.Transport, transport)
        self._take_step()

    def data_received(self, data: bytes) -> None:
        """Process encrypted bytes."""
        if self._closing:
            return
        self._incoming.write(data)
        if self._ready is None:
            self._read()
            return
        self._handshake_bytes += len(data)
        self._take_step()

    def eof_received(self) -> bool:
        """Return whether to keep the connection open: after close_notify, but not after a bare EOF.

        A bare EOF may be an attack that cuts the data short.
        """
        if self._waits:
            self._is_cut = True
            return True
        if self._ready is None:
            self._read()
        return self._ended and not self._closing

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify the protocol above, or report a failed handshake."""
        self._closing = True
        self._transport = None
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            protocol.connection_lost(exc or self._error)
        elif self._ready is not None:
            self._ready = None
            self._failed(exc or self._error or ConnectionResetError("it was closed during the handshake"))

    def pause_writing(self) -> None:
        """Pause the protocol above, because the peer does not read."""
        if self._protocol is not None:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Resume the protocol above, because the peer has read."""
        if self._protocol is not None:
            self._protocol.resume_writing()

    # --- the transport of the protocol above ---------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return information about the TLS session or the underlying transport."""
        if name == "sslcontext":
            return self._context
        if name == "ssl_object":
            return self._ssl
        if name == CERTIFICATE_NAME:
            return certificate_name(self._ssl.getpeercert())
        return default if self._transport is None else self._transport.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Pass data from now on to ``protocol``."""
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol above."""
        assert self._protocol is not None
        return self._protocol

    def is_closing(self) -> bool:
        """Return whether the connection is closed or closing."""
        return self._closing or self._transport is None or self._transport.is_closing()

    def is_reading(self) -> bool:
        """Return whether received data is passed to the protocol."""
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        """Stop passing received data to the protocol."""
        self._reading = False
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Pass buffered and new data to the protocol again."""
        if self._reading or self._transport is None:
            return
        self._reading = True
        self._transport.resume_reading()
        asyncio.get_running_loop().call_soon(self._read)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the number of unsent bytes at which the protocol is paused."""
        if self._transport is not None:
            self._transport.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """Return the number of unsent encrypted bytes."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt and send bytes."""
        left = memoryview(data)
        while left and not self.is_closing():
            try:
                count = self._ssl.write(left[:PIECE_BYTES])
            except ssl.SSLError as error:
                self._break(error)
                return
            left = left[count:]
            self._flush()

    def can_write_eof(self) -> bool:
        """Return True: half-close is supported."""
        return True

    def write_eof(self) -> None:
        """Send close_notify; data from the peer is still read."""
        if not self.is_closing():
            self._send_close_notify()

    def close(self) -> None:
        """Send close_notify, and close after all data is sent."""
        if self._closing or self._transport is None:
            return
        self._closing = True
        self._send_close_notify()
        self._transport.close()

    def abort(self) -> None:
        """Abort the connection."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    # --- inside --------------------------------------------------------------------------------------------

    def _take_step(self) -> None:
        """Continue the handshake with the bytes received so far: now, or when this stream has its turn."""
        if self._in_turn is None:
            self._shake_hands()
        elif not self._waits:
            self._waits = True
            self._in_turn(self._take_turn)
        elif self._transport is not None and not self._holds and self._incoming.pending > HANDSHAKE_BYTES_MAX:
            self._holds = True
            self._transport.pause_reading()

    def _take_turn(self) -> None:
        self._waits = False
        if self._closing or self._transport is None or self._transport.is_closing():
            return
        if self._holds:
            self._holds = False
            self._transport.resume_reading()
        self._shake_hands()
        if self._is_cut and not self._ended and self._transport is not None:
            self._transport.close()

    def _shake_hands(self) -> None:
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            if self._handshake_bytes > HANDSHAKE_BYTES_MAX:
                self._break(ConnectionAbortedError(f"it is larger than {HANDSHAKE_BYTES_MAX} bytes"))
            return
        except ssl.SSLError as error:
            self._break(error)
            return
        self._flush()
        ready, self._ready = self._ready, None
        assert ready is not None
        ready(self)
        self._read()

    def _read(self) -> None:
        """Pass decrypted data to the protocol until it pauses reading."""
        while self._reading and not (self._ended or self._closing):
            data = self._decrypted()
            self._flush()
            protocol = self._protocol
            if protocol is None:
                return
            if data:
                cast(asyncio.Protocol, protocol).data_received(data)
            elif not self._ended:
                return
        if self._ended and self._protocol is not None and not (self._end_reported or self._closing):
            self._end_reported = True
            if not cast(asyncio.Protocol, self._protocol).eof_received():
                self.close()

    def _decrypted(self) -> bytes:
        """Return decrypted data, about ``PIECE_BYTES`` at most; record the end of the stream."""
        pieces: list[bytes] = []
        size = 0
        try:
            while size < PIECE_BYTES:
                # Largest plaintext of a TLS record, and the most that one read returns.
                piece = self._ssl.read(16 * 1024)
                if not piece:
                    self._ended = True
                    break
                pieces.append(piece)
                size += len(piece)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self._ended = True
        except ssl.SSLError as error:
            self._break(error)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _flush(self) -> None:
        if self._outgoing.pending and self._transport is not None:
            self._transport.write(self._outgoing.read())

    def _send_close_notify(self) -> None:
        with suppress(ssl.SSLError):  # the peer's close_notify is still missing, and is not waited for
            self._ssl.unwrap()
        self._flush()

    def _break(self, error: OSError) -> None:
        """Close the connection after a TLS error, and send OpenSSL's alert to the peer."""
        self._error = error
        self._closing = True
        self._flush()
        if self._transport is not None:
            self._transport.close()
