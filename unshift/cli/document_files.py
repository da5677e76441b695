"""Documents: judge the pages of a PDF or TIFF file one by one, and turn each upright.

A PDF is extended, never rewritten: the file is copied byte for byte, and new versions of the turned pages' dictionaries
are appended, with another rotation entry (an *incremental update*, section 7.5.6 of ISO 32000-1). So no pixel, text,
link or form field changes, and the signed bytes stay as they are. Pages are judged by their rendering. The written file
is opened again and compared. Needs ``unshift[pages]``.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unshift.cli.image_files import Reader, Refused, decode, write_moved

if TYPE_CHECKING:
    from torch import Tensor

    from unshift.restorer import Estimate

RENDERED = 1100
"""Longer side of a rendered page, in pixels: letters of 10 points on A4 paper have an x-height of 6 pixels."""


def is_document(source: Path) -> bool:
    """Return whether a file is a PDF, or a TIFF file of several pages."""
    if source.suffix.lower() == ".pdf":
        return True
    return source.suffix.lower() in (".tif", ".tiff") and _count_frames(source) > 1


def _count_frames(source: Path) -> int:
    from PIL import Image

    try:
        with Image.open(source) as image:
            return int(getattr(image, "n_frames", 1))
    except Exception:  # Pillow's decoders raise anything; `decode` reports the error
        return 0


def pages_of(source: Path, destination: Path, reader: Reader) -> Iterator[Tensor]:
    """Yield the pages of a document as the network sees them, ``(1, channel, height, width)``."""
    if source.suffix.lower() != ".pdf":
        yield from (reader(source, destination, frame).seen for frame in range(_count_frames(source)))
        return
    try:
        import pypdfium2
    except ImportError as error:
        raise ValueError(
            f"{source} is a PDF, which needs pypdfium2 and pikepdf: pip install 'unshift[pages]'"
        ) from error
    import torch

    try:
        for page in pypdfium2.PdfDocument(source):
            bitmap = page.render(scale=RENDERED / max(page.get_size()), grayscale=True)
            yield torch.from_numpy(bitmap.to_numpy().copy()).reshape(1, 1, bitmap.height, bitmap.width)
    except (pypdfium2.PdfiumError, ValueError, ZeroDivisionError) as error:
        raise Refused(
            f"{source} cannot be opened or rendered as a PDF: it is encrypted, damaged or without pages ({error})"
        ) from error


def turn_document(reader: Reader, source: Path, destination: Path, model: Any, poses: list[Estimate]) -> str:
    """Write a document with each page turned back. Return ``"copied"``, ``"lossless"`` or the kind of loss."""
    turns = [int(pose.turn) for pose in poses if pose.turn is not None]
    if not any(turns):
        shutil.copyfile(source, destination)
        return "copied"
    if source.suffix.lower() != ".pdf":
        return turn_frames(reader, source, destination, model, poses)
    turn_pages(source, destination, turns)
    return "lossless"


def turn_pages(source: Path, destination: Path, turns: list[int]) -> None:
    """Copy a PDF file and add quarter turns, clockwise, to the rotation entry of each page."""
    import pikepdf

    data = source.read_bytes()
    try:
        with pikepdf.open(source, inherit_page_attributes=False) as pdf:
            if pdf.is_encrypted:
                raise Refused(f"{source} is encrypted; remove its password first, for example with qpdf --decrypt")
            if problems := [text for text in map(str, pdf.get_warnings()) if re.search("xref|cross-ref|recover", text)]:
                raise Refused(f"{source} is damaged ({problems[0]}); repair it first, for example with qpdf")
            pages = [*_pages(pdf.Root.Pages)]
            wanted = [(old + 90 * turn) % 360 for old, turn in zip(_rotations(source), turns, strict=True)]
            changed: dict[int, tuple[int, bytes]] = {}
            for page, angle, turn in zip(pages, wanted, turns, strict=True):
                if turn:
                    page.Rotate = angle
                    number, generation = page.objgen
                    changed[number] = generation, page.unparse(resolved=True)
            if len(changed) != sum(map(bool, turns)):
                raise Refused(f"{source} shows one page object several times")
            destination.write_bytes(data + _update(data, pdf, changed))
        with pikepdf.open(destination, inherit_page_attributes=False) as pdf:
            entries = [page.get("/Rotate") for page in _pages(pdf.Root.Pages)]
            set_ = all(entry == angle for entry, angle, turn in zip(entries, wanted, turns, strict=True) if turn)
            if not set_ or _rotations(destination) != wanted:
                raise Refused(f"{source} cannot be extended; rewrite it first, for example with qpdf")
    except Refused:
        raise
    except (pikepdf.PdfError, AttributeError, RecursionError, TypeError, ValueError) as error:
        raise Refused(f"{source} cannot be read as a PDF ({error})") from error


def _pages(node: Any) -> Iterator[Any]:
    """Yield the page objects below a node.

    The file must be opened without ``inherit_page_attributes``, which moves inherited entries into new objects.
    """
    if "/Kids" not in node:
        yield node
    for kid in node.get("/Kids", ()):
        yield from _pages(kid)


def _rotations(file: Path) -> list[int]:
    """Return the rotation of each page as rendered, in degrees: entries may be inherited, or not be quarter turns."""
    import pypdfium2

    return [page.get_rotation() for page in pypdfium2.PdfDocument(file)]


def _update(data: bytes, pdf: Any, changed: dict[int, tuple[int, bytes]]) -> bytes:
    """Return the bytes to append: the changed objects, and a cross-reference table in the form of the newest one."""
    import pikepdf

    start = int(re.findall(rb"startxref\s+(\d+)", data)[-1])
    offset = data.find(b"%PDF-")  # offsets count from here, even if other bytes come before
    body, places = b"\n", dict[int, int]()
    for number, (generation, content) in changed.items():
        places[number] = len(data) + len(body) - offset
        body += b"%d %d obj\n%s\nendobj\n" % (number, generation, content)
    table, size = len(data) + len(body) - offset, int(pdf.trailer.Size)
    entries = {key: pdf.trailer[key] for key in ("/Root", "/Info", "/ID") if key in pdf.trailer}
    if data[offset + start :].lstrip().startswith(b"xref"):
        rows = b"".join(
            b"%d 1\n%010d %05d n \n" % (number, place, changed[number][0]) for number, place in sorted(places.items())
        )
        trailer = pikepdf.Dictionary({**entries, "/Size": size, "/Prev": start}).unparse()
        body += b"xref\n" + rows + b"trailer\n" + trailer
    else:
        places[size] = table
        rows = b"".join(
            b"\1%s%s" % (place.to_bytes(8, "big"), changed.get(number, (0,))[0].to_bytes(2, "big"))
            for number, place in sorted(places.items())
        )
        index = [n for number in sorted(places) for n in (number, 1)]
        fields = {"/Type": pikepdf.Name.XRef, "/W": [1, 8, 2], "/Index": index, "/Length": len(rows)}
        trailer = pikepdf.Dictionary({**entries, **fields, "/Size": size + 1, "/Prev": start}).unparse()
        body += b"%d 0 obj\n%s\nstream\n%s\nendstream\nendobj" % (size, trailer, rows)
    return body + b"\nstartxref\n%d\n%%%%EOF\n" % table


def turn_frames(reader: Reader, source: Path, destination: Path, model: Any, poses: list[Estimate]) -> str:
    """Write the pages of a TIFF file, each turned back by its pose and checked. Return how it was written."""
    from PIL.TiffImagePlugin import AppendingTiffWriter

    part, kinds, expected = destination.with_name(f"{destination.name}.page.tif"), set(), []
    with AppendingTiffWriter(str(destination), new=True) as pages:
        for frame, pose in enumerate(poses):
            kinds.add(write_moved(reader(source, part, frame), model, pose))
            expected.append(_digest(decode(part)))
            pages.write(part.read_bytes())
            pages.newFrame()
    part.unlink()
    if [_digest(decode(destination, frame)) for frame in range(_count_frames(destination))] != expected:
        raise Refused(f"{source} cannot be written as a TIFF of several pages; split it")
    return (sorted(kinds - {"lossless"}) or ["lossless"])[0]


def _digest(image: Any) -> tuple[Any, ...]:
    return image.mode, image.size, image.getpalette(), hashlib.sha256(image.tobytes()).digest()
