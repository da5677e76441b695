"""Pages of documents that Debian packages hold: fetched, rendered upright, and aged like scans.

A page comes from a PDF of a package, or, for scripts of which few free PDFs exist, is set here: translated messages of
a package in a font of another one (:data:`SET`). Packages, with all their documents, are for training, for choices and
calibration (``held``), or for the test, which is looked at once.
"""

from __future__ import annotations

import gettext
import gzip
import hashlib
import io
import json
import re
import tarfile
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from reproduction.packages import debian, debian_source
from unshift.data import root
from unshift.files import write_atomically

__all__ = ["PACKAGES", "Page", "age", "complete", "fetch", "pages", "scans", "shown"]

MOST = 160
"""Largest number of pages of a package."""
LONGEST = 1649
"""Longer side of a rendered page, in pixels: the largest that the network sees without reducing it."""

PACKAGES: dict[str, dict[str, int]] = {
    "train": {
        **{f"texlive-{name}-doc": 1 for name in ("latex-extra", "publishers", "pictures", "science", "fonts-extra")},
        **{f"texlive-lang-{name}": 5 for name in ("chinese", "japanese", "cyrillic", "greek", "arabic", "other")},
        **{f"texlive-lang-{name}": 3 for name in ("english", "european", "italian", "czechslovak")},
        **{"installation-guide-amd64": 20, "lilypond-doc-pdf": 8, "r-doc-pdf": 12, "erlang-doc": 8, "axiom-doc": 5},
        **{"gnucash-docs": 12, "linuxcnc-doc-en": 15, "python-sympy-doc": 2, "python-statsmodels-doc": 1},
        **{"debmake-doc": 15, "live-manual-pdf": 2},
    },
    "held": {
        **{"texlive-humanities-doc": 3, "texlive-lang-german": 3, "texlive-lang-korean": 6, "packaging-tutorial": 6},
        **{"debian-history": 8, "octave-doc": 20, "pari-doc": 5, "maxima-doc": 10, "linuxcnc-doc-zh-cn": 20},
        **{"eyes17": 4, "expeyes": 5, "smlnj-doc": 3},
    },
    "test": {
        **{"texlive-latex-recommended-doc": 3, "texlive-latex-base-doc": 2, "texlive-lang-french": 4},
        **{"texlive-metapost-doc": 2, "texlive-games": 3, "texlive-music": 2, "debian-refcard": 2, "bacula-doc": 12},
        **{"instead-doc-ru": 20, "gretl-doc": 6, "glpk-doc": 8, "python-astropy-doc": 1, "graphviz-doc": 3},
        **{"lyx-common": 5, "r-cran-hsaur3": 3, "dynare-doc": 4, "debian-edu-doc-legacy-zh-cn": 20},
    },
}
"""Packages, and the number of pages taken from each of their documents."""

MUSIC = ("lilypond-doc-pdf", "texlive-music")

SCRIPTS = {
    "Cyrillic": r"[\u0400-\u052f]",
    "Greek": r"[\u0370-\u03ff\u1f00-\u1fff]",
    "Japanese": r"[\u3040-\u30ff]",
    "Chinese": r"[\u4e00-\u9fff]",
    "Korean": r"[\uac00-\ud7af\u1100-\u11ff]",
    "Arabic": r"[\u0600-\u06ff\ufb50-\ufdff\ufe70-\ufeff]",
    "Hebrew": r"[\u0590-\u05ff\ufb1d-\ufb4f]",
    "Devanagari": r"[\u0900-\u097f]",
    "Latin": r"[A-Za-z\u00c0-\u024f]",
}

