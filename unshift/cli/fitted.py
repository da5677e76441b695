"""What follows a fit: its measurement on the test split, its file, and what is told of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from unshift.cli.printing import file_size, image_size, print_json, rates_line

if TYPE_CHECKING:
    from unshift.data import ImageSource
    from unshift.restorer import Chain, Restorer


def finish(restorer: Restorer | Chain, out: Path, held: ImageSource | None, as_json: bool) -> None:
    """Measure on the test split, if there is one and that was not done before, and print what was fitted."""
    from unshift.evaluation import restoration_rates
    from unshift.ranks import is_first

    if held is not None and "test" not in restorer.metadata:
        restorer.metadata["test"] = restoration_rates(restorer, held.images, progress=True).as_dict()
        save(restorer, out)
    if is_first():
        _print_fitted(out, restorer, as_json)


def save(restorer: Restorer | Chain, out: Path) -> None:
    """Write the file: of several ranks, the first does."""
    from unshift.ranks import is_first

    if is_first():
        restorer.save(out)


def _print_fitted(out: Path, restorer: Restorer | Chain, as_json: bool) -> None:
    found, coordinates = restorer.metadata, restorer.coordinates
    if as_json:
        about = {"file": str(out), "bytes": out.stat().st_size}
        print_json({**about, **found, "trained_on": restorer.trained_on})
        return
    print(f"{out}  {file_size(out.stat().st_size)}, preset {found['preset']} for {image_size(found['size'])}")
    print(f"undoes {coordinates.undoes}")
    print(f"trained on {found['train_images']:,} images of {found['data']}, {found['seconds']:.1f} s")
    if found.get("unreadable"):
        print(f"skipped {len(found['unreadable']):,} files: {'; '.join(found['unreadable'][:5])}")
    for split in ("validation", "test"):
        if split in found:
            print(f"{split:<11}{rates_line(found[split], coordinates.step)}")
