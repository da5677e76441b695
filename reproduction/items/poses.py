"""Shift and turn at once: images turned and shifted at random.

Claim: Shift and turn are undone together: quarter turns bit for bit, any angle once the digit is centred.
Paper: shifts or rotations, not both.
Cost: 2 min for each case of MNIST; 7 min for CIFAR-10, and 10 min once to train its restorer.

``photo-turns`` compares with equiadapt's canonicalizer, which undoes turns but no shifts, where it is installed:

    pip install --no-deps equiadapt==0.1.2 e2cnn==0.2.3 kornia kornia_rs omegaconf torchvision==0.28.0
"""

from __future__ import annotations

import importlib
import sys
from importlib import metadata, util
from statistics import fmean
from typing import Any

import torch
from safetensors.torch import load_file
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

import unshift
from reproduction import plots
from reproduction.classifiers import Recipe, frozen, train
from reproduction.images import labelled
from reproduction.records import Options, Result
from reproduction.tables import Block, Picture, Row, Table
from reproduction.translation import Memo
from unshift.coordinates import Pose, Turns
from unshift.data import DataError, dataset, prepare, root
from unshift.evaluation import accuracy, predict
from unshift.files import write_atomically

RESNET = "resnet18-cifar10-autoattack"
CASES = {
    "turns": ("mnist-10k", "lenet5-mnist"),
    "pose": ("mnist-10k", "lenet5-mnist"),
    "photo-turns": ("cifar10", RESNET, "cifar10-turns"),
}
RESTORERS = {"turns": "mnist-turns", "pose": "mnist-pose", "photo-turns": "cifar10-turns"}
PHOTOS = 1000
ROWS = ("upright", "moved", "restored")


def measure(case: str, options: Options) -> Result:
    """Return accuracies in percent, upright and moved, bare and restored, and how many restored images differ."""
    photos, name = case == "photo-turns", RESTORERS[case]
    restorer: Any = photo_turns(options) if photos else unshift.load(name)
    data, count = ("cifar10", PHOTOS) if photos else ("mnist-10k", None)
    images, labels = labelled(data, options, restorer.trained_on["preparation"], count)
    behind = frozen(RESNET if photos else "lenet5-mnist", options)
    classifier = Memo(behind.model)
    coordinates, size = restorer.coordinates, tuple(images.shape[2:])
    poses, bare, verdicts = [], [], []
    for seed in options.seeds:
        poses.append(coordinates.draw(size, len(images), None, torch.Generator().manual_seed(seed)))
        moved = coordinates.redo(images, poses[-1])
        bare.append(100 * accuracy(classifier, moved, labels))
        verdicts.append(predict(lambda x: classifier(restorer(x)), moved))
    same = torch.stack(verdicts)
    few, moves = (2, 20) if options.quick else (25, 500)
    result = {
        "data": "CIFAR-10 test, padded to 40x40" if photos else "MNIST test, 32x32",
        "images": len(images),
        "seeds": list(options.seeds),
        "classifier": behind.title,
        "restorer": name,
        "undoes": coordinates.labels.undoes,
        "upright": 100 * accuracy(classifier, images, labels),
        "bare": bare,
        "restored": [100 * float((verdict == labels).double().mean()) for verdict in verdicts],
        "consistent": 100 * float((same == same[0]).all(0).double().mean()),
        "verified": unshift.verify(restorer, images[:few], moves=moves, progress=options.progress).as_dict(),
        "pictures": _pictures(restorer, images[:16], options.seeds[0]),
    }
    return result | (_turned(restorer, images, labels, classifier, poses, options) if photos else {})


def _turned(
    restorer: Any, images: Tensor, labels: Tensor, classifier: Memo, poses: list[Pose], options: Options
) -> Result:
    """Return how often the pose is right, how the restorer was trained, and accuracies for turns without shifts."""
    estimate = restorer.estimate(images)
    upright, still = estimate.turn == 0, (estimate.shift == 0).all(1)
    facts, network = restorer.metadata, restorer.scorer.describe()["network"]
    result: Result = {
        "exact": 100 * float((upright & still).double().mean()),
        "turn_right": 100 * float(upright.double().mean()),
        "parameters": sum(p.numel() for p in unshift.ShiftEstimator(**network).parameters()),
        "training": {key: facts[key] for key in ("epochs_run", "train_images", "validation", "seed", "seconds")},
        "turned_bare": [],
    }
    canonical = canonicalizer(options) if util.find_spec("equiadapt") and not options.quick else None
    turned, moved = [], []
    for pose in poses:
        alone = restorer.coordinates.redo(images, Pose(torch.zeros_like(pose.shift), pose.turn))
        result["turned_bare"].append(100 * accuracy(classifier, alone, labels))
        if canonical is not None:
            both = restorer.coordinates.redo(images, pose)
            for accuracies, shown in ((turned, alone), (moved, both)):
                accuracies.append(100 * accuracy(lambda x: classifier(canonical(x)), shown, labels))
    if canonical is not None:
        result["equiadapt"] = {**EQUIADAPT, "versions": _versions(), "turned": turned, "moved": moved}
    return result


