"""How each shipped restorer was trained: ``python -m unshift.experiments.shipped_restorers NAME…`` makes it again.

Each run holds out part of the *training* set to choose by; the test set is measured once, at the end.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

import unshift
from unshift import training
from unshift.coordinates import Canvas, Centre, Polar, Turns, rotate
from unshift.data import dataset, prepare, to_float
from unshift.evaluation import rates_from, restoration_rates
from unshift.experiments import mitogenomes
from unshift.experiments.digit_augmentation import any_angle, jiggle, turned_off_centre
from unshift.ragged import batches
from unshift.reliability import calibrate as _calibrate
from unshift.scenes import Scenes
from unshift.training_images import Examples

__all__ = ["RECIPES", "make"]

LARGE = {"resize": [224, 224]}
TORCH_SEED = 67280421310721
"""What PyTorch's own generator starts from."""
DIGITS: dict[str, Any] = {"data": "mnist", "preparation": {"resize": [32, 32]}, "validation": 5000}
PHOTOS: dict[str, Any] = {"data": "cifar10", "validation": 5000}
CONTRASTS: dict[str, Any] = {"kernel_size": (3, 3), "bias": True, "activation": "abs"}
AVERAGED: dict[str, Any] = {"batch_size": 64, "learning_rate": 0.003, "average": 0.998}

RECIPES: dict[str, list[dict[str, Any]]] = {
    "mnist": [{**DIGITS, "preset": "lines"}],
    "mnist-paper": [{**DIGITS, "preset": "paper"}],
    "fashion-mnist": [
        {
            **DIGITS,
            "data": "fashion-mnist",
            # Clothes fill the frame, and what shows then is a seam: contrasts, and lines of three layers.
            "network": {**CONTRASTS, "channels": (16,), "line_channels": (24, 24, 1), "line_kernel_size": (11, 11)},
            **training.RECIPES["seam"],
            "epochs": 16,
            "patience": 16,
        }
    ],
    "cifar10-paper": [{**PHOTOS, "preparation": {"pad": 4}, "preset": "paper"}],
    "cifar10": [
        {
            **PHOTOS,
            "preparation": {"pad": 4},
            # A margin is easy to see: a third of the preset seam's channels finds it.
            "network": {**CONTRASTS, "channels": (8,), "line_channels": (16, 1), "line_kernel_size": (9, 9)},
            **training.RECIPES["seam"],
            "epochs": 20,
            "patience": 20,  # while the rate is high the loss wanders; it is at the end of the cycle that it falls
            "augment": ["mirror"],
        }
    ],
    "cifar10-seam": [
        {
            **PHOTOS,
            "preparation": {},
            "preset": "seam",
            "epochs": 60,
            "patience": 60,
            "augment": ["mirror", "windows", "colour"],
        }
    ],
    "mnist-rotation": [
        {
            **DIGITS,
            "preparation": LARGE,
            "coordinates": lambda: Polar.preset("dense", (224, 224)),
            "preset": "dense",
            "epochs": 6,
            "learning_rate": 0.003,
            "hide_lattice": True,
        }
    ],
    "mnist-rotation-paper": [
        {**DIGITS, "preparation": LARGE, "coordinates": lambda: Polar.preset("paper", (224, 224)), "preset": "paper"}
    ],
    "mnist3d": [
        {"data": "mnist3d", "preparation": {}, "preset": "paper", "validation": 500, "batch_size": 32, "epochs": 6}
    ],
    "mnist-turns": [
        {
            **DIGITS,
            **AVERAGED,
            "coordinates": lambda: Turns("quarter"),
            "network": {"channels": (24, 1), "kernel_size": (32, 32), "bias": True, "size": (32, 32)},
            "epochs": 5,
            "augment": [jiggle],
            "weights_seed": TORCH_SEED,
        }
    ],
    "mnist-pose": [
        {**DIGITS, **AVERAGED, "coordinates": Centre, "preset": "dense", "epochs": 1, "augment": [any_angle]},
        {
            **DIGITS,
            **AVERAGED,
            "coordinates": lambda: Polar(32, angles=72, radii=16, ratio=None, refine=True),
            "network": {"channels": (32, 32, 1), "kernel_size": (72,), "bias": True, "size": (72,)},
            "epochs": 8,
            "patience": 8,
            "batch_size": 128,
            "augment": [turned_off_centre],
        },
    ],
    # Scenes of 48x48 take half the work of 64x64, and what is learnt serves scenes of any size.
    "mnist-scene": [
        {**DIGITS, "coordinates": lambda: Canvas(window=(32, 32)), "preset": "scene", "scene": (48, 48), "patience": 8}
    ],
    "mitogenome": [
        {
            "data": "mitogenomes of bony fish",
            "load": mitogenomes.examples,
            "preparation": {},
            "coordinates": lambda: Turns("strand"),
            "preset": "sequence",
            "epochs": 2,
            "batch_size": 8,
            "augment": [mitogenomes.substitutions],
            "about": mitogenomes.ABOUT,
        }
    ],
}
"""One recipe for each stage: arguments of ``fit``, the data and how they are prepared.

``load`` brings a split of what is no data set of the catalogue; ``about`` goes to the card.
"""


