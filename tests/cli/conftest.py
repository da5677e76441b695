"""Fixtures of the tests of the command line."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import SETTINGS
from PIL import Image
from samples import blobs, sequence

import unshift
from unshift.coordinates import Centre, Polar, Turns
from unshift.data.sequences import encode
from unshift.restorer import Chain, Restorer


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Run every test in its own folder, with its own (empty) data folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UNSHIFT_DATA", str(tmp_path / "unshift-data"))
    monkeypatch.delenv("UNSHIFT_DEBUG", raising=False)


@pytest.fixture(scope="session")
def pixels() -> torch.Tensor:
    return (400 * blobs(80, 1, (12, 12))).round().to(torch.uint8)


@pytest.fixture(scope="session")
def made(tmp_path_factory, pixels) -> Path:
    """A folder with images as arrays and files, and restorers for them."""
    folder = tmp_path_factory.mktemp("made")
    np.save(folder / "blobs.npy", pixels.numpy())
    labels = np.arange(len(pixels)) % 3
    np.savez(folder / "labelled.npz", images=pixels.numpy(), labels=labels)
    (folder / "photos").mkdir()
    for i, image in enumerate(pixels[:20]):
        Image.fromarray(image[0].numpy()).save(folder / "photos" / f"{i:02}.png")
    for preset in ("paper", "dense"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # two epochs: near guessing
            restorer = unshift.fit(pixels, preset, **SETTINGS, data_name="blobs.npy")
        restorer.save(folder / f"{preset}.safetensors")
    return folder


@pytest.fixture(scope="session")
def posed(tmp_path_factory) -> Path:
    """A folder with small images, and a restorer for each kind of pose, with random weights."""
    folder = tmp_path_factory.mktemp("posed")
    images = (400 * blobs(20, 1, (8, 8))).round().to(torch.uint8)
    np.savez(folder / "labelled.npz", images=images.numpy(), labels=np.arange(20) % 3)
    (folder / "images").mkdir()
    for i, image in enumerate(images[:3]):
        Image.fromarray(image[0].numpy()).save(folder / "images" / f"{i}.png")

    def untrained(coordinates) -> Restorer:
        torch.manual_seed(1)
        net = coordinates.network("dense", 1, (8, 8))
        return Restorer(unshift.quantise(net, torch.cat(list(coordinates.canvases(images)))), coordinates=coordinates)

    angles = Polar(8, angles=8, radii=4)
    untrained(Turns("quarter")).save(folder / "turns.safetensors")
    untrained(angles).save(folder / "rotation.safetensors")
    Chain(untrained(Centre()), untrained(angles)).save(folder / "chain.safetensors")
    return folder


@pytest.fixture(scope="session")
def model(tmp_path_factory) -> Path:
    """A restorer of sequences with random weights, whose file says to turn everything."""
    torch.manual_seed(0)
    sample = [encode(sequence(300, 0)), encode(sequence(310, 1))]
    scorer = unshift.quantise(unshift.ShiftEstimator.preset("sequence", 4, (300,)), sample)
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    restorer = Restorer(scorer, coordinates=Turns("strand"))
    restorer.metadata["orient"] = {"min_confidence": 0.0}
    restorer.save(path)
    return path