def _pictures(restorer: Any, images: Tensor, seed: int) -> Result:
    pose = restorer.coordinates.draw(tuple(images.shape[2:]), len(images), None, torch.Generator().manual_seed(seed))
    moved = restorer.coordinates.redo(images, pose)
    shown = zip(ROWS, (images, moved, restorer(moved)), strict=True)
    return {name: (255 * x.mean(1)).round().to(torch.uint8).tolist() for name, x in shown}


# --- The restorer for photos ----------------------------------------------------------------------------------------


def photo_turns(options: Options) -> Any:
    """Return the restorer of turned and shifted photos; in a quick run, one trained on noise."""
    path = root() / "restorers" / "cifar10-turns.safetensors"
    if options.quick:
        noise = torch.rand(8, 3, 32, 32, generator=torch.Generator().manual_seed(0))
        return train_photo_turns(noise, epochs=1, validation=4, progress=False)
    if not path.exists():
        raise DataError(f"{path} is missing; `python -m reproduction fetch cifar10-turns` trains it")
    return unshift.load(path)


def make_photo_turns() -> None:
    """Train the restorer on the training photos, and save it in the data folder; a killed run goes on."""
    path = root() / "restorers" / "cifar10-turns.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    options: Any = {"checkpoint": path.with_suffix(".checkpoint"), "resume": True, "drop_unusable": True}
    train_photo_turns(dataset("cifar10", "train").images, **options).save(path)


