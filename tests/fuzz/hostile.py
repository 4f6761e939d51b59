"""Hostile inputs that are too large or too regular to be kept as files; each target must withstand them.

Each is a name and a function that makes the input on demand.
"""

from __future__ import annotations

from collections.abc import Callable

MIB = 1 << 20
FORM = b"Content-Type: application/x-www-form-urlencoded\r\n"


def _post(command: bytes, headers: bytes, body: bytes) -> bytes:
    return b"POST /%b HTTP/1.1\r\nHost: localhost\r\n%bContent-Length: @\r\n\r\n%b" % (command, headers, body)


def _login(form: bytes) -> bytes:
    return _post(b"ui/login", FORM, form)


def _asked(header: bytes) -> bytes:
    return b"GET /ui/ HTTP/1.1\r\nHost: localhost\r\n%b\r\n\r\n" % header


def _chunked(first: bytes, body: bytes) -> bytes:
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
    return first + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


def _nested(depth: int, inner: bytes) -> bytes:
    return b'{"a":' * depth + inner + b"}" * depth


def _header(name: bytes, value: bytes) -> bytes:
    return b"CreateJob\r\nname: a\r\n%b: %b\r\n\r\n" % (name, value)


def _many(form: bytes, between: bytes, count: int) -> bytes:
    return between.join(form % number for number in range(count))