class _Prepared(Dataset[Tensor]):
    """Images prepared one by one as they are asked for: at 224x224 they would not fit in memory together."""

    def __init__(self, images: Tensor, prepared: Callable[[Tensor, int], Tensor]) -> None:
        self.images, self.prepared = images, prepared

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Tensor:
        return self.prepared(self.images[index : index + 1], index)[0]


class _WithoutLattice:
    """Polar coordinates of digits whose pixels do not give the angle away: for training only.

    Enlarged, an upright digit shows the lattice of its own 28x28 pixels, upright as well; a strong network reads the
    angle off that, and fails on digits that were turned before they became pixels. So each digit is first turned *at
    its own size*, by a random number of grid steps, and its canvas is shifted back: the digit stands upright, its
    lattice does not.
    """

    def __init__(self, polar: Polar, count: int, preparation: dict[str, Any], seed: int) -> None:
        self.polar, self.preparation = polar, preparation
        self.steps = torch.randint(polar.angles, (count, 1), generator=torch.Generator().manual_seed(seed))

    def __call__(self, digit: Tensor, index: int) -> Tensor:
        """Return the canvas of one digit."""
        step = self.steps[index : index + 1]
        turned = rotate(to_float(digit), 360 / self.polar.angles * step[:, 0].double())
        return unshift.undo(self.polar.canvas(prepare(turned, self.preparation))[:, 0], step)


def _fit(recipe: dict[str, Any], **options: Any) -> unshift.Restorer:
    """Train one stage on its full training set."""
    recipe = {**recipe, "drop_unusable": True, "data_name": recipe["data"], **options}
    raw, preparation = _images(recipe, "train"), recipe.pop("preparation")
    for other in ("data", "load", "about"):  # what is no argument of fit
        recipe.pop(other, None)
    coordinates = recipe.pop("coordinates", lambda: None)()
    network, seed = recipe.pop("network", None), recipe.get("seed", 0)
    weights_seed = recipe.pop("weights_seed", seed)
    if network is not None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(weights_seed)
            canvas = (coordinates or Canvas()).canvas(prepare(raw[:1], preparation))
            recipe["preset"] = unshift.ShiftEstimator(canvas.shape[2], **network)
    if recipe.pop("hide_lattice", False):
        # A canvas is an array of one axis: fit takes it as it is, and what it learns there serves the images.
        lazy = _Prepared(raw, _WithoutLattice(coordinates, len(raw), preparation, seed))
        canvases = torch.stack([lazy[row] for row in range(len(raw))])  # small, and slow to make: once, not every epoch
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            recipe["preset"] = coordinates.network(recipe["preset"], raw.shape[1], coordinates.image_size(()))
        learnt = unshift.fit(canvases, **recipe)
        restorer = unshift.Restorer(learnt.scorer, coordinates=coordinates).eval()
        restorer.metadata, restorer.curve = learnt.metadata, learnt.curve
        restorer.trained_on = {"size": preparation["resize"], "channels": raw.shape[1], "range": [0.0, 1.0]}
    else:
        large = preparation == LARGE
        images: Any = _Prepared(raw, lambda x, _: prepare(x, preparation)) if large else prepare(raw, preparation)
        restorer = unshift.fit(images, coordinates=coordinates, **recipe)
    restorer.trained_on["preparation"] = preparation
    return restorer


def _images(recipe: dict[str, Any], split: str) -> Any:
    """Return the images of a split: a tensor, or a list of arrays."""
    return recipe["load"](split) if "load" in recipe else dataset(recipe["data"], split).images


