"""Writes 50 pictures of mixed formats and sizes into a directory, made of pictures in scikit-image's wheel.

Usage: make.py DIRECTORY
"""
import struct
import sys
import zlib
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

DATA = Path(find_spec("skimage").origin).parent / "data"
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}
WORDS = "A server takes pictures and returns boxes in pixels of the picture that was sent to it".split()
# Columns and rows of Adam7's passes: first one and distance.
PASSES = [(0, 8, 0, 8), (4, 8, 0, 8), (0, 4, 4, 8), (2, 4, 0, 4), (0, 2, 2, 4), (1, 2, 0, 2), (0, 1, 1, 2)]


def source(name, mode="RGB"):
    return Image.open(DATA / name).convert(mode)


def collage(width, height):
    """Faces of several sizes between other pictures."""
    canvas = Image.new("RGB", (width, height), (90, 120, 60))
    names = ["astronaut.png", "coffee.png", "chelsea.png", "astronaut.png", "rocket.jpg", "astronaut.png"]
    for i, name in enumerate(names):
        side = (width // 3, height // 2)
        part = source(name).resize(side if name != "astronaut.png" else (min(side),) * 2, Image.Resampling.LANCZOS)
        canvas.paste(part, (i % 3 * side[0], i // 3 * side[1]))
    return canvas


def page(width, height, seed):
    """A printed page: a title, paragraphs, a figure with its caption, and a table."""
    random = np.random.default_rng(seed)
    canvas = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(canvas)
    unit = width // 40

    def text(x, y, size, count):
        line = " ".join(random.choice(WORDS, count))
        draw.text((x, y), line, fill="black", font=ImageFont.load_default(size))

    text(4 * unit, 2 * unit, 2 * unit, 6)
    y = 7 * unit
    while y < height - 24 * unit:
        text(3 * unit, y, unit, 12)
        y += unit * 3 // 2
    canvas.paste(source("coffee.png").resize((16 * unit, 10 * unit)), (3 * unit, y + unit))
    text(5 * unit, y + 12 * unit, unit, 5)
    for row in range(5):
        for column in range(3):
            left, top = 22 * unit + column * 5 * unit, y + unit + row * 2 * unit
            draw.rectangle((left, top, left + 5 * unit, top + 2 * unit), outline="black")
            text(left + unit // 2, top + unit // 2, unit, 1)
    return canvas


def line(seed, height=40):
    """A line of text, at least four times as wide as high."""
    random = np.random.default_rng(seed)
    text = " ".join(random.choice(WORDS, 5))
    font = ImageFont.load_default(height * 3 // 4)
    canvas = Image.new("RGB", (round(font.getlength(text)) + height, height), (250, 250, 240))
    ImageDraw.Draw(canvas).text((height // 2, height // 10), text, fill=(20, 20, 60), font=font)
    return canvas


def png(pixels, interlaced=False):
    """A PNG of 8 or 16 bits, which Pillow does not write interlaced or with 16 bits in colour."""
    height, width = pixels.shape[:2]
    channels = 1 if pixels.ndim == 2 else pixels.shape[2]
    passes = PASSES if interlaced else [(0, 1, 0, 1)]
    parts = [pixels[y::down, x::right] for x, right, y, down in passes]
    rows = [b"\0" + row.astype(row.dtype.newbyteorder(">")).tobytes() for part in parts if part.size for row in part]
    kind = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    head = struct.pack(">IIBBBBB", width, height, pixels.itemsize * 8, kind, 0, 0, interlaced)

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"".join(rows))) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def wide(picture):
    """16 bits per channel, whose lower ones are not those of the upper."""
    pixels = np.asarray(picture).astype(np.uint16) * 256
    return pixels + np.arange(pixels.size, dtype=np.uint16).reshape(pixels.shape) % 256


def pictures():
    """Pairs of a file's name and a picture with options of `save`, or bytes."""
    astronaut, coffee, chelsea = (source(f"{name}.png") for name in ("astronaut", "coffee", "chelsea"))
    alpha = Image.fromarray(np.tile(np.linspace(0, 255, 512).astype(np.uint8), (512, 1)))
    see_through = astronaut.copy()
    see_through.putalpha(alpha)
    dot = Image.new("RGB", (1, 1), (200, 100, 50))
    large = collage(4000, 3000)
    yield "baseline.jpg", astronaut, {"quality": 95}
    yield "progressive.jpg", astronaut, {"quality": 85, "progressive": True}
    yield "grey.jpg", astronaut.convert("L"), {"quality": 90}
    yield "cmyk.jpg", astronaut.convert("CMYK"), {"quality": 90}
    yield "full_chroma.jpg", coffee, {"quality": 90, "subsampling": 0}
    yield "half_chroma.jpg", coffee, {"quality": 90, "subsampling": 1}
    yield "odd.jpg", collage(511, 333), {"quality": 90, "subsampling": 2}
    yield "restarts.jpg", chelsea, {"quality": 90, "restart_marker_blocks": 7}
    yield "progressive_grey.jpg", chelsea.convert("L"), {"progressive": True}
    for orientation in range(1, 9):
        upright = collage(900, 700)
        # What the tag undoes.
        stored = upright.transpose(TURNS[orientation]) if orientation in TURNS else upright
        exif = Image.Exif()
        exif[0x0112] = orientation
        yield f"exif_{orientation}.jpg", stored, {"quality": 92, "exif": exif.tobytes()}
    yield "large.jpg", large, {"quality": 88}
    yield "large_progressive.jpg", large, {"quality": 80, "progressive": True}
    yield "dot.jpg", dot, {}
    yield "page.jpg", page(1240, 1754, 1), {"quality": 90}
    yield "page_turned.jpg", page(1000, 1414, 2).transpose(Image.Transpose.ROTATE_90), {"quality": 85}
    yield "rgb.png", astronaut, {}
    yield "grey.png", astronaut.convert("L"), {}
    yield "bits.png", source("page.png", "1"), {}
    yield "palette.png", astronaut.convert("P", palette=Image.Palette.ADAPTIVE, colors=200), {}
    yield "palette_16.png", coffee.convert("P", palette=Image.Palette.ADAPTIVE, colors=16), {"bits": 4}
    yield "alpha.png", see_through, {}
    yield "grey_alpha.png", see_through.convert("LA"), {}
    yield "wide.png", png(wide(astronaut)), None
    yield "wide_grey.png", png(wide(chelsea.convert("L"))), None
    yield "interlaced.png", png(np.asarray(astronaut.crop((0, 0, 509, 301))), True), None
    yield "interlaced_wide.png", png(wide(coffee), True), None
    yield "dot.png", dot, {}
    yield "page.png", page(800, 1131, 3), {}
    yield "page_upside_down.png", page(800, 1131, 4).transpose(Image.Transpose.ROTATE_180), {}
    yield "large.png", page(3000, 4000, 5), {"compress_level": 1}
    yield "lossy.webp", astronaut, {"quality": 85}
    yield "lossless.webp", astronaut, {"lossless": True, "method": 0}
    yield "lossy_alpha.webp", see_through, {"quality": 80}
    yield "lossless_alpha.webp", see_through, {"lossless": True, "method": 0, "exact": True}
    yield "large.webp", large, {"quality": 75, "method": 0}
    yield "page.webp", page(1000, 1414, 6).transpose(Image.Transpose.ROTATE_270), {"quality": 90}
    yield "one.gif", astronaut, {}
    yield "frames.gif", coffee, {"save_all": True, "append_images": [chelsea.resize(coffee.size)]}
    yield "see_through.gif", see_through, {}
    yield "grey.gif", chelsea.convert("L"), {}
    yield "rgb.bmp", astronaut, {}
    yield "palette.bmp", chelsea.convert("P"), {}
    yield "grey.bmp", coffee.convert("L"), {}


def lines():
    """Lines of text, upright and upside down."""
    formats = ["jpg", "png", "webp", "bmp", "gif"]
    for i in range(24):
        written = line(i, 24 + 7 * (i % 9))
        yield f"line_{i}.{formats[i % 5]}", written.rotate(180) if i % 3 == 1 else written, {}


def write(directory, made):
    directory.mkdir(parents=True)
    for name, picture, options in made:
        if options is None:
            (directory / name).write_bytes(picture)
        else:
            picture.save(directory / name, **options)
    return len(list(directory.iterdir()))


if __name__ == "__main__":
    to = Path(sys.argv[1])
    counts = write(to / "pictures", pictures()), write(to / "lines", lines())
    print(f"{counts[0]} pictures, {counts[1]} lines of text")
