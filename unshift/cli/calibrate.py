"""Turn a restorer's confidence into the probability that the pose it finds is exactly right.

Give unmoved images of the kind it was trained on, but not the same ones. They show how often it is right at each
confidence, and the file keeps that curve. What is restored, and to what, stays the same to the last bit. fit does this
by itself, on the images it holds out: this command is for files of earlier versions, and for images that are somewhat
different.

\b
Examples:
  unshift calibrate --restorer old.safetensors --data held-out/ --out new.safetensors
"""

from __future__ import annotations

from unshift.cli.options import Channels, Crop, Data, Force, Json, Limit, Model, Pad, RestorerFile, Size, Split
from unshift.cli.outputs import check_folder
from unshift.cli.prepared_data import Remembered, open_for
from unshift.cli.printing import print_json, reliability_line


def calibrate(
    data: Data,
    restorer: Model,
    out: RestorerFile,
    split: Split = None,
    limit: Limit = None,
    size: Size = None,
    crop: Crop = False,
    channels: Channels = None,
    pad: Pad = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Turn a restorer's confidence into a probability."""
    from unshift.data.reading import open_reader
    from unshift.reliability import FEWEST, reliability
    from unshift.reliability import calibrate as make_probable
    from unshift.weights import load

    if out.exists() and not force:
        raise ValueError(f"{out} exists; --force overwrites it")
    check_folder(out.parent)
    model = load(restorer)
    found = open_for(model, data, split, limit, size, crop, channels, pad)
    own = Remembered(model.trained_on.get("prints", []))
    reader = open_reader(found.images).through(own.look)
    judged = make_probable(model, lambda: reader.read(reader.rows(256)))
    if "calibration" not in model.metadata:
        raise ValueError(f"{found.name} has {len(judged.right)} image(s); it takes {FEWEST} or more to calibrate on")
    own.warn(restorer, "it is right about them more often than about others, so its confidence will be too high")
    model.save(out)
    if as_json:
        print_json({"file": str(out), "data": found.name, **model.metadata["calibration"]})
        return
    told = model.metadata["calibration"]
    print(
        f"{out}: calibrated on {told['images']:,} images of {found.name}, where it was off by {told['ece_before']:.4f}"
    )
    print(reliability_line(reliability(judged.confidence, judged.right)))
