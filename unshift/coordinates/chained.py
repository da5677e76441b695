"""Chained: one kind of move after another, as one. The last stage's move was done first."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn

from unshift.coordinates.protocol import Coordinates, Pose, Posed, rows

__all__ = ["Chained", "merged"]


def merged(poses: Sequence[Posed], reads: Sequence[frozenset[str]]) -> Pose:
    """Join the poses that several stages read, each part taken from the stage that reads it."""
    parts: dict[str, Any] = {"shift": poses[0].shift}
    for pose, own in zip(poses, reads, strict=True):
        parts |= {name: getattr(pose, name) for name in own}
    return Pose(**parts)


class Chained(nn.Module):
    """The coordinates of a chain of restorers: what it undoes, stage by stage.

    Args:
        stages: Coordinates, in the order in which they undo. No two may read the same part of a pose.
    """

    def __init__(self, stages: Sequence[Any]) -> None:
        super().__init__()
        self.stages: Any = nn.ModuleList(stages)
        read = [name for stage in stages for name in sorted(stage.reads)]
        if len(stages) < 2 or len(set(read)) < len(read):
            raise ValueError(
                "a chain takes two or more restorers, and no two may read the same part of the pose; "
                f"got {len(stages)} that read {', '.join(read)}"
            )
        self.reads = frozenset(read)
        self.unit = " and ".join(stage.unit for stage in stages)
        self.step = " and ".join(stage.step for stage in stages)
        self.undoes = ", and ".join(stage.undoes for stage in stages)
        self.window = next((stage.window for stage in reversed(stages) if stage.window), None)
        self.names: tuple[str, ...] = sum((stage.names for stage in stages), ())  # at most one stage reads turns

    def describe(self) -> dict[str, Any]:
        """See :class:`Coordinates`."""
        return {"kind": "chained", "stages": [stage.describe() for stage in self.stages]}

    def undo(self, images: Tensor, pose: Posed) -> Tensor:
        """See :class:`Coordinates`."""
        return reduce(lambda images, stage: stage.undo(images, pose), self.stages, images)

    def on_scene(self, images: Tensor, size: Sequence[int] | None) -> Tensor:
        """See :class:`Coordinates`. The stage that undoes last is the first to be put back, and may not change it."""
        found: Tensor = self.stages[-1].on_scene(images, size)
        return found

    def redo(self, images: Tensor, pose: Posed) -> Tensor:
        """See :class:`Coordinates`."""
        return reduce(lambda images, stage: stage.redo(images, pose), reversed(self.stages), images)

    def move(self, images: Tensor, pose: Posed) -> Tensor:
        """See :class:`Coordinates`."""
        return reduce(lambda images, stage: stage.move(images, pose), reversed(self.stages), images)

    def draw(self, size: tuple[int, ...], count: int, scope: int | None, generator: torch.Generator) -> Pose:
        """See :class:`Coordinates`. A scope limits the first stage's move; the others may be any, but none with 0."""
        first, *others = self.stages
        poses = [first.draw(size, count, scope, generator)]
        poses += [stage.draw(size, count, 0 if scope == 0 else None, generator) for stage in others]
        return merged(poses, [stage.reads for stage in self.stages])

    def ground(self, images: Tensor) -> tuple[Tensor, Coordinates]:
        """See :class:`Coordinates`."""
        return images, self  # type: ignore[return-value]

    def moves(self, size: tuple[int, ...]) -> Pose:
        """See :class:`Coordinates`. Every exact move of one stage with every one of the others."""
        found: Pose = self.stages[0].moves(size)
        for stage, own in ((stage, stage.moves(size)) for stage in self.stages[1:]):
            outer, inner = len(own.shift), len(found.shift)
            # Every row of one with every row of the other.
            one, other = torch.arange(inner).repeat(outer), torch.arange(outer).repeat_interleave(inner)
            found = merged([rows(found, one), rows(own, other)], [self.reads - stage.reads, stage.reads])
        return found

    def distance(self, pose: Posed, size: tuple[int, ...]) -> Tensor:
        """See :class:`Coordinates`. The worst of the stages, each in its own unit."""
        return torch.stack([stage.distance(pose, size) for stage in self.stages]).amax(0)