def train_photo_turns(photos: Tensor, **options: Any) -> unshift.Restorer:
    """Fit a restorer of quarter turns and shifts on photos, padded by 4 pixels so that a margin shows the shift."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        # Rows and columns as a whole show which way is up, so the line filters are as long as the image.
        network = unshift.ShiftEstimator(
            3,
            channels=(16, 24),
            kernel_size=(3, 3),
            bias=True,
            line_channels=(48, 1),
            line_kernel_size=(40, 40),
            size=(40, 40),
        )
    recipe: Any = {"epochs": 3, "learning_rate": 0.01, "batch_size": 64, "standardise": True, "optimizer": "muon"}
    recipe |= {"validation": 5000, "augment": ["mirror"], "seed": 0, "data_name": "cifar10", **options}
    restorer = unshift.fit(prepare(photos, {"pad": 4}), network, coordinates=Turns("quarter"), **recipe)
    restorer.trained_on["preparation"] = {"pad": 4}
    return restorer


# --- equiadapt ------------------------------------------------------------------------------------------------------

EQUIADAPT: dict[str, Any] = {
    "network": {"out_channels": 16, "kernel_size": 5, "group_type": "rotation", "num_rotations": 4, "num_layers": 3},
    "canonicalizer": {"beta": 1.0, "input_crop_ratio": 0.8, "resize_shape": 32},
    "images": 22_500,
    "epochs": 1,
    "batch_size": 64,
    "learning_rate": 0.003,
    "seed": 0,
}
"""equiadapt's default for images, with half the channels, and at the photos' own size instead of 96x96."""
_OPERATORS = ["nms", "qnms", "qroi_align"]
for _name in ("roi_align", "ps_roi_align", "roi_pool", "ps_roi_pool", "deform_conv2d"):
    _OPERATORS += [_name, f"_{_name}_backward"]
_LIBRARIES: list[Any] = []
"""A library of operators ends with its object, so these are kept."""


def _versions() -> dict[str, str]:
    return {name: metadata.version(name) for name in ("equiadapt", "e2cnn", "torchvision")}


def import_equiadapt(name: str) -> Any:
    """Import a module of equiadapt although torchvision's compiled operators do not load beside this PyTorch.

    equiadapt needs none of the operators, but ``import torchvision`` fails unless they are registered by name.
    """
    try:
        return importlib.import_module(name)
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
    for module in [each for each in sys.modules if each.split(".")[0] in ("torchvision", "equiadapt")]:
        del sys.modules[module]
    library = torch.library.Library("torchvision", "DEF")
    for operator in _OPERATORS:
        library.define(f"{operator}(Tensor images) -> Tensor")
    _LIBRARIES.append(library)
    return importlib.import_module(name)


def canonicalizer(options: Options) -> nn.Module:
    """Return equiadapt's canonicalizer for quarter turns of padded photos, trained by its prior, without labels.

    The prior (Mondal et al. 2023) asks that upright photos stay as they are. A trained one is kept in the data folder.
    """
    discrete = import_equiadapt("equiadapt.images.canonicalization.discrete_group")
    networks = import_equiadapt("equiadapt.images.canonicalization_networks")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(EQUIADAPT["seed"])
        network = networks.ESCNNEquivariantNetwork((3, 32, 32), **EQUIADAPT["network"])
    settings = importlib.import_module("omegaconf").DictConfig(EQUIADAPT["canonicalizer"])
    made: Any = discrete.GroupEquivariantImageCanonicalization(network, settings, (3, 40, 40))
    path = root() / "rivals" / "equiadapt.safetensors"
    made.train()
    if not path.exists():
        photos = prepare(dataset("cifar10", "train").images[: EQUIADAPT["images"]], {"pad": 4})

        def prior(_: nn.Module, batch: Tensor, __: Tensor) -> Tensor:
            made(batch)
            loss: Tensor = made.get_prior_regularization_loss()
            return loss

        recipe = Recipe("equiadapt", epochs=1, batch_size=64, learning_rate=0.003, weight_decay=0.0, flips=True)
        train(network, photos, torch.zeros(len(photos)), recipe, loss_of=prior, progress=options.progress)
        write_atomically(path, to_bytes({k: v.contiguous().clone() for k, v in network.state_dict().items()}))
    network.load_state_dict(load_file(path))
    evaluated: nn.Module = made.eval()
    return evaluated


# --- Tables ---------------------------------------------------------------------------------------------------------


def tables(results: dict[str, Any], case: str) -> list[Block]:
    """Return the table and the picture."""
    result, photos = results[case], case == "photo-turns"
    kind = "photo" if photos else "digit"
    rows = [
        Row("upright, bare", [result["upright"]]),
        Row("moved, bare", [fmean(result["bare"])], style="bare"),
        Row(f"moved, with unshift ({result['restorer']})", [fmean(result["restored"])], style="restored"),
        Row("same prediction for all draws", [result["consistent"]], style="detail"),
    ]
    notes = [
        f"{result['classifier']}, accuracy in %, {result['data']}, n = {result['images']:,}, mean over draws with "
        f"seeds {result['seeds']}; each {kind} moved by its own random pose. `{result['restorer']}` undoes "
        f"{result['undoes']}.",
    ]
    for key in ("verified", "forced"):  # records of 0.2 have both: scores moved, and images moved
        if checked := result.get(key):
            notes.append(
                f"Bit for bit: {checked['images']:,} {kind}s under {checked['moves'] // checked['images']:,} exact "
                f"moves each, {checked['mismatches']:,} mismatches, {checked['ties']:,} ties."
            )
    if photos:
        trained = result["training"]
        rows += [
            Row("shift and turn exactly right", [result["exact"]], style="detail"),
            Row("turn right", [result["turn_right"]], style="detail"),
            Row("turned only, bare", [fmean(result["turned_bare"])], style="bare"),
        ]
        notes.append(
            f"`{result['restorer']}`: {result['parameters']:,} parameters, {trained['epochs_run']} epochs on "
            f"{trained['train_images']:,} upright photos without labels, seed {trained['seed']}; "
            f"{100 * trained['validation']['exact']:.2f}% exact on {trained['validation']['images']:,} held-out photos."
        )
    if rival := result.get("equiadapt"):
        name = f"equiadapt {rival['versions']['equiadapt']}"
        rows += [
            Row(f"turned only, with {name}", [fmean(rival["turned"])]),
            Row(f"moved, with {name}, which undoes no shift", [fmean(rival["moved"])]),
        ]
        notes.append(
            "equiadapt: its group-equivariant canonicalizer for quarter turns "
            f"({rival['network']['num_layers']} layers of {rival['network']['out_channels']} fields), trained by its "
            f"prior alone, without labels: {rival['epochs']} epoch on {rival['images']:,} photos; torchvision "
            f"{rival['versions']['torchvision']}."
        )
    draw = (lambda: plots.image_rows(result["pictures"], 2.2)) if "pictures" in result else None
    alt = f"{kind.capitalize()}s upright, moved and restored by {result['restorer']}"
    return [Table("", ["accuracy"], rows, notes), Picture(f"poses-{case}", alt, draw)]