SET: dict[str, tuple[str, int, dict[str, list[str]]]] = {
    "train": (
        "inkscape",
        12,
        {
            "he": [
                *(f"culmus/{name}" for name in ("FrankRuehlCLM-Medium", "DavidCLM-Medium", "HadasimCLM-Regular")),
                *(f"culmus/{name}" for name in ("KeterYG-Medium", "ShofarRegular", "SimpleCLM-Medium")),
                *("dejavu/DejaVuSans", "freefont/FreeSerif", "freefont/FreeMono"),
            ],
            "fa": ["fonts-hosny-amiri/Amiri-Regular", "dejavu/DejaVuSans", "freefont/FreeSerif", "kacst-one/KacstOne"],
            "ar": ["fonts-hosny-amiri/Amiri-Regular", "dejavu/DejaVuSans", "freefont/FreeSerif", "kacst-one/KacstOne"],
            "hi": ["lohit-devanagari/Lohit-Devanagari", "Nakula/nakula", "freefont/FreeSans"],
            "mr": ["lohit-devanagari/Lohit-Devanagari", "Gargi/Gargi", "freefont/FreeSans"],
            "el": ["dejavu/DejaVuSerif", "liberation/LiberationSans-Regular", "freefont/FreeSerif"],
            "ru": ["dejavu/DejaVuSerif", "liberation/LiberationSans-Regular", "freefont/FreeSerif"],
            "ja": ["vlgothic/VL-Gothic-Regular", "ipafont-mincho/ipam"],
            "zh_CN": ["wqy/wqy-zenhei", "arphic/ukai"],
            "ko": ["nanum/NanumGothic", "nanum/NanumMyeongjo", "UnBatang", "UnDotum"],
            "de": ["dejavu/DejaVuSans-Bold", "liberation/LiberationSans-Bold", "freefont/FreeSans", "Carlito-Regular"],
            "fr": ["liberation/LiberationSansNarrow-Regular", "freefont/FreeMono", "Carlito-Bold", "DejaVuSerif-Bold"],
        },
    ),
    "held": (
        "evolution-common",
        12,
        {
            "he": ["culmus/MiriamMonoCLM-Book", "culmus/NachlieliCLM-Light"],
            "ar": ["ScheherazadeNew-Regular", "fonts-hosny-thabit/Thabit"],
            "hi": ["sahadeva/sahadeva", "samyak-devanagari/Samyak-Devanagari"],
            "el": ["dejavu/DejaVuSans", "GFSDidot"],
            "ru": ["dejavu/DejaVuSans", "freefont/FreeSans"],
            "ja": ["ipafont-gothic/ipag"],
            "zh_CN": ["arphic/uming"],
        },
    ),
    "test": (
        "gnucash-common",
        16,
        {
            "he": ["noto/NotoSansHebrew-Regular", "noto/NotoSerifHebrew-Regular"],
            "ar": ["noto/NotoNaskhArabic-Regular", "noto/NotoSansArabic-Regular"],
            "hi": ["noto/NotoSansDevanagari-Regular", "noto/NotoSerifDevanagari-Regular"],
            "el": ["noto/NotoSans-Regular", "noto/NotoSerif-Regular"],
            "ru": ["noto/NotoSans-Regular", "noto/NotoSerif-Regular"],
            "ja": ["vlgothic/VL-PGothic-Regular"],
            "zh_CN": ["arphic/uming"],
        },
    ),
}
"""The package of translated messages, the number of pages for each language and font, and the fonts' files."""
FONTS = [
    *("fonts-noto-core", "fonts-hosny-amiri", "fonts-hosny-thabit", "fonts-sil-scheherazade", "fonts-kacst-one"),
    *("culmus", "fonts-lohit-deva", "fonts-gargi", "fonts-sahadeva", "fonts-nakula", "fonts-samyak-deva"),
    *("fonts-wqy-zenhei", "fonts-arphic-uming", "fonts-arphic-ukai", "fonts-vlgothic", "fonts-ipafont-mincho"),
    *("fonts-ipafont-gothic", "fonts-dejavu-core", "fonts-dejavu-extra", "fonts-liberation", "fonts-freefont-ttf"),
    *("fonts-gfs-didot", "fonts-nanum", "fonts-unfonts-core", "fonts-crosextra-carlito"),
]
LANGUAGES = {
    "he": "Hebrew",
    "fa": "Arabic",
    "ar": "Arabic",
    "hi": "Devanagari",
    "mr": "Devanagari",
    "el": "Greek",
    "ru": "Cyrillic",
    "ja": "Japanese",
    "zh_CN": "Chinese",
    "ko": "Korean",
    "de": "Latin",
    "fr": "Latin",
}


@dataclass(frozen=True)
class Page:
    """A page and its origin."""

    package: str
    file: str
    number: int
    words: int
    script: str
    kind: str
    """"text", "slide" (wider than tall), "music", "sparse" (fewer than 20 words), "figure" (none) or "set" (here)."""
    png: bytes = b""

    @property
    def image(self) -> np.ndarray:
        """The grey levels, uint8 ``(height, width)``, upright."""
        with Image.open(io.BytesIO(self.png)) as image:
            return np.asarray(image)


def home() -> Path:
    """Return the folder of packages and rendered pages."""
    return root() / "pages"


