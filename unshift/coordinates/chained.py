"""Chained: the coordinates of a chain. The poses are undone one after another; the last one was done first."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn

from unshift.coordinates.interface import Coordinates, Labels, Pose, Posed, rows


def merge_poses(poses: Sequence[Posed], reads: Sequence[frozenset[str]]) -> Pose:
    """Merge the poses of several stages: each part comes from the stage that reads it."""
    parts: dict[str, Any] = {"shift": poses[0].shift}
    for pose, names in zip(poses, reads, strict=True):
        parts |= {name: getattr(pose, name) for name in names}
    return Pose(**parts)


class Chained(nn.Module):
    """Coordinates one after another, in the order in which they undo. No two may read the same part of a pose."""

    def __init__(self, stages: Sequence[Coordinates]) -> None:
        super().__init__()
        self.stages: Any = nn.ModuleList(stages)
        labels = [stage.labels for stage in stages]
        reads = [name for label in labels for name in sorted(label.reads)]
        if len(stages) < 2 or len(set(reads)) < len(reads):
            raise ValueError(
                "a chain takes two or more restorers, and no two may read the same part of the pose; "
                f"got {len(stages)} that read {', '.join(reads)}"
            )
        self.labels = Labels(
            ", then ".join(label.undoes for label in labels),
            frozenset(reads),
            " and ".join(label.unit for label in labels),
            " and ".join(label.step for label in labels),
            sum((label.turns for label in labels), ()),  # at most one stage reads turns
            any(label.scenes for label in labels),
        )

    def describe(self) -> dict[str, Any]:
        return {"kind": "chained", "stages": [stage.describe() for stage in self.stages]}

    def undo(self, images: Tensor, pose: Posed) -> Tensor:
        return reduce(lambda images, stage: stage.undo(images, pose), self.stages, images)

    def redo(self, images: Tensor, pose: Posed, size: Sequence[int] | None = None) -> Tensor:
        for stage in reversed(self.stages[1:]):
            images = stage.redo(images, pose)
        redone: Tensor = self.stages[0].redo(images, pose, size)
        return redone

    def draw(self, size: tuple[int, ...], count: int, scope: int | None, generator: torch.Generator) -> Pose:
        """See :class:`Coordinates`. A scope limits the first stage. Any scope but 0 allows all moves of the others."""
        first, *others = self.stages
        poses = [first.draw(size, count, scope, generator)]
        poses += [stage.draw(size, count, 0 if scope == 0 else None, generator) for stage in others]
        return merge_poses(poses, [stage.labels.reads for stage in self.stages])

    def exact_on(self, images: Tensor) -> tuple[Tensor, Any]:
        return images, self

    def moves(self, size: tuple[int, ...]) -> Pose:
        """See :class:`Coordinates`. Every move of one stage is combined with every move of the others."""
        moves: Pose = self.stages[0].moves(size)
        for stage in self.stages[1:]:
            added = stage.moves(size)
            outer, inner = len(added.shift), len(moves.shift)
            poses = [
                rows(moves, torch.arange(inner).repeat(outer)),
                rows(added, torch.arange(outer).repeat_interleave(inner)),
            ]
            moves = merge_poses(poses, [self.labels.reads - stage.labels.reads, stage.labels.reads])
        return moves

    def distance(self, pose: Posed, size: tuple[int, ...]) -> Tensor:
        """See :class:`Coordinates`. The largest distance of any stage, each in its own unit."""
        return torch.stack([stage.distance(pose, size) for stage in self.stages]).amax(0)
