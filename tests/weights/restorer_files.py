"""Helpers to take apart, write and compare restorer files."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save as to_bytes

from unshift import Chain, Restorer
from unshift.files import checksum


def raw(path: Path) -> tuple[dict, dict[str, torch.Tensor]]:
    """Return the description and the tensors in a file."""
    with safe_open(str(path), framework="pt") as opened:
        return json.loads(opened.metadata()["unshift"]), {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118


def write(path: Path, header: dict, tensors: dict[str, torch.Tensor]) -> None:
    """Write a file with a valid checksum."""
    header = {key: value for key, value in header.items() if key != "sha256"}
    header["sha256"] = checksum(header, tensors)
    path.write_bytes(to_bytes(tensors, {"unshift": json.dumps(header)}))


def assert_same(one: Restorer | Chain, other: Restorer | Chain) -> None:
    assert len(one.stages) == len(other.stages)
    for stage, another in zip(one.stages, other.stages, strict=True):
        mine, theirs = stage.scorer.state_dict(), another.scorer.state_dict()
        assert mine.keys() == theirs.keys()
        for name, tensor in mine.items():
            assert tensor.dtype == theirs[name].dtype
            assert torch.equal(tensor, theirs[name])
        assert stage.coordinates.describe() == another.coordinates.describe()