def fetched(package: str) -> Path:
    """Return the folder of an unpacked Debian package; download it first if needed."""
    folder = home() / "packages" / package
    if not folder.exists():
        part = folder.with_name(f"{package}.part")
        part.mkdir(parents=True, exist_ok=True)
        debian(package, part)
        part.rename(folder)
    return folder


def pages(role: str, package: str) -> list[Page]:
    """Return the pages of a package for ``role``, rendered once; of all pages set here, with the package ``"set"``."""
    path = home() / f"{role}-{package}.zip"
    if not path.exists():
        made = set_pages(role) if package == "set" else islice(rendered(package, PACKAGES[role][package]), MOST)
        part = path.with_suffix(".part")
        part.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(part, "w") as archive:
            rows = []
            for at, page in enumerate(made):
                archive.writestr(f"{at}.png", page.png)
                rows.append({**asdict(page), "png": ""})
            archive.writestr("pages.json", json.dumps(rows))
        part.rename(path)
    with zipfile.ZipFile(path) as archive:
        rows = json.loads(archive.read("pages.json"))
        return [Page(**{**row, "png": archive.read(f"{at}.png")}) for at, row in enumerate(rows)]


def complete() -> bool:
    """Return whether the pages and scans of the test are here."""
    rendered_pages = [home() / f"test-{package}.zip" for package in (*PACKAGES["test"], "set")]
    return all(path.exists() for path in (*rendered_pages, home() / LEPTONICA))


def fetch() -> None:
    """Download and render the pages and scans of the test."""
    for package in (*PACKAGES["test"], "set"):
        pages("test", package)
    scans()


def documents(package: str) -> Iterator[tuple[str, bytes]]:
    """Yield names and contents of the PDF files of a package in random order, each content once."""
    seen, folder = set(), fetched(package)
    paths = sorted(p for p in folder.rglob("*") if re.search(r"\.pdf(\.gz)?$", p.name, re.I) and p.is_file())
    for at in np.random.default_rng(0).permutation(len(paths)):
        path = paths[at]
        content = path.read_bytes()
        content = gzip.decompress(content) if path.suffix == ".gz" else content
        digest = hashlib.sha256(content).digest()
        if digest not in seen:
            yield str(path.relative_to(folder)), content
        seen.add(digest)


def rendered(package: str, count: int) -> Iterator[Page]:
    """Yield ``count`` pages of each document of a package, chosen at random, that have no sideways text."""
    import pypdfium2

    for name, content in documents(package):
        try:
            document = pypdfium2.PdfDocument(content)
            order = np.random.default_rng(list(hashlib.sha256(name.encode()).digest()[:4])).permutation(len(document))
            taken = 0
            for number in order[: 3 * count].tolist():
                page = _page(document[number], package, name, number) if taken < count else None
                taken += page is not None
                if page is not None:
                    yield page
            document.close()
        except pypdfium2.PdfiumError:  # encrypted or damaged
            continue


