"""What may be done to training images without moving them: a mirrored photo, or a part of it, is an upright photo too.

An augmentation is a function ``(images, generator) -> images`` of one batch. It may draw from the generator and from
nothing else, so that a run that was killed sees the same images again. One that moves the images returns ``(images,
pose)`` instead, and the pose is then the target: moves that are not exact, such as rotations by any angle, are learnt
from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from unshift.coordinates import Pose
from unshift.estimator import as_float

__all__ = ["AUGMENTATIONS", "Augmentation", "augmented", "named"]

Augmentation = Callable[[Tensor, torch.Generator], Tensor | tuple[Tensor, Pose]]

SMALLEST = 9
"""A window is at least this long along each side: the longest kernel of a preset that takes any size."""


def mirror(images: Tensor, generator: torch.Generator) -> Tensor:
    """Flip each image left to right half of the time."""
    flipped = torch.rand(len(images), generator=generator) < 0.5
    return torch.where(flipped.view(-1, *[1] * (images.ndim - 1)), images.flip(-1), images)


def windows(images: Tensor, generator: torch.Generator) -> Tensor:
    """Show half of the batches through one window of at least three quarters of each side."""
    whether, *chances = torch.rand(1 + 2 * (images.ndim - 2), generator=generator).tolist()
    if whether < 0.5:
        return images
    for axis, n in enumerate(images.shape[2:]):
        length = max(min(SMALLEST, n), n - int(chances[2 * axis] * (n // 4 + 1)))
        images = images.narrow(2 + axis, int(chances[2 * axis + 1] * (n - length + 1)), length)
    return images


def colour(images: Tensor, generator: torch.Generator) -> Tensor:
    """Change the contrast of each image, and the brightness of each of its channels, by up to 40 percent."""
    one = [1] * (images.ndim - 2)
    pixels = as_float(images)
    contrast = 1 + 0.4 * (2 * torch.rand(len(images), 1, *one, generator=generator) - 1)
    brightness = 0.4 * (torch.rand(len(images), images.shape[1], *one, generator=generator) - 0.5)
    return (pixels - 0.5) * contrast + 0.5 + brightness


AUGMENTATIONS: dict[str, Augmentation] = {"mirror": mirror, "windows": windows, "colour": colour}
"""The augmentations that ``fit`` knows by name."""


def named(augment: Sequence[str | Augmentation]) -> dict[str, Augmentation]:
    """Return augmentations by name, those of the caller's own under the names of their functions.

    Raises:
        ValueError: If there is no augmentation of that name.
    """
    found = {}
    for one in [augment] if isinstance(augment, str) else augment:
        if isinstance(one, str) and one not in AUGMENTATIONS:
            raise ValueError(f"no augmentation named {one!r}; there are {', '.join(AUGMENTATIONS)}, or give a function")
        name = one if isinstance(one, str) else getattr(one, "__name__", type(one).__name__)
        found[name] = AUGMENTATIONS[one] if isinstance(one, str) else one
    return found


def augmented(
    images: Tensor, augmentations: dict[str, Augmentation], generator: torch.Generator
) -> tuple[Tensor, Pose | None]:
    """Do all augmentations to one batch, one after another; return the images, and the pose if one moved them."""
    pose = None
    for augment in augmentations.values():
        found = augment(images, generator)
        if isinstance(found, tuple):
            if pose is not None:
                raise ValueError("only one augmentation may move the images")
            images, pose = found
        else:
            images = found
    return images, pose
