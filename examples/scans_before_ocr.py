"""Turn scans upright before Tesseract reads them. Needs Debian's ``tesseract-ocr``.

python examples/scans_before_ocr.py
"""

import io
import subprocess
import textwrap

from PIL import Image, ImageDraw, ImageFont

import unshift
from unshift import restorer as source

page = Image.new("L", (850, 1100), 255)  # stands in for your scan
text = " ".join((source.__doc__ or "").replace("`", "").split())
font = ImageFont.load_default(16)
ImageDraw.Draw(page).multiline_text((70, 90), textwrap.fill(text, 78), 0, font, spacing=8)


def words_read(image: Image.Image) -> int:
    """Return the number of words of the text that Tesseract reads."""
    image.save(buffer := io.BytesIO(), "PNG", dpi=(100, 100))
    read = subprocess.run(["tesseract", "stdin", "stdout"], input=buffer.getvalue(), capture_output=True, check=True)
    return len(set(read.stdout.decode().split()) & set(text.split()))


restorer = unshift.load("pages")
for degrees in (0, 90, 180, 270):
    scan = page.rotate(degrees, expand=True)
    upright = restorer.restore(scan)
    found = f"{words_read(scan):3} of {len(set(text.split()))} words as it lies, {words_read(upright)} restored"
    print(f"{degrees:3} degrees: {found}, same pixels: {upright.tobytes() == page.tobytes()}")
