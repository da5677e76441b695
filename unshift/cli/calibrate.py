"""Turn a restorer's confidence into the probability that the estimated pose is exactly right.

DATA are unmoved images like the training images, but not the same ones. The new file stores a curve: the share of exact
poses at each confidence. Estimated poses stay the same, bit for bit. `fit` already calibrates on the images held out;
this command is for files of earlier versions, and for images unlike the training images.

\b
Examples:
  unshift calibrate held-out/ --restorer old.safetensors --out new.safetensors
"""

from __future__ import annotations

from unshift.cli import options
from unshift.cli.outputs import check_output, print_json, reliability_line
from unshift.cli.prepared_data import TrainingImages, open_for


def calibrate(
    data: options.Data,
    restorer: options.Model,
    out: options.RestorerFile,
    split: options.Split = None,
    limit: options.Limit = None,
    size: options.Size = None,
    crop: options.Crop = False,
    channels: options.Channels = None,
    pad: options.Pad = None,
    force: options.Force = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Turn a restorer's confidence into a probability."""
    from unshift.data.reading import open_reader
    from unshift.evaluation import FEWEST, reliability
    from unshift.evaluation import calibrate as calibrate_on
    from unshift.files import load

    check_output(out, force)
    model = load(restorer)
    source = open_for(model, data, split, limit, size, crop, channels, pad)
    training = TrainingImages(model)
    reader = open_reader(source.images).mapped(training.check)
    judged = calibrate_on(model, lambda: reader.read(reader.rows(256)))
    if "calibration" not in model.metadata:
        raise ValueError(f"{source.name} has {len(judged.right)} image(s); calibration needs {FEWEST} or more")
    training.warn(restorer, "its confidence will be too high for other images")
    model.save(out)
    calibration = model.metadata["calibration"]
    if as_json:
        print_json({"file": str(out), "data": source.name, **calibration})
    else:
        print(f"{out}: calibrated on {calibration['images']:,} images of {source.name}")
        print(f"expected calibration error before: {calibration['ece_before']:.4f}")
        print(reliability_line(reliability(judged.confidence, judged.right)))
