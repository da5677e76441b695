"""Two stages: a network proposes positions, and a judge scores the windows at them; exact like one stage."""

from __future__ import annotations

import pytest
import torch
from samples import DTYPES, assert_exact, hard_images, make_judged

import unshift
from unshift import Restorer, ShiftEstimator, apply, quantise
from unshift.coordinates import Scene
from unshift.exact import JudgedEstimator, judged, propose
from unshift.pose_network import PoseEstimator
from unshift.shifts import ravel
from unshift.training.scenes import cut

SIZE, WINDOW = (7, 8), (3, 4)


def coarse(count: int, channels: int) -> torch.Tensor:
    """Images of three values: with coarse integers, the scores of most of them tie."""
    return torch.randint(3, (count, channels, *SIZE), generator=torch.Generator().manual_seed(2)) / 4


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("channels", [1, 3])
def test_every_move_of_hard_images_is_one_window(channels, dtype):
    for bits, sum_bits in ((10, 24), (2, 6)):
        scorer = make_judged(channels, SIZE, WINDOW, bits, sum_bits)
        for coordinates in (Scene(WINDOW), None):
            restorer = Restorer(scorer, coordinates=coordinates)
            for image in hard_images(channels, SIZE, dtype).values():
                assert_exact(restorer, image)


def test_ties_of_either_stage_are_one_window_under_every_move():
    scorer, images = make_judged(1, SIZE, WINDOW, 2, 6), coarse(60, 1)
    scores = scorer(images).flatten(1)
    restorer = Restorer(scorer, coordinates=Scene(WINDOW))
    assert restorer.estimate(images).tied.any()
    first, second = scores.topk(2).values.unbind(1)
    assert ((first == second) & (first > -(2**40))).any()  # verdicts of the judge tie
    assert (first < -(2**40)).any()  # the first stage ties, and nothing is judged
    for image in images[:30]:
        assert_exact(restorer, image)


def test_proposals_in_the_order_of_memory_are_caught(monkeypatch):
    def by_index(scores, images, count, radius):
        return scores.flatten(1).topk(count).indices

    monkeypatch.setattr(judged, "propose", by_index)
    restorer = Restorer(make_judged(1, SIZE, WINDOW, 2, 6), coordinates=Scene(WINDOW))
    moves = [apply(coarse(60, 1), torch.tensor([move] * 60)) for move in ((0, 0), (3, 5))]
    assert not torch.equal(*map(restorer, moves))


@pytest.mark.parametrize("bits", [10, 2])
def test_the_fast_scores_are_those_of_the_definition(bits):
    scorer = make_judged(3, SIZE, WINDOW, bits, 24 if bits == 10 else 6)
    images = torch.cat([torch.stack([*hard_images(3, SIZE).values()]), coarse(20, 3), torch.rand(20, 3, *SIZE)])
    scores = scorer(images)
    assert torch.equal(scores, scorer.reference(images))
    assert torch.equal(scores, torch.cat([scorer(image[None]) for image in images]))


def test_proposals_rank_first_by_the_scores_of_their_windows():
    scorer, images = make_judged(1, SIZE, WINDOW), torch.rand(9, 1, *SIZE, generator=torch.Generator().manual_seed(0))
    first = super(JudgedEstimator, scorer).forward(images)
    places = propose(first, images, scorer.count, scorer.radius)
    assert torch.equal(places[:, 0], first.flatten(1).argmax(1))
    scores = scorer(images).flatten(1)
    for column in places.unbind(1):
        corner = torch.stack([column // SIZE[1], column % SIZE[1]], 1)
        assert torch.equal(ravel(corner, SIZE), column)
        verdict = scorer.judge(cut(images, corner, WINDOW))
        assert torch.equal(scores.gather(1, column[:, None])[:, 0], verdict)
    others = scores.scatter(1, places, int(scores.min()) - 1)
    assert (others.amax(1) < scores.gather(1, places).amin(1)).all()


def test_a_file_holds_both_stages(tmp_path):
    restorer = Restorer(make_judged(1, SIZE, WINDOW), coordinates=Scene(WINDOW))
    restorer.save(tmp_path / "two.safetensors")
    loaded = unshift.load(tmp_path / "two.safetensors")
    assert loaded.scorer.describe() == restorer.scorer.describe()
    images = torch.rand(20, 1, *SIZE)
    assert torch.equal(loaded.scorer(images), restorer.scorer(images))
    assert torch.equal(loaded(images), restorer(images))


@pytest.mark.parametrize("change", [{"in_channels": 2}, {"size": None}])
def test_a_judge_that_does_not_fit_is_refused(change):
    arguments = {"in_channels": 1, "channels": (2,), "kernel_size": 2, "size": WINDOW, **change}
    judge = quantise(PoseEstimator(**arguments), torch.rand(4, arguments["in_channels"], *WINDOW))
    first = quantise(ShiftEstimator(1, channels=(1,), kernel_size=(3, 3)), torch.rand(4, 1, *SIZE))
    with pytest.raises(ValueError, match=r"\b1 channels and 2 axes"):
        JudgedEstimator.of(first, judge, 2, 2)


@pytest.mark.slow
def test_a_scene_of_digits_under_all_its_shifts_is_one_window():
    digits = unshift.data.prepare(unshift.data.dataset("mnist-10k", "test").images[:3], {"resize": [32, 32]})
    scene = unshift.training.scenes.Scenes((64, 64), (32, 32), (1, 32, 32), "clutter", 0.0)
    scenes, _ = scene.posed(digits, torch.Generator().manual_seed(0))
    checked = unshift.verify(unshift.load("mnist-scene"), scenes[:1])
    assert (checked.moves, checked.mismatches) == (4096, 0)
