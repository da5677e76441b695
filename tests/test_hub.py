"""Restorers on the Hugging Face Hub, tested with a local folder and a fake server: no test needs a network."""

from __future__ import annotations

import importlib
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import unshift
from unshift.files import read_header

pytest.importorskip("huggingface_hub")
import huggingface_hub
from huggingface_hub.errors import RemoteEntryNotFoundError, RepositoryNotFoundError

from unshift import hub

IMAGES = {"mnist": (4, 1, 32, 32), "cifar10-seam": (4, 3, 32, 32), "mnist-rotation": (2, 1, 224, 224)}


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail on every request that the fakes miss."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)


@pytest.mark.parametrize("name", IMAGES)
def test_a_folder_round_trip(name: str, tmp_path: Path) -> None:
    restorer = unshift.load(name)
    hub.save_pretrained(restorer, tmp_path / name)
    again = hub.from_pretrained(tmp_path / name)
    images = torch.rand(IMAGES[name])
    assert torch.equal(again(images), restorer(images))
    assert torch.equal(again.estimate(images).confidence, restorer.estimate(images).confidence)
    assert (again.metadata, again.trained_on) == (restorer.metadata, restorer.trained_on)
    assert not again.training


def test_a_folder_holds_weights_config_and_card_and_no_pickle(tmp_path: Path) -> None:
    restorer = unshift.load("mnist")
    hub.save_pretrained(restorer, tmp_path / "folder")
    assert {path.name for path in (tmp_path / "folder").iterdir()} == {"model.safetensors", "config.json", "README.md"}
    restorer.save(tmp_path / "alone.safetensors")
    assert (tmp_path / "folder" / "model.safetensors").read_bytes() == (tmp_path / "alone.safetensors").read_bytes()
    assert json.loads((tmp_path / "folder" / "config.json").read_text()) == read_header(tmp_path / "alone.safetensors")
    unshift.load(tmp_path / "folder" / "model.safetensors")  # without huggingface_hub, too


def test_an_existing_card_is_kept(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine\n")
    hub.save_pretrained(unshift.load("mnist"), tmp_path)
    assert (tmp_path / "README.md").read_text() == "mine\n"


def test_the_code_in_the_card_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    hub.save_pretrained(unshift.load("mnist"), "path/to/this/folder")
    (code,) = re.findall(r"```python\n(.*?)```", Path("path/to/this/folder/README.md").read_text(), re.S)
    names: dict[str, Any] = {"classifier": torch.nn.Flatten()}
    exec(code, names)
    images = torch.rand(2, 1, 32, 32)
    moved = unshift.apply(images, torch.tensor([[3, -4], [100, 7]]))
    assert torch.equal(names["model"](moved), names["model"](images))


class FakeHub:
    """A fake of the Hub whose repositories are folders."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def create_repo(self, _: Any, repo_id: str, **options: Any) -> Any:
        self.calls.append(("create_repo", options))
        return type("Url", (), {"repo_id": repo_id})

    def upload_folder(self, _: Any, *, repo_id: str, folder_path: Path, **options: Any) -> str:
        self.calls.append(("upload_folder", options))
        shutil.copytree(folder_path, self.root / repo_id)
        return f"https://huggingface.co/{repo_id}/commit/1"

    def download(self, repo_id: str, filename: str, **options: Any) -> str:
        self.calls.append((f"download {filename}", options))
        if not (self.root / repo_id).exists():
            raise error_of(RepositoryNotFoundError, f"404 Client Error.\n\nRepository Not Found for {repo_id}")
        if not (self.root / repo_id / filename).exists():
            raise error_of(RemoteEntryNotFoundError, f"404 Client Error.\n\nEntry Not Found: {filename}")
        return str(self.root / repo_id / filename)


def error_of(kind: type[Exception], message: str) -> Exception:
    """Return one of the Hub's errors without a response."""
    error = kind.__new__(kind)
    Exception.__init__(error, message)
    return error


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    server = FakeHub(tmp_path / "server")
    monkeypatch.setattr(huggingface_hub.HfApi, "create_repo", lambda *a, **k: server.create_repo(*a, **k))
    monkeypatch.setattr(huggingface_hub.HfApi, "upload_folder", lambda *a, **k: server.upload_folder(*a, **k))
    monkeypatch.setattr("huggingface_hub.hub_mixin.hf_hub_download", server.download)
    monkeypatch.setattr(hub, "hf_hub_download", server.download)
    return server


def test_pushed_and_pulled(fake: FakeHub) -> None:
    restorer = unshift.load("mnist-paper")
    address = hub.push_to_hub(restorer, "you/digits", private=True, branch="v2", commit_message="hello")
    assert address == "https://huggingface.co/you/digits/commit/1"
    assert fake.calls[0] == ("create_repo", {"private": True, "exist_ok": True})
    assert {"revision": "v2", "commit_message": "hello"}.items() <= fake.calls[1][1].items()
    card = (fake.root / "you" / "digits" / "README.md").read_text()
    assert "# digits\n" in card
    assert 'hub.from_pretrained("you/digits")' in card

    again = hub.from_pretrained("you/digits", revision="v2", local_files_only=False)
    assert fake.calls[-1][0] == "download model.safetensors"
    assert fake.calls[-1][1]["revision"] == "v2"
    images = torch.rand(3, 1, 32, 32)
    assert torch.equal(again(images), restorer(images))


def broken(folder: Path, file: str, content: bytes | None) -> str:
    hub.save_pretrained(unshift.load("mnist"), folder)
    (folder / file).unlink() if content is None else (folder / file).write_bytes(content)
    return str(folder)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("model.safetensors", None, "model.safetensors"),
        ("model.safetensors", b"PK\x03\x04 a pickle in a zip", "model.safetensors"),
        ("config.json", b"{", "config.json"),
        ("config.json", b"[1, 2]", "config.json"),
        ("config.json", b"\xff\x00", "config.json"),
    ],
)
def test_a_damaged_folder_raises_one_clear_line(file: str, content: bytes | None, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        hub.from_pretrained(broken(tmp_path / "it", file, content))
    assert "\n" not in str(caught.value)


def test_a_file_is_not_searched_on_the_hub(fake: FakeHub, tmp_path: Path) -> None:
    unshift.load("mnist").save(tmp_path / "mine.safetensors")
    with pytest.raises(ValueError, match=r"mine\.safetensors.*unshift\.load"):
        hub.from_pretrained(tmp_path / "mine.safetensors")
    assert fake.calls == []


@pytest.mark.parametrize("where", ["nobody/nothing", "no such name!", "a/b/c"])
def test_a_missing_repository_raises_one_clear_line(where: str, fake: FakeHub) -> None:
    with pytest.raises(ValueError, match=where) as caught:
        hub.from_pretrained(where)
    assert "\n" not in str(caught.value)


def test_the_error_without_the_extra_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.delitem(sys.modules, "unshift.hub")
    with pytest.raises(ImportError, match=r"unshift\[hub\]"):
        importlib.import_module("unshift.hub")
