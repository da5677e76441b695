"""Restorers on the Hugging Face Hub: one safetensors file, with a card made from its metadata.

A repository holds ``model.safetensors`` (for :func:`unshift.load`), its description as ``config.json``, and a card.
All functions use ``huggingface_hub.ModelHubMixin``, so tokens, branches and the cache work as usual. There is no
pickle: loading a repository runs no code. Needs ``unshift[hub]``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

try:
    from huggingface_hub import ModelCard, ModelHubMixin, hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, HFValidationError
except ImportError as error:
    raise ImportError("unshift.hub needs huggingface_hub: pip install 'unshift[hub]'") from error

from unshift.files import load, model_card, read_header, save
from unshift.restorer import Chain, Restorer

__all__ = ["from_pretrained", "push_to_hub", "save_pretrained"]

WEIGHTS = "model.safetensors"
CONFIG = "config.json"


class _Repository(ModelHubMixin, library_name="unshift", tags=["equivariance", "shift-invariance"]):
    """The object that the mixin saves and loads. It holds a restorer, which does not depend on the Hub."""

    def __init__(self, restorer: Restorer | Chain) -> None:
        self.restorer = restorer

    def _save_pretrained(self, save_directory: Path) -> None:
        save(self.restorer, save_directory / WEIGHTS)
        description = json.dumps(read_header(save_directory / WEIGHTS), indent=1, sort_keys=True)
        (save_directory / CONFIG).write_text(description + "\n", encoding="utf-8")

    @classmethod
    def _from_pretrained(cls, *, model_id: str, pad: int | None = None, **options: Any) -> _Repository:
        folder = Path(model_id)
        if folder.is_dir() and not (folder / WEIGHTS).is_file():
            raise ValueError(f"{folder}: no {WEIGHTS} in this folder; hub.save_pretrained writes one")
        path = folder / WEIGHTS if folder.is_dir() else hf_hub_download(model_id, WEIGHTS, **options)
        return cls(load(path, pad=pad))

    def generate_model_card(self, name: str = "restorer", repo_id: str | None = None) -> ModelCard:
        """Return the card: the metadata as a table, and an example."""
        front = self._hub_mixin_info.model_card_data.to_yaml()
        usage = _USAGE.format(where=repo_id or "path/to/this/folder", undoes=self.restorer.coordinates.labels.undoes)
        return ModelCard(f"---\n{front}\n---\n\n{model_card(name, self.restorer)}\n{usage}")


_USAGE = """\
## How to use

    pip install 'unshift[hub]'

```python
import torch
from unshift import hub

restorer = hub.from_pretrained("{where}")
model = torch.nn.Sequential(restorer, classifier)  # any frozen classifier of such images
```

It undoes {undoes}: however an image was moved, the same image comes out, bit for bit.
"""


def save_pretrained(restorer: Restorer | Chain, folder: str | Path, *, name: str | None = None) -> None:
    """Write ``restorer`` to ``folder`` as a repository: weights, config and card. An existing card is kept.

    Args:
        restorer: The restorer to write.
        folder: The folder. It is created if it does not exist.
        name: Title of the card. Default: the name of the folder.
    """
    _Repository(restorer).save_pretrained(folder, model_card_kwargs={"name": name or Path(folder).name})


def push_to_hub(restorer: Restorer | Chain, repo_id: str, **options: Any) -> str:
    """Upload ``restorer`` with its card, and return the URL of the commit.

    Args:
        restorer: The restorer to upload.
        repo_id: Name of the repository, e.g. ``"you/my-restorer"``.
        **options: Those of ``ModelHubMixin.push_to_hub``, such as ``private``, ``token``, ``branch``, ``create_pr``.
    """
    card = {"name": repo_id.split("/")[-1], "repo_id": repo_id}
    return _Repository(restorer).push_to_hub(repo_id, model_card_kwargs=card, **options)


def from_pretrained(repo_id_or_folder: str | Path, *, pad: int | None = None, **options: Any) -> Restorer | Chain:
    """Load the restorer of a Hub repository (downloaded once, then cached) or of a local folder.

    Args:
        repo_id_or_folder: Name of a repository, or a folder that :func:`save_pretrained` wrote.
        pad: Width of the margin, as in :func:`unshift.load`.
        **options: Those of ``ModelHubMixin.from_pretrained``, such as ``revision``, ``token``, ``cache_dir``.
    """
    where = str(repo_id_or_folder)
    if Path(where).is_file():
        raise ValueError(f"{where} is a file: use unshift.load, or give a folder or a repository of the Hub")
    try:
        return _Repository.from_pretrained(where, pad=pad, **options).restorer
    except (EntryNotFoundError, HfHubHTTPError, HFValidationError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"no restorer at {where!r}: neither a folder nor on the Hub: {reason}") from error
    except (AttributeError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{where}: its {CONFIG} is damaged; save or download it again") from error
