"""``python -m bedrock_worker.run.fetch_url``: performs the request of a job's ``url``.

The job is read from the file ``BEDROCK_DATA_FILE``, or from stdin. Without the argument ``--allow-private``,
the program connects to public addresses only, also if a host name or a redirect leads to the address. It
prints the status and the beginning of the body. Exit status 0: the HTTP status is the expected one; 1: it is
another one, or the connection failed; 100: the request is impossible or forbidden; 124: no answer in time. A
redirect that keeps the scheme is followed, unless the job expects a redirect as its status.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import sys
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from types import SimpleNamespace
from typing import Any

from pydantic import ValidationError

from bedrock_worker.functions import FAIL_PERMANENTLY
from bedrock_worker.options import VERSION
from bedrock_worker.policy.program import PRIVATE_TOO
from bedrock_worker.report.reporter import TIMED_OUT
from bedrock_worker.run.run_function import read_job
from bedrockjobs.base.wire import command_error
from bedrockjobs.commands.options import Fetch

try:
    from aiohttp import (
        AddrInfoType,
        ClientError,
        ClientResponse,
        ClientSession,
        ClientTimeout,
        DummyCookieJar,
        TCPConnector,
        TraceConfig,
    )
    from yarl import URL
except ModuleNotFoundError as missing:  # of bedrockjobs-client
    sys.exit(f"the url of a job needs {missing.name}: install bedrockjobs-client[url], or bedrockjobs")

BODY_SHOWN_BYTES = 10_000
"""Maximum bytes of the body that are read and printed."""

EXPECTED, NOT_EXPECTED = 0, 1
"""Exit statuses of this program, in addition to those that every command of a worker may have."""


NAT64 = ip_network("64:ff9b::/96")
"""IPv6 networks that embed an IPv4 address in the last 32 bits."""


REFUSED = tuple(
    map(
        ip_network,
        (
            "168.63.129.16/32",  # Azure's metadata service
            "192.0.0.0/24",  # IETF protocol assignments, including Oracle's metadata service
            "100.100.100.200/32",  # Alibaba's metadata service
            "192.88.99.0/24",  # 6to4 relays (obsolete)
            "fec0::/10",  # site-local addresses
            "100:0:0:1::/64",  # dummy prefix
            "3fff::/20",  # documentation
            "5f00::/16",  # segment routing
            "::/96",  # IPv4-compatible addresses (obsolete)
            "64:ff9b:1::/48",  # local-use NAT64
        ),
    )
)
"""Networks that do not count as public here, although IANA's registry or some Python versions call them
global: through them a request could reach a private network, or the metadata service of a cloud."""


def main(arguments: Sequence[str] = ()) -> int:
    """Perform the request and return the exit status."""
    if unknown := [argument for argument in arguments if argument != PRIVATE_TOO]:
        print(f"expected {PRIVATE_TOO} or nothing, got {unknown[0]}", file=sys.stderr)
        return FAIL_PERMANENTLY
    try:
        fetch = Fetch.model_validate(read_job().get("url") or {})
    except ValidationError as error:
        words = command_error(error)
        print(f"url: {words.detail or words.reason}", file=sys.stderr)
        return FAIL_PERMANENTLY
    return asyncio.run(perform(fetch, private=PRIVATE_TOO in arguments))


async def perform(fetch: Fetch, *, private: bool = False) -> int:
    """Perform a request, with ``private`` also to an address that is not public; return the exit status.

    Prints the answer.
    """
    door = AddressFilter(private=private)
    try:
        async with (
            asyncio.timeout(fetch.timeout),
            _session(door) as session,
            _request(session, fetch) as answer,
        ):
            status, text = answer.status, await _shown(answer)
            print(f"HTTP {status} {answer.reason or ''}".rstrip())
    except TimeoutError:
        print(f"no answer within {fetch.timeout} s", file=sys.stderr)
        return TIMED_OUT
    except (ClientError, OSError) as error:
        if door.refused:
            print(f"expected a public address, got {door.refused} (see --allow-private)", file=sys.stderr)
            return FAIL_PERMANENTLY
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return NOT_EXPECTED
    except ValueError as error:  # a header with a line end, or an invalid address
        print(f"the request cannot be made: {error}", file=sys.stderr)
        return FAIL_PERMANENTLY
    if text:
        print(text)
    if status in fetch.status or (not fetch.status and 200 <= status <= 299):
        return EXPECTED
    wanted = ", ".join(map(str, fetch.status)) or "2xx"
    print(f"status {status}, expected {wanted}", file=sys.stderr)
    return NOT_EXPECTED


class AddressFilter:
    """Creates the socket of each connection, also after a redirect, if its address is allowed."""

    def __init__(self, *, private: bool) -> None:
        """Allow only public addresses, or all with ``private``."""
        self._private = private
        self.refused = ""
        """The last refused address, unless one was allowed since."""

    def open_socket(self, address: AddrInfoType) -> socket.socket:
        """Return a socket for an address; raises PermissionError."""
        family, kind, protocol, _, (host, *_) = address
        if not self._private and not (is_public(str(host)) and not is_own(address)):
            self.refused = str(host)
            raise PermissionError(errno.EACCES, "not a public address")
        self.refused = ""
        return socket.socket(family, kind, protocol)


def is_public(host: str) -> bool:
    """Return whether an address, and any address embedded in it, is public."""
    address = ip_address(host.partition("%")[0])
    if any(address in network for network in REFUSED) and getattr(address, "ipv4_mapped", None) is None:
        return False
    if not all(is_public(str(one)) for one in _embedded(address)):
        return False
    mapped = isinstance(address, IPv6Address) and address.ipv4_mapped is not None
    return mapped or (address.is_global and not address.is_multicast)


def _embedded(address: IPv4Address | IPv6Address) -> list[IPv4Address]:
    """Return the IPv4 addresses that an IPv6 address leads to; Teredo addresses are never public."""
    if isinstance(address, IPv4Address):
        return []
    inside = [address.ipv4_mapped, address.sixtofour]
    if address in NAT64:
        inside.append(IPv4Address(int(address) & 0xFFFFFFFF))
    return [one for one in inside if one is not None]


def is_own(address: AddrInfoType) -> bool:
    """Return whether an address, or one embedded in it, belongs to this machine.

    To reach an address of its own, the kernel uses that address, or a loopback address, as the source. So
    this asks for the source address, without sending anything.
    """
    family, kind, protocol, _, where = address
    for inside in _embedded(ip_address(str(where[0]).partition("%")[0])):
        if is_own((socket.AF_INET, kind, protocol, "", (str(inside), where[1]))):
            return True
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(where)  # sends nothing
        except OSError:  # no route; connecting reports the error
            return False
        own = ip_address(str(probe.getsockname()[0]).partition("%")[0])
    return own.is_loopback or own == ip_address(str(where[0]).partition("%")[0])


def _session(door: AddressFilter) -> ClientSession:
    tracing = TraceConfig()
    tracing.on_request_redirect.append(_check_redirect)
    return ClientSession(
        auto_decompress=False,
        cookie_jar=DummyCookieJar(),
        timeout=ClientTimeout(),
        trace_configs=[tracing],
        connector=TCPConnector(socket_factory=door.open_socket),
    )


def _request(session: ClientSession, fetch: Fetch) -> Any:
    """Start a request. It asks for an uncompressed body: a few compressed bytes may expand to gigabytes."""
    names = {name.lower() for name in fetch.headers}
    own = {"Accept-Encoding": "identity", "User-Agent": f"bedrockjobs/{VERSION}"}
    return session.request(
        fetch.method,
        fetch.url,
        headers={
            **{name: value for name, value in own.items() if name.lower() not in names},
            **fetch.headers,
        },
        data=fetch.body.encode() if fetch.body else None,
        allow_redirects=not any(300 <= status <= 399 for status in fetch.status),
        max_redirects=5,
    )


async def _check_redirect(_: ClientSession, __: SimpleNamespace, redirect: Any) -> None:
    answer = redirect.response
    target = answer.url.join(URL(answer.headers.get("Location", "")))
    if target.scheme != answer.url.scheme:
        raise ClientError(f"redirected from {answer.url.scheme} to {target.scheme or 'nowhere'}")


async def _shown(answer: ClientResponse) -> str:
    """Return the beginning of a body as text."""
    if packed := answer.headers.get("Content-Encoding", "").replace("identity", ""):
        return f"[body not shown: {packed}]"
    body = bytearray()
    while len(body) <= BODY_SHOWN_BYTES and (part := await answer.content.read(BODY_SHOWN_BYTES)):
        body += part
    try:
        text = body[:BODY_SHOWN_BYTES].decode(answer.charset or "utf-8", "replace")
    except LookupError:  # an unknown charset
        text = body[:BODY_SHOWN_BYTES].decode("utf-8", "replace")
    return text + ("\n[cut]" if len(body) > BODY_SHOWN_BYTES else "")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
