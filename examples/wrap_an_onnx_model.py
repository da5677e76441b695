"""Put a restorer before a model that exists only as an ONNX file. Needs ``unshift[onnx]``.

python examples/wrap_an_onnx_model.py
"""

import tempfile

import onnx
import onnxruntime
import torch

import unshift
from unshift.classifiers import load as load_classifier
from unshift.data import dataset, resize, to_float

# Stands in for your file: LeNet-5 in ONNX's text format.
lenet = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
    lenet (float[n,1,32,32] x) => (float[n,10] y) {
    a = Conv(x, w0, b0)   b = Relu(a)   c = MaxPool<kernel_shape = [2,2], strides = [2,2]>(b)
    d = Conv(c, w3, b3)   e = Relu(d)   f = MaxPool<kernel_shape = [2,2], strides = [2,2]>(e)
    g = Flatten(f)   h = Gemm<transB = 1>(g, w7, b7)   i = Relu(h)   j = Gemm<transB = 1>(i, w9, b9)   k = Relu(j)
    y = Gemm<transB = 1>(k, w11, b11) }""")
for key, value in load_classifier("lenet5-mnist").state_dict().items():  # 0.weight is w0, 0.bias is b0, ...
    number, kind = key.split(".")
    lenet.graph.initializer.append(onnx.numpy_helper.from_array(value.numpy(), kind[0] + number))
onnx.save(lenet, file := f"{tempfile.mkdtemp()}/lenet.onnx")

session = onnxruntime.InferenceSession(file)
restorer = unshift.load("mnist")
digits = dataset("mnist-10k", "test")
images, labels = resize(to_float(digits.images[:500]), (32, 32)), digits.labels[:500]
moved = unshift.apply(images, torch.randint(-8, 9, (500, 2), generator=torch.Generator().manual_seed(0)))
logits = {}
for name, batch in {"unshifted": images, "shifted": moved, "restored": restorer(moved)}.items():
    logits[name] = session.run(None, {"x": batch.numpy()})[0]
    accuracy = float((torch.from_numpy(logits[name]).argmax(1) == labels).float().mean())
    print(f"{name:10} {accuracy:6.1%}  {'#' * round(40 * accuracy)}")
unmoved = session.run(None, {"x": restorer(images).numpy()})[0]
print("restored: logits independent of the shift:", (logits["restored"] == unmoved).all())
