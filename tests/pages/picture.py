"""Make screenshots small: few colours, in a PNG with a palette. It is independent of pages."""

from __future__ import annotations

import asyncio
import base64
import struct
import zlib
from collections import Counter

from playwright.async_api import Page

_PIXELS = """async (png) => {
    const given = Uint8Array.from(atob(png), (character) => character.charCodeAt(0));
    const image = await createImageBitmap(new Blob([given], {type: "image/png"}));
    const canvas = new OffscreenCanvas(image.width, image.height).getContext("2d");
    canvas.drawImage(image, 0, 0);
    const bytes = canvas.getImageData(0, 0, image.width, image.height).data;
    let text = "";
    for (let at = 0; at < bytes.length; at += 32768)
        text += String.fromCharCode(...bytes.subarray(at, at + 32768));
    return [image.width, image.height, btoa(text)];
}"""
PALETTE = 256
"""Colours of a PNG with one byte a pixel."""


async def small(page: Page, png: bytes) -> bytes:
    """Return a PNG with at most 256 colours; ``page`` is any that is open and of no use any more."""
    width, height, text = await page.evaluate(_PIXELS, base64.b64encode(png).decode())
    return await asyncio.to_thread(_few_colours, width, height, base64.b64decode(text))


def _few_colours(width: int, height: int, pixels: bytes) -> bytes:
    """Keep the most frequent colours; each other becomes the nearest of them."""
    every = [pixels[at : at + 3] for at in range(0, len(pixels), 4)]
    kept = [colour for colour, _ in Counter(every).most_common(PALETTE)]
    number = {colour: at for at, colour in enumerate(kept)}
    for colour in set(every) - number.keys():
        number[colour] = min(range(len(kept)), key=lambda at: _distance(colour, kept[at]))
    return _png(width, height, bytes(number[colour] for colour in every), kept)


def _distance(one: bytes, other: bytes) -> int:
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True))


def _png(width: int, height: int, marks: bytes, colours: list[bytes]) -> bytes:
    lines = b"".join(b"\0" + marks[at : at + width] for at in range(0, width * height, width))
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        (b"PLTE", b"".join(colours)),
        (b"IDAT", zlib.compress(lines, 9)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )
