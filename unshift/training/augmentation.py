"""Augmentations: changes of training images that keep them upright, such as mirroring or cropping a photo.

An augmentation is a function ``(images, generator) -> images`` of one batch. Its only source of randomness is the
generator, so that a resumed run sees the same images. An augmentation that moves the images returns ``(images, pose)``,
and the pose is the target: this is how inexact moves, such as rotations by any angle, are learnt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from unshift.coordinates import Pose
from unshift.network import as_float

Augmentation = Callable[[Tensor, torch.Generator], Tensor | tuple[Tensor, Pose]]

SMALLEST_WINDOW = 9
"""Smallest side of a window: the longest kernel of a preset that takes any size."""


def mirror(images: Tensor, generator: torch.Generator) -> Tensor:
    """Flip each image left to right with probability 1/2."""
    flipped = torch.rand(len(images), generator=generator) < 0.5
    return torch.where(flipped.view(-1, *[1] * (images.ndim - 1)), images.flip(-1), images)


def windows(images: Tensor, generator: torch.Generator) -> Tensor:
    """Crop half of the batches to one window of at least three quarters of each side."""
    skip, *draws = torch.rand(1 + 2 * (images.ndim - 2), generator=generator).tolist()
    if skip < 0.5:
        return images
    for axis, n in enumerate(images.shape[2:]):
        length = max(min(SMALLEST_WINDOW, n), n - int(draws[2 * axis] * (n // 4 + 1)))
        images = images.narrow(2 + axis, int(draws[2 * axis + 1] * (n - length + 1)), length)
    return images


def colour(images: Tensor, generator: torch.Generator) -> Tensor:
    """Change the contrast of each image by up to 40%, and the brightness of each of its channels by up to 20%."""
    spatial = [1] * (images.ndim - 2)
    pixels = as_float(images)
    contrast = 1 + 0.4 * (2 * torch.rand(len(images), 1, *spatial, generator=generator) - 1)
    brightness = 0.4 * (torch.rand(len(images), images.shape[1], *spatial, generator=generator) - 0.5)
    return (pixels - 0.5) * contrast + 0.5 + brightness


AUGMENTATIONS: dict[str, Augmentation] = {"mirror": mirror, "windows": windows, "colour": colour}
"""The augmentations that ``fit`` takes by name."""


def augmentations_by_name(augment: Sequence[str | Augmentation]) -> dict[str, Augmentation]:
    """Return augmentations by name; functions go by their own names."""
    functions = {}
    for item in [augment] if isinstance(augment, str) else augment:
        if not isinstance(item, str):
            functions[getattr(item, "__name__", type(item).__name__)] = item
        elif item in AUGMENTATIONS:
            functions[item] = AUGMENTATIONS[item]
        else:
            names = ", ".join(AUGMENTATIONS)
            raise ValueError(f"no augmentation named {item!r}; there are {names}, or give a function")
    return functions


def augmented(
    images: Tensor, augmentations: dict[str, Augmentation], generator: torch.Generator
) -> tuple[Tensor, Pose | None]:
    """Apply all augmentations to one batch in turn; return the images, and the pose if one of them moved the images."""
    pose = None
    for augment in augmentations.values():
        result = augment(images, generator)
        if not isinstance(result, tuple):
            images = result
        elif pose is None:
            images, pose = result
        else:
            raise ValueError("only one augmentation may move the images")
    return images, pose
