"""Draws the picture that is read: three lines of text."""
from PIL import Image, ImageDraw, ImageFont

LINES = ["NEREID", "port 8000", "2026-11-30"]

picture = Image.new("RGB", (640, 240), "white")
draw = ImageDraw.Draw(picture)
for number, line in enumerate(LINES):
    draw.text((30, 20 + 70 * number), line, fill="black", font=ImageFont.load_default(40))
picture.save("picture.png")
