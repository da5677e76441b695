"""The classifiers that the experiments put behind a restorer. Not part of the library's import."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm.auto import tqdm

from unshift.weights import write_atomically

__all__ = ["LeNet5", "Voxels3d", "load_classifier", "save_classifier", "shipped", "train_classifier"]


class LeNet5(nn.Sequential):
    """LeNet-5 for 1x32x32 images (LeCun 1998), with ReLU and max pooling as in today's use: 61,706 parameters."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 6, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(400, 120),
            nn.ReLU(),
            nn.Linear(120, 84),
            nn.ReLU(),
            nn.Linear(84, 10),
        )


class Voxels3d(nn.Sequential):
    """Three 3-D convolutions and two linear layers for 1x32x32x32 volumes: 56,570 parameters."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv3d(1, 8, 4, stride=2),
            nn.ReLU(),
            nn.Conv3d(8, 16, 3, stride=2),
            nn.ReLU(),
            nn.Conv3d(16, 24, 3, stride=1),
            nn.ReLU(),
            nn.MaxPool3d(2, ceil_mode=True),
            nn.Flatten(),
            nn.Linear(24 * 27, 64),
            nn.ReLU(),
            nn.Linear(64, 10),
        )


ARCHITECTURES: dict[str, Callable[[], nn.Module]] = {"lenet5": LeNet5, "voxels3d": Voxels3d}


def train_classifier(
    architecture: str,
    images: Tensor,
    labels: Tensor,
    *,
    epochs: int = 15,
    batch_size: int = 128,
    learning_rate: float = 0.003,
    seed: int = 0,
    progress: bool = True,
) -> nn.Module:
    """Train on images where they are: no shifts, no augmentation, so that the classifier knows none."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = ARCHITECTURES[architecture]()
    steps = math.ceil(len(images) / batch_size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, learning_rate, total_steps=epochs * steps)
    model.train()
    with tqdm(total=epochs * steps, desc=f"train {architecture}", disable=None if progress else True) as bar:
        for epoch in range(epochs):
            order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed * 1009 + epoch))
            for batch in order.split(batch_size):
                loss = F.cross_entropy(model(images[batch]), labels[batch])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
                bar.update()
    return model.eval()


def save_classifier(model: nn.Module, path: Path, metadata: dict[str, object]) -> None:
    """Write weights and what is known of them to one safetensors file; ``metadata`` names the architecture."""
    tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    write_atomically(path, to_bytes(tensors, {"classifier": json.dumps(metadata)}))


def load_classifier(path: Path) -> nn.Module:
    """Read a classifier that :func:`save_classifier` wrote."""
    with safe_open(str(path), framework="pt") as file:
        metadata = json.loads((file.metadata() or {}).get("classifier", "{}"))
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    if metadata.get("architecture") not in ARCHITECTURES:
        raise ValueError(f"{path}: not a classifier of the experiments")
    model = ARCHITECTURES[metadata["architecture"]]()
    model.load_state_dict(tensors)
    return model.eval()


def shipped() -> dict[str, Callable[[], nn.Module]]:
    """Return the classifiers that come with the package: name to a function that loads it."""
    folder = Path(str(resources.files("unshift"))) / "experiments" / "weights"
    return {path.stem: lambda path=path: load_classifier(path) for path in sorted(folder.glob("*.safetensors"))}  # type: ignore[misc]


def _make(epochs: int = 15, seed: int = 0) -> None:
    """Train the shipped LeNet-5 on the full MNIST training set; 5,000 held-out images say how good it is."""
    from unshift.data import dataset, resize, to_float

    mnist = dataset("mnist", "train")
    assert mnist.labels is not None
    images = resize(to_float(mnist.images), (32, 32))
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    held, kept = order[:5000], order[5000:]
    model = train_classifier("lenet5", images[kept], mnist.labels[kept], epochs=epochs, seed=seed)
    with torch.no_grad():
        score = float((model(images[held]).argmax(1) == mnist.labels[held]).double().mean())
    metadata = {
        "architecture": "lenet5",
        "data": "mnist, 28x28 resized to 32x32",
        "train_images": len(kept),
        "epochs": epochs,
        "seed": seed,
        "validation_images": len(held),
        "validation_accuracy": score,
        "torch": torch.__version__,
    }
    save_classifier(model, Path(__file__).parent / "weights" / "lenet5-mnist.safetensors", metadata)
    print(json.dumps(metadata))


if __name__ == "__main__":
    _make()