def _page(page: Any, package: str, name: str, number: int) -> Page | None:
    """Return a rendered page, or None if it is blank, turned by its entry, or not all its text is horizontal."""
    from pypdfium2 import raw

    width, height = page.get_size()
    text = page.get_textpage()
    letters = [
        at
        for at in range(0, text.count_chars(), 1 + text.count_chars() // 300)
        if chr(raw.FPDFText_GetUnicode(text, at)).isalnum()
    ]
    angles = np.array([raw.FPDFText_GetCharAngle(text, at) for at in letters])
    sideways = np.cos(angles) < 0.99 if len(letters) else np.zeros(1)
    if page.get_rotation() or sideways.mean() > 0.05 or not 0.2 < width / height < 5:
        return None
    image = page.render(scale=LONGEST / max(width, height), grayscale=True).to_pil().convert("L")
    grey = np.asarray(image)
    if grey.shape[0] < 300 or grey.shape[1] < 300 or (np.abs(np.diff(grey.astype(int))) > 60).mean() < 0.0005:
        return None
    content = text.get_text_range()
    words, script = count_words(content)
    kind = "music" if package in MUSIC else "figure" if not words else "sparse" if words < 20 else "text"
    return Page(
        package, name, number, words, script, "slide" if kind == "text" and width > height else kind, _png(image)
    )


def _png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def count_words(text: str) -> tuple[int, str]:
    """Return the number of words of a text (two signs are one word where no spaces separate them), and its script."""
    counts = Counter({name: len(re.findall(pattern, text)) for name, pattern in SCRIPTS.items()})
    signs = counts["Japanese"] + counts["Chinese"]
    if counts["Japanese"] > 0.1 * counts["Chinese"]:
        counts["Japanese"], counts["Chinese"] = signs, 0
    latin = len(re.findall(r"\w*[^\W\d_]\w*", re.sub(SCRIPTS["Chinese"] + "|" + SCRIPTS["Japanese"], " ", text)))
    script, most = counts.most_common(1)[0]
    foreign = [name for name in SCRIPTS if name != "Latin" and counts[name] > 0.3 * sum(counts.values())]
    return latin + signs // 2, (foreign or [script if most else "none"])[0]


# --- Pages that are set here ----------------------------------------------------------------------------------------


def set_pages(role: str) -> Iterator[Page]:
    """Yield pages of translated messages, set in the fonts of ``role``."""
    package, count, languages = SET[role]
    files = {str(path): path for package in FONTS for path in fetched(package).rglob("*.[to]t[fc]")}
    for language, fonts in languages.items():
        script = LANGUAGES[language]
        chosen = [path for name, path in files.items() if any(f"{font}." in name for font in fonts)]
        texts = _sentences(package, language, SCRIPTS[script])
        for number in range(count * len(chosen)):
            chance = np.random.default_rng([number, *language.encode(), *role.encode()])
            form = role == "train" and script in ("Latin", "Greek", "Cyrillic") and chance.random() < 0.4
            image, words = _set(texts, chosen[number % len(chosen)], script in ("Arabic", "Hebrew"), form, chance)
            yield Page("set", language, number, words, script, "set", _png(image))


def _sentences(package: str, language: str, letters: str) -> list[str]:
    """Return the longer translations of a package's messages."""
    found = []
    for path in sorted(fetched(package).glob(f"usr/share/locale/{language}/LC_MESSAGES/*.mo")):
        with path.open("rb") as file:
            texts = gettext.GNUTranslations(file)._catalog.values()  # type: ignore[attr-defined]
        for text in (" ".join(each.replace("_", "").split()) for each in texts if isinstance(each, str)):
            if len(text) > 20 and len(re.findall(letters, text)) > 0.6 * len(re.findall(r"[^\W\d_]", text)):
                found.append(text)
    return found


def _set(texts: list[str], font: Path, right: bool, form: bool, chance: np.random.Generator) -> tuple[Image.Image, int]:
    """Set paragraphs in one column, or a form in capitals; return the page and the number of its words."""
    width, height, margin = int(chance.integers(1000, 1250)), LONGEST, int(chance.integers(60, 160))
    image = Image.new("L", (width, height), 255)
    draw, size, y, content = ImageDraw.Draw(image), int(chance.integers(18, 36)), margin, []
    while y < height - margin - 40:
        face = ImageFont.truetype(str(font), int(size * (1.6 if chance.random() < 0.12 else 1)))
        text = " ".join(texts[at] for at in chance.integers(0, len(texts), chance.integers(1, 9)))
        if form:
            text = " ".join(text.split()[: chance.integers(1, 6)]).upper()
            draw.rectangle((margin - 9, y - 9, width - margin + 9, y + int(1.5 * face.size)), outline=0)
        spaces = " " if form or text.count(" ") > len(text) / 20 else ""
        line: list[str] = []
        for piece in [*(text.split() if spaces else text), None]:
            if piece is None or draw.textlength(spaces.join([*line, piece]), face) > width - 2 * margin:
                if y < height - margin - 40 and line:
                    at = (width - margin, y) if right else (margin, y)
                    draw.text(at, spaces.join(line), 0, face, anchor="ra" if right else "la")
                    content.append(spaces.join(line))
                y, line = y + int(1.5 * face.size), []
            line += [piece] if piece else []
        y += int(0.7 * size)
        if chance.random() < 0.15:
            break
    return image, count_words(" ".join(content))[0]


# --- Ageing ---------------------------------------------------------------------------------------------------------


def age(page: np.ndarray, chance: np.random.Generator) -> np.ndarray:
    """Return a page as if it had been printed, kept, scanned or photographed: uint8, of the same shape.

    Each defect occurs with its own probability: bleed-through, low contrast or a dark or toned background, shadows,
    skew to 5 degrees, punch holes, blur, noise, JPEG, a threshold, and inversion.
    """
    often = lambda share: chance.random() < share  # noqa: E731
    height, width = page.shape
    x = page.astype(np.float32) / 255
    if often(0.15):
        x = np.minimum(x, 1 - chance.uniform(0.05, 0.3) * (1 - np.roll(x, chance.integers(20, 200), 0)[:, ::-1]))
    paper = chance.uniform(0.45, 1) if often(0.5) else 1.0
    ink = chance.uniform(0, paper - 0.25) if often(0.5) else 0.0
    x = ink + (paper - ink) * x
    if often(0.3):
        slope = chance.uniform(-0.5, 0.5, 2)
        x = x * np.clip(
            1 + slope[0] * np.linspace(-1, 1, height)[:, None] + slope[1] * np.linspace(-1, 1, width), 0.3, 1
        )
    image = Image.fromarray((255 * np.clip(x, 0, 1)).astype(np.uint8))
    if often(0.6):
        angle = float(np.clip(chance.normal(0, 2), -5, 5))
        image = image.rotate(angle, Image.Resampling.BILINEAR, fillcolor=int(255 * (paper if often(0.7) else 0)))
    if often(0.1):
        draw, at = ImageDraw.Draw(image), chance.integers(20, 60)
        for y in chance.integers(0, height, 2):
            draw.ellipse((at - 14, y - 14, at + 14, y + 14), fill=int(chance.integers(0, 120)))
    if often(0.5):
        image = image.filter(ImageFilter.GaussianBlur(chance.uniform(0.2, 1.3)))
    if often(0.5):
        noise = chance.normal(0, chance.uniform(2, 25), image.size[::-1]).astype(np.float32)
        image = Image.fromarray(np.clip(np.asarray(image) + noise, 0, 255).astype(np.uint8))
    if often(0.3):
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=int(chance.integers(20, 85)))
        image = Image.open(buffer)
    if often(0.2):
        low, high = np.percentile(np.asarray(image), (1, 90))
        level = low + (high - low) * chance.uniform(0.45, 0.8)
        image = image.point(partial(_over, level))
    return 255 - np.asarray(image) if often(0.08) else np.asarray(image)