HOSTILE: dict[str, dict[str, Callable[[], bytes]]] = {
    "raw": {
        "a MB of backslashes in a header": lambda: _header(b"data", b"\\" * MIB),
        "a MB of escapes": lambda: _header(b"data", b"\\u00e9" * 200_000),
        "chunks of 1 byte": lambda: _chunked(b"CreateJob\r\n", b'{"name":"a"' + b" " * 150_000 + b"}"),
        "a million blank lines": lambda: b"\r\n" * 1_000_000 + b"Ping\r\n\r\n",
        "a line that goes on and on": lambda: b"Ping\r\na: b\r\n" + b" c\r\n" * 100 + b"\r\n",
        "many small requests": lambda: b"Ping\r\n\r\n" * 5_000,
        "a head of 1 MB without an end": lambda: b"Ping\r\na: " + b"x" * MIB,
        "a number of a million digits": lambda: _header(b"timeout", b"9" * MIB),
        "a date of a million digits": lambda: _header(b"firstRun", b"1" * MIB),
        "100 patterns": lambda: (
            b"GetJobs\r\nnumResults: 9\r\nnames: " + b'["' + b'","'.join([b"*a" * 40] * 99) + b'"]\r\n\r\n'
        ),
    },
    "http": {
        "2 MB of % as a form": lambda: _post(b"CreateJob", FORM, b"%" * 2_000_000),
        "3 MB of %41 as a form": lambda: _post(b"CreateJob", FORM, b"name=" + b"%41" * 1_000_000),
        "a form of 300,000 fields": lambda: _post(b"CreateJob", FORM, b"a=b&" * 300_000),
        "a form of many names": lambda: _post(b"CreateJob", FORM, _many(b"n%d=1", b"&", 100_000)),
        "an object of many names": lambda: _post(
            b"CreateJob", b"", b'{"name":"a","data":{' + _many(b'"%d":[]', b",", 100_000) + b"}}"
        ),
        "a list of many jobs": lambda: _post(
            b"CreateJobs", b"", b'{"jobs":[' + _many(b'{"name":"%d"}', b",", 60_000) + b"]}"
        ),
        "chunks of 1 byte": lambda: _chunked(b"POST /Ping HTTP/1.1\r\nHost: localhost\r\n", b" " * 150_000),
        "an address of many fields": lambda: (
            b"GET /ListJobs?" + b"a=b&" * 15_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
        ),
        "a header of commas": lambda: _post(b"Ping", b"Accept-Encoding: " + b",;q= " * 12_000 + b"\r\n", b""),
    },
    "stranger": {
        "a form of many fields": lambda: _login(b"a=b&" * 1_000),
        "a form of %": lambda: _login(b"token=" + b"%" * 4_000),
        "a form of 2 MB": lambda: _login(b"token=" + b"%41" * 700_000),
        "many cookies": lambda: _asked(b"Cookie: " + b"bedrockjobs_session=a; " * 600),
        "a cookie of quotes": lambda: _asked(b'Cookie: bedrockjobs_session="' + b"\\042" * 3_000),
        "a token of 15 KB": lambda: _asked(b"Authorization: Bearer bjr_" + b"1" * 15_000),
        "many proxies": lambda: _asked(b"X-Forwarded-For: " + b"127.0.0.1," * 1_500),
        "many tokens": lambda: b"Authenticate\r\ntoken: bjr_1_1_x\r\n\r\n" * 1_000,
        "a raw token of 1 MB": lambda: b"Authenticate\r\ntoken: " + b"a" * MIB + b"\r\n\r\n",
        "a raw header of 1 MB": lambda: b"ListJobs\r\nAuthorization: " + b"a " * (MIB // 2) + b"\r\n\r\n",
    },
    "token": {
        "a run of a million digits": lambda: b"bjr_" + b"9" * MIB,
        "a ping of a million digits": lambda: b"bjp_" + b"9" * MIB,
        "a million blanks": lambda: b"Bearer" + b" " * MIB,
        "underscores": lambda: b"bjr_1_1_" + b"_" * MIB,
    },
    "proxy": {
        "a million addresses": lambda: b"X-Forwarded-For: " + b"10.0.0.2," * (MIB // 9),
        "a million colons": lambda: b"X-Forwarded-For: " + b":" * MIB,
        "a name of a million characters": lambda: b"X-Remote-User: " + b"a" * MIB,
        "many lines": lambda: b"X-Forwarded-For: 10.0.0.2\n" * 5_000,
    },
    "certificate": {
        "many names": lambda: b"DNS=a\n" * 50_000,
        "a name of a million characters": lambda: b"commonName=" + b"a" * MIB,
    },
    "json": {
        "nested a million deep": lambda: b"[" * MIB,
        "objects nested a million deep": lambda: b'{"a":' * MIB,
        "nested as deep as may be, around much": lambda: _nested(62, b"[" + b"1," * 200_000 + b"1]"),
        "a wide list": lambda: b"[" + b"[]," * 300_000 + b"[]]",
        "a number of a million digits": lambda: b"[" + b"9" * MIB + b"]",
        "an exponent of a million digits": lambda: b"[1e" + b"9" * MIB + b"]",
        "one key 50,000 times": lambda: b"{" + b'"a":1,' * 50_000 + b'"a":1}',
        "many objects in each other": lambda: b"{" + _many(b'"%d":' + _nested(60, b"1"), b",", 130) + b"}",
        "a million escapes": lambda: b'{"a":"' + b"\\u00e9" * MIB + b'"}',
        "blanks": lambda: b"{" + b" " * 4 * MIB + b"}",
    },
    "cron": {
        "a list in every field": lambda: b" ".join([_many(b"%d", b",", 60)] * 3 + [b"*"] * 3),
        "a number of a million digits": lambda: b"9" * MIB + b" * * * *",
        "a million fields": lambda: b"* " * MIB,
        "a zone of a million characters": lambda: b"CRON TZ=" + b"a/" * MIB + b" * * * * *",
        "a day that comes every 40 years": lambda: b"0 0 0 ? 2 4#5 *",
        "weeks that never come together": lambda: b'{"week": "53", "day": "1", "month": "6"}',
    },
    "repeat": {
        "100,000 modifiers": lambda: b"FINISHED" + b", +1 DAY" * 100_000,
        "a million blanks": lambda: b"FINISHED, +1" + b" " * MIB + b"DAY",
        "numbers as large as may be": lambda: b"SCHEDULED, +99999999 SECONDS, +999 YEARS, -999 MONTHS",
    },
    "patterns": {
        "*a*a*a*a*b": lambda: b"a" * 255 + b"\n" + b"*a" * 4_000 + b"*b",
        "all question marks": lambda: b"a" * 255 + b"\n*" + b"?" * 8_000 + b"b",
        "stars": lambda: b"a" * 255 + b"\n" + b"*" * 8_000 + b"b",
        "sets": lambda: b"a" * 255 + b"\n" + b"*[a-z]" * 1_300 + b"[^a]",
        "a set without an end": lambda: b"a" * 255 + b"\n[" + b"a-" * 4_000,
        "parts that nearly match": lambda: b"a" * 255 + b"\n" + b"*aaaaaaaaab" * 700,
    },
    "definitions-json": {
        "nested a million deep": lambda: b"[" * MIB,
        "one key twice among many": lambda: b"{" + _many(b'"%d":1', b",", 40_000) + b',"39999":1}',
        "a long key around many": lambda: (
            b'{"schedules":[{"name":"a","schedule":"@daily","data":{"'
            + b"k" * 100_000
            + b'":['
            + b"1," * 20_000
            + b"1]}}]}"
        ),
    },
    "definitions-toml": {
        "nested deep": lambda: b"a = " + b"[" * 20_000,
        "a key of many parts": lambda: b".".join([b"a"] * 300) + b" = 1",
        "a list of digits": lambda: b"a = [" + b"1," * 32_000 + b"1]",
        "lists as deep as may be": lambda: b"a = [" + (b"[" * 60 + b"]" * 60 + b",") * 540 + b"1]",
        "tables as deep as may be": lambda: b"a = [" + (b"{a=" * 60 + b"1" + b"}" * 60 + b",") * 270 + b"1]",
        "long keys": lambda: _many(b".".join([b"a"] * 60) + b".b%d = 1", b"\n", 500),
        "many tables": lambda: b"[[schedules]]\nname = 'a'\nschedule = '@daily'\n" * 500,
    },
    "definitions-yaml": {
        "nested deep": lambda: b"[" * 1_000,
        "aliases of aliases": lambda: (
            b"a: &a [1,1,1,1,1,1,1,1,1]\n"
            + b"".join(b"%c: &%c [%b]\n" % (n, n, b",".join([b"*%c" % (n - 1)] * 9)) for n in range(98, 107))
        ),
        "an alias of itself": lambda: b"&a [*a]",
        "merges of merges": lambda: (
            b"a: &a {x: 1, y: 2}\n"
            + b"".join(
                b"%c: &%c {<<: [%b]}\n" % (n, n, b",".join([b"*%c" % (n - 1)] * 9)) for n in range(98, 107)
            )
        ),
        "as many aliases as may be": lambda: b"[&a [1,1,1,1,1,1,1,1]," + b"*a," * 1_300 + b"1]",
        "digits as deep as may be": lambda: b"[" * 63 + b"1," * 450 + b"1" + b"]" * 63,
        "lists as deep as may be": lambda: b"[" + (b"[" * 60 + b"]" * 60 + b",") * 33 + b"1]",
        "keys without a value": lambda: (b"? " * 60 + b"a\n") * 33,
        "an ordered map with one key twice": lambda: b"!!omap [a: 1, a: 1]",
    },
    "textproto": {
        "nested deep": lambda: b"a {" * 30_000,
        "a text in many parts": lambda: b"a: " + b'"b" ' * 15_000,
        "a list of many": lambda: b"a: [" + b"1," * 20_000 + b"1]",
        "many small jobs": lambda: _many(b"job{id:'%d'}", b"", 4_500),
        "jobs of one name": lambda: b"job{id:'a' noop{}}" * 3_600,
        "ends of lines": lambda: b"\n" * 60_000 + b"job { id: 'a' schedule: '@daily' noop {} }",
    },
}
