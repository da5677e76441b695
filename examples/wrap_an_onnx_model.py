"""Put a restorer before a model of which you have nothing but an ONNX file. Needs ``unshift[onnx]``.

python examples/wrap_an_onnx_model.py
"""

import tempfile

import onnx
import onnxruntime
import torch

import unshift
from unshift.data import dataset, resize, to_float
from unshift.experiments.classifiers import shipped

# Somebody else's file. We have none, so we write LeNet-5 into one: its layers in ONNX's own language.
theirs = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
    lenet (float[n,1,32,32] x) => (float[n,10] y) {
    a = Conv(x, w0, b0)   b = Relu(a)   c = MaxPool<kernel_shape = [2,2], strides = [2,2]>(b)
    d = Conv(c, w3, b3)   e = Relu(d)   f = MaxPool<kernel_shape = [2,2], strides = [2,2]>(e)
    g = Flatten(f)   h = Gemm<transB = 1>(g, w7, b7)   i = Relu(h)   j = Gemm<transB = 1>(i, w9, b9)   k = Relu(j)
    y = Gemm<transB = 1>(k, w11, b11) }""")
for key, value in shipped()["lenet5-mnist"]().state_dict().items():  # 0.weight is w0, 0.bias is b0, ...
    number, kind = key.split(".")
    theirs.graph.initializer.append(onnx.numpy_helper.from_array(value.numpy(), kind[0] + number))
onnx.save(theirs, file := f"{tempfile.mkdtemp()}/theirs.onnx")

session = onnxruntime.InferenceSession(file)
restorer = unshift.load("mnist")
digits = dataset("mnist-10k", "test")
images, labels = resize(to_float(digits.images[:500]), (32, 32)), digits.labels[:500]
moved = unshift.apply(images, torch.randint(-8, 9, (500, 2), generator=torch.Generator().manual_seed(0)))
logits = {}
for what, shown in {"unshifted": images, "shifted": moved, "restored": restorer(moved)}.items():
    logits[what] = session.run(None, {"x": shown.numpy()})[0]
    right = float((torch.from_numpy(logits[what]).argmax(1) == labels).float().mean())
    print(f"{what:10} {right:6.1%}  {'#' * round(40 * right)}")
unmoved = session.run(None, {"x": restorer(images).numpy()})[0]
print("restored, the logits do not depend on the shift:", (logits["restored"] == unmoved).all())