def _over(level: float, value: int) -> int:
    return 255 * (value > level)


def shown(role: str, most: int = MOST) -> Iterator[tuple[Page, np.ndarray, bool]]:
    """Yield the pages of ``role`` at a random size, with a longer side of 700 to 1649 pixels; every second one aged.

    At most ``most`` of a package, and whether the page is aged.
    """
    for package in [*PACKAGES[role], "set"]:
        chance = np.random.default_rng([*package.encode(), *role.encode()])
        for at, page in enumerate(pages(role, package)[: most if package != "set" else None]):
            longer, image = int(chance.integers(700, LONGEST + 1)), Image.open(io.BytesIO(page.png))
            size = [max(1, round(n * longer / LONGEST)) for n in image.size]
            pixels = np.asarray(image.resize((size[0], size[1]), Image.Resampling.BILINEAR))
            yield page, age(pixels, chance) if at % 2 else pixels, bool(at % 2)


# --- Real scans -----------------------------------------------------------------------------------------------------

LEPTONICA = "leptonlib_1.82.0.orig.tar.gz"
NO_PAGES = (
    *("cat-and-mouse", "chars-", "checkerboard2", "copernicus", "dave-orig", "fish24", "juditharismax", "lyra", "map1"),
    *(
        "pageseg2-mask",
        "pageseg2-seed",
        "pancrazi",
        "samples06",
        "singlecc",
        "stampede2",
        "test-1bit-alpha",
        "test24",
        "testbuffer",
    ),
    *("topotest", "warped_paper", "warped_sudoku", "wet-day", "wyom"),
)
"""Images of that archive that are no pages, or are stored sideways (``lyra``, ``pancrazi``), by the look of them."""


def scans() -> dict[str, np.ndarray]:
    """Return the upright scans of real pages in the sources of Leptonica: grey, by file name."""
    archive = home() / LEPTONICA
    if not archive.exists():
        write_atomically(archive, debian_source("leptonica-progs", LEPTONICA))
    found = {}
    with tarfile.open(archive) as files:
        for member in sorted(files.getmembers(), key=lambda each: each.name):
            name = Path(member.name).name
            image_file = "/prog/" in member.name and name.endswith((".png", ".tif", ".jpg"))
            if not image_file or name.startswith(NO_PAGES):
                continue
            file = files.extractfile(member)
            try:
                image = Image.open(io.BytesIO(file.read() if file else b""))
                if min(image.size) >= 500:
                    found[name] = np.asarray(image.convert("L"))
            except (OSError, SyntaxError, ValueError):  # samples of damaged files
                continue
    return found
