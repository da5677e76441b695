"""The images a command works on, brought to the size a restorer was made for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unshift.cli.errors import warn

if TYPE_CHECKING:
    from torch import Tensor

    from unshift.data import ImageSource
    from unshift.restorer import Chain, Restorer


LOOKED_AT = 8
"""Files that are looked at for colours."""


def open_prepared(
    source: str,
    split: str | None,
    preparation: Mapping[str, Any],
    channels: int | None = None,
    limit: int | None = None,
) -> ImageSource:
    """Open the first ``limit`` images of ``source`` and prepare them.

    Image files stay where they are until they are needed. They are scaled as they are read, by Pillow, and read as
    ``channels``.
    """
    from unshift.data import open_source
    from unshift.data.arrays import SUFFIXES

    if _is_dataset(source) or Path(source).suffix.lower() in SUFFIXES:
        found = open_source(source, split)
    else:
        fit = "crop" if "crop" in preparation else "resize"
        size = tuple(preparation[fit]) if fit in preparation else None
        found = open_source(source, split, size=size, fit=fit, channels=preparation.get("channels", channels))
    return found.prepared(preparation, limit)


def choose_split(source: str, asked: str | None, usual: str) -> str | None:
    """Return the split to open: the one asked for, or the usual one where ``source`` has it."""
    return asked or (usual if _is_dataset(source) or (Path(source) / usual).is_dir() else None)


def preparation(
    size: Sequence[int] | None, crop: bool, channels: int | None, pad: int | None, own: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return what is done to images first: what the options say, and for the rest a restorer's ``own``."""
    steps = dict(own or {})
    fits = [fit for fit in ("crop", "resize") if fit in steps]
    wanted = list(size) if size is not None else steps[fits[0]] if fits else None
    if crop and wanted is None:
        raise ValueError("--crop needs the --size to cut to")
    if crop or size is not None:
        steps = {step: value for step, value in steps.items() if step not in fits}
        steps["crop" if crop else "resize"] = wanted
    given = {"channels": channels, "pad": pad}
    steps |= {step: value for step, value in given.items() if value is not None}
    return {step: value for step, value in steps.items() if step != "pad" or value}


def open_for(
    restorer: Restorer | Chain,
    source: str,
    split: str | None,
    limit: int | None,
    size: Sequence[int] | None,
    crop: bool,
    channels: int | None,
    pad: int | None,
) -> ImageSource:
    """Open images to try ``restorer`` on: the test split if there is one.

    They are prepared as the restorer's own were, but for what ``size``, ``crop``, ``channels`` and ``pad`` change.
    """
    from unshift.weights import image_shape

    steps = preparation(size, crop, channels, pad, restorer.trained_on.get("preparation"))
    seen = image_shape(restorer)[0]
    part = choose_split(source, split, "test")
    found = open_prepared(source, part, steps, seen if seen in (1, 3) else None, limit)
    _check_channels(found, seen)
    if seen == 1 and channels is None:
        _warn_of_colours(found.images)
    return found


def _check_channels(found: ImageSource, wanted: int) -> None:
    """Refuse arrays of other channels than a restorer sees: files are read as those."""
    from torch import Tensor

    images = found.images
    if isinstance(images, Tensor) and images.ndim > 1 and images.shape[1] != wanted:
        hint = f"; --channels {wanted} makes them so" if {wanted, images.shape[1]} == {1, 3} else ""
        raise ValueError(f"this restorer wants {wanted} channel(s), got {images.shape[1]} in {found.name}{hint}")


def _warn_of_colours(images: Any) -> None:
    """Say that files have colours which a network of greys does not see, and that they are scaled, if they are."""
    from unshift.data.photos import ImageFiles
    from unshift.shifts import times

    files = getattr(images, "files", images)
    if not isinstance(files, ImageFiles):
        return
    raw = files.as_they_are()
    for row in range(min(LOOKED_AT, len(images))):
        image = raw[row]
        if bool((image != image[:1]).any()):
            own, shown = times(image.shape[1:]), times(images[row].shape[1:])
            scaled = "" if own == shown else f", scaled from {own} to {shown}"
            warn(f"this restorer was trained on grey images, and {raw.name(row)} has colours: it sees its grey{scaled}")
            return


class Remembered:
    """Looks out for images that a restorer was trained on, by the fingerprints that its file keeps of some."""

    def __init__(self, prints: Sequence[int]) -> None:
        self.known, self._left = len(prints), set(prints)

    @property
    def found(self) -> int:
        """How many of those it looks out for were seen."""
        return self.known - len(self._left)

    def look(self, images: Tensor) -> Tensor:
        """Look at a batch, and pass it on."""
        from unshift.data.batches import fingerprint

        if self._left:
            self._left.difference_update(map(fingerprint, images))
        return images

    def warn(self, restorer: str, so: str) -> None:
        """Say that some were seen, and what follows."""
        if self.found:
            known = f"{self.found:,} of the {self.known:,} training images that {restorer} remembers"
            warn(f"{known} are among these: {so}")


def _is_dataset(source: str) -> bool:
    from unshift.data.catalogue import DATASETS

    return source in DATASETS