def _test_parts(recipe: dict[str, Any], restorer: unshift.Restorer | unshift.Chain) -> Iterator[Tensor]:
    """Return the test images or, for a restorer of scenes, scenes of them like those it was trained on."""
    parts = (prepare(part, recipe["preparation"]) for part in batches(_images(recipe, "test"), 500))
    told, generator = restorer.metadata.get("scenes"), torch.Generator().manual_seed(1)
    if told is None:
        return parts
    window, ground = restorer.coordinates.window, (told["background"], told["plain"])
    return (Scenes(told["size"], window, part.shape[1:], *ground)(part, generator) for part in parts)


def _rates(restorer: unshift.Restorer | unshift.Chain, parts: Iterable[Tensor]) -> dict[str, Any]:
    """Measure part by part: large images do not fit in memory together."""
    found = [(len(part), restoration_rates(restorer, part).as_dict()) for part in parts]
    total = sum(count for count, _ in found)
    shares = {
        key: sum(count * rates[key] for count, rates in found) / total for key in ("exact", "within_1", "confidence")
    }
    return {"images": total, **shares, "tied": sum(rates["tied"] for _, rates in found)}


def make(name: str, folder: Path, *, progress: bool = True, **changes: Any) -> unshift.Restorer | unshift.Chain:
    """Train restorer ``name`` on its full training set and save it in ``folder``; goes on after a kill.

    With ``changes`` to its recipe it is a trial: the images held out judge it, and the test set is left alone.
    """
    stages = []
    for number, recipe in enumerate(RECIPES[name]):
        state = folder / f"{name}.{number}.checkpoint"
        stages.append(_fit({**recipe, **changes}, checkpoint=state, resume=True, progress=progress))
    restorer = stages[0] if len(stages) == 1 else unshift.Chain(*stages).eval()
    if len(stages) > 1:
        told = [stage.metadata for stage in stages]
        restorer.trained_on = stages[0].trained_on
        restorer.metadata = {
            **{key: told[0][key] for key in ("preset", "data", "train_images", "seed", "size", "versions")},
            "stages": told,
            "seconds": round(math.fsum(one["seconds"] for one in told), 1),
        }
    first = RECIPES[name][0]
    if not changes:
        restorer.metadata["test"] = _rates(restorer, _test_parts(first, restorer))
    if "about" in first:
        restorer.metadata["about"] = first["about"]
    restorer.save(folder / f"{name}.safetensors")
    return restorer


def calibrate(name: str, folder: Path) -> unshift.Restorer | unshift.Chain:
    """Calibrate a restorer that is there on the training images that its recipe held out, and save it in ``folder``."""
    first = RECIPES[name][0]
    restorer = unshift.load(name)
    images = prepare(_images(first, "train"), first["preparation"])
    coordinates, validation = restorer.stages[0].coordinates, first.get("validation", 0.1)
    scenes = {key: first[key] for key in ("scene", "background") if key in first}
    seed = first.get("seed", 0)
    examples = Examples(images, coordinates, validation=validation, seed=seed, drop_unusable=True, **scenes)
    restorer.metadata["validation"] = rates_from(_calibrate(restorer, lambda: examples.held_out(256))).as_dict()
    restorer.metadata["test"] = _rates(restorer, _test_parts(first, restorer))
    restorer.save(folder / f"{name}.safetensors")
    return restorer


def main() -> None:
    """Train the restorers named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", choices=list(RECIPES))
    parser.add_argument("--out", type=Path, default=Path(unshift.__file__).parent / "pretrained")
    parser.add_argument("--calibrate", action="store_true", help="train nothing: calibrate what is there")
    parser.add_argument("--threads", type=int, help="CPU threads; results differ in the last bits between counts")
    parser.add_argument("--try", type=json.loads, default={}, dest="changes", help="changes to a recipe, as JSON")
    arguments = parser.parse_args()
    out = arguments.out
    if arguments.changes and out == parser.get_default("out"):
        parser.error("a trial would overwrite what is shipped: give another folder by --out")
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    for name in arguments.names:
        restorer = calibrate(name, out) if arguments.calibrate else make(name, out, **arguments.changes)
        metadata = restorer.metadata
        told = {key: metadata.get(key) for key in ("validation", "test", "calibration", "seconds")}
        losses = [epoch["validation_loss"] for epoch in metadata.get("history", ())]
        print(name, json.dumps({"validation_loss": min(losses, default=None), **told}), flush=True)


if __name__ == "__main__":
    main()
