"""The shipped restorers load, and model cards say what a file says."""

from __future__ import annotations

import pytest
from samples import PRESETS, blobs, make_restorer

import unshift
from unshift import Restorer, load, weights
from unshift.weights import model_card, pretrained, read_header


def test_a_model_card_says_what_the_file_says(tmp_path):
    restorer = unshift.fit(blobs(40, 1, (8, 8)), epochs=1, progress=False, data_name="dots")
    restorer.trained_on["preparation"] = {"pad": 4}
    restorer.save(tmp_path / "x.safetensors")
    card = model_card("mine", load(tmp_path / "x.safetensors"))
    assert card.startswith("# mine\n")
    for text in ("| preset | paper |", "dots, 36 images, no labels", '{"pad": 4}', "| parameters | ", "| 10 bits |"):
        assert text in card
    assert "4 images: " in card
    assert card == model_card("mine", restorer)


def test_a_model_card_needs_no_metadata():
    restorer = Restorer(make_restorer("dense", 1, (6, 6)).scorer)
    assert "| training data | unnamed, ? images, no labels |" in model_card("bare", restorer)


def shipped() -> list[str]:
    return list(pretrained()) or [pytest.param("none", marks=pytest.mark.skip(reason="no restorer is shipped yet"))]


@pytest.mark.parametrize("name", shipped())
def test_a_shipped_restorer_loads_and_explains_itself(name):
    restorer = load(name)
    path = pretrained()[name]
    assert path.stat().st_size < 300_000
    header = read_header(path)
    assert header["metadata"] == restorer.metadata
    metadata = restorer.metadata
    parts = metadata.get("stages", [metadata])  # of a chain, each stage was chosen on images held out
    for rates in [metadata["test"], *(part["validation"] for part in parts)]:
        assert 0 < rates["exact"] <= rates["within_1"] <= 1
    assert metadata["test"]["images"] == {"mnist3d": 1_000, "mitogenomes of bony fish": 282, "wallpapers": 135}.get(
        metadata["data"], 10_000
    )
    assert metadata["preset"] in (*PRESETS, "sequence", "scene", "custom")
    assert isinstance(restorer.trained_on["preparation"], dict)
    channels, size = weights.image_shape(restorer)
    assert list(size or []) == restorer.trained_on.get("size", list(size or []))  # one for many sizes tells none
    assert channels == restorer.trained_on.get("channels", channels)
    image = blobs(1, channels, size or (500,))
    assert tuple(restorer(image).shape[2:]) == (restorer.coordinates.window or tuple(image.shape[2:]))
    assert f"# {name}\n" in model_card(name, restorer)
