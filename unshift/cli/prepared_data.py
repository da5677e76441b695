"""Open the images of a command, and prepare them as a restorer expects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unshift.cli.errors import warn

if TYPE_CHECKING:
    from torch import Tensor

    from unshift.data import ImageSet
    from unshift.restorer import Chain, Restorer

SAMPLED = 8  # number of files that are checked for colours


def open_prepared(
    source: str,
    split: str | None,
    preparation: Mapping[str, Any],
    channels: int | None = None,
    limit: int | None = None,
) -> ImageSet:
    """Open the first ``limit`` images of ``source`` and prepare them.

    Image files stay on disk until they are needed. Pillow scales them as it reads them. They are read with ``channels``
    unless the preparation has its own.
    """
    from unshift.data import open_source

    if _in_memory(source):
        images = open_source(source, split)
    else:
        fit = "crop" if "crop" in preparation else "resize"
        size = tuple(preparation[fit]) if fit in preparation else None
        images = open_source(source, split, size=size, fit=fit, channels=preparation.get("channels", channels))
    return images.prepared(preparation, limit)


def choose_split(source: str, requested: str | None, default: str) -> str | None:
    """Return the split to open: the requested one, or the default if ``source`` has it."""
    from unshift.data.catalogue import DATASETS

    return requested or (default if source in DATASETS or (Path(source) / default).is_dir() else None)


def preparation(
    size: Sequence[int] | None, crop: bool, channels: int | None, pad: int | None, base: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the steps of preparation: those of the options, and of ``base`` where no option is given."""
    steps = dict(base or {})
    if crop or size is not None:
        stored = [steps.pop(fit) for fit in ("crop", "resize") if fit in steps]
        if size is None and not stored:
            raise ValueError("--crop needs the --size to cut to")
        steps["crop" if crop else "resize"] = stored[0] if size is None else list(size)
    steps |= {step: value for step, value in [("channels", channels), ("pad", pad)] if value is not None}
    return {step: value for step, value in steps.items() if step != "pad" or value}


def takes_any_size(restorer: Restorer | Chain) -> bool:
    """Return whether a restorer takes images of any size."""
    first = restorer.stages[0]
    sizes = [getattr(stage.scorer, "size", None) for stage in restorer.stages]
    return not any(sizes) and first.coordinates.image_shape(first.scorer.in_channels, None)[1] is None


def open_for(
    restorer: Restorer | Chain,
    source: str,
    split: str | None,
    limit: int | None,
    size: Sequence[int] | None,
    crop: bool,
    channels: int | None,
    pad: int | None,
) -> ImageSet:
    """Open images to try ``restorer`` on: the test split if there is one.

    They are prepared like its training images, apart from the options given. But a restorer for any size gets image
    files at their original size, as ``unshift restore`` restores them.
    """
    base = dict(restorer.trained_on.get("preparation") or {})
    if takes_any_size(restorer) and not crop and not _in_memory(source):
        base = {step: value for step, value in base.items() if step not in ("crop", "resize")}
    steps = preparation(size, crop, channels, pad, base)
    wanted = restorer.image_shape()[0]
    opened = open_prepared(
        source, choose_split(source, split, "test"), steps, wanted if wanted in (1, 3) else None, limit
    )
    given = getattr(opened.images, "shape", [0, wanted])[1]  # files and sequences are read with the wanted number
    if wanted is not None and given != wanted:
        hint = f"; --channels {wanted} converts them" if {wanted, given} == {1, 3} else ""
        raise ValueError(f"this restorer takes {wanted} channel(s), got {given} in {opened.name}{hint}")
    if wanted == 1 and channels is None:
        _warn_of_colours(opened.images)
    return opened


def _in_memory(source: str) -> bool:
    """Return whether ``source`` is a named data set or an array: all images in memory, of one size."""
    from unshift.data.catalogue import DATASETS
    from unshift.data.sources import ARRAYS

    return source in DATASETS or Path(source).suffix.lower() in ARRAYS


def _warn_of_colours(images: Any) -> None:
    """Warn if one of the first files has colours: a network of one channel sees only grey values."""
    from unshift.data.photos import ImageFiles

    if not isinstance(images, ImageFiles):
        return
    files = images.prepared({}, SAMPLED)
    files.channels = 3
    for row in range(len(files)):
        image = files[row]
        if bool((image != image[:1]).any()):
            warn(f"this restorer was trained on grey images, but {files.name(row)} has colours: it sees grey values")
            return


class TrainingImages:
    """Detect training images of a restorer in other data: its file holds the fingerprints of a sample of them."""

    def __init__(self, restorer: Restorer | Chain) -> None:
        prints = restorer.trained_on.get("prints", [])
        self.known, self._unseen = len(prints), set(prints)

    def check(self, images: Tensor) -> Tensor:
        """Look for training images in a batch, and return it."""
        from unshift.data.reading import fingerprint

        if self._unseen:
            self._unseen.difference_update(map(fingerprint, images))
        return images

    def warn(self, restorer: str, consequence: str) -> None:
        """Warn if training images were among those checked."""
        if seen := self.known - len(self._unseen):
            warn(
                f"{seen:,} of the {self.known:,} training images whose fingerprints {restorer} stores are among these: "
                f"{consequence}"
            )
