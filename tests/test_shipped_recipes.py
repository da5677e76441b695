"""How shipped restorers are made."""

from __future__ import annotations

from unshift.data import dataset
from unshift.experiments import shipped_restorers


def test_a_trial_of_another_recipe_leaves_the_test_set_alone(monkeypatch, tmp_path):
    asked, digits = [], dataset("mnist-10k", "train").images[:150]
    monkeypatch.setattr(shipped_restorers, "_images", lambda _, split: asked.append(split) or digits)
    tried = shipped_restorers.make("mnist-paper", tmp_path, progress=False, epochs=1, validation=50)
    assert asked == ["train"]
    assert "test" not in tried.metadata
    assert tried.metadata["validation"]["images"] == 50
