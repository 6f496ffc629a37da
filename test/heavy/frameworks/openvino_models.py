"""Models of OpenVINO for the suite `frameworks`: nets of images, texts and numbers as IR files, with random weights. See case.py."""
import os
import shutil

import numpy as np
import openvino as ov
from openvino import opset13 as ops

from case import Bf16, Case, described, main, parameters

ROWS = 10
HERE = os.path.dirname(os.path.abspath(__file__))


class Net:
    """Layers with random weights, which do not fade."""

    def __init__(self, seed):
        self.chance = np.random.default_rng(seed)
        self.inputs, self.results = [], []

    def input(self, name, *shape, kind="f32"):
        """`shape` without the batch."""
        return self.whole(name, -1, *shape, kind=kind)

    def whole(self, name, *shape, kind="f32"):
        made = ops.parameter(list(shape), getattr(ov.Type, kind), name=name)
        made.output(0).get_tensor().set_names({name})
        self.inputs.append(made)
        return made

    def output(self, name, node):
        node = node if isinstance(node, ov.Output) else node.output(0)
        made = ops.result(node)
        node.get_tensor().add_names({name})
        self.results.append((name, made))
        return self

    def weights(self, *shape, of=None):
        """`of`: how many products are summed."""
        return ops.constant((self.chance.standard_normal(shape) * np.sqrt(2 / (of or 1))).astype(np.float32))

    def dense(self, x, before, after):
        return ops.add(ops.matmul(x, self.weights(before, after, of=before), False, False), self.weights(after, of=20))

    def conv(self, x, before, after, size=3, stride=1, rank=2):
        pad = [size // 2] * rank
        return ops.convolution(x, self.weights(after, before, *[size] * rank, of=before * size**rank), [stride] * rank, pad, pad, [1] * rank)

    def norm(self, x, channels):
        number = lambda low, high: ops.constant(self.chance.uniform(low, high, channels).astype(np.float32))  # noqa: E731
        return ops.batch_norm_inference(x, number(0.7, 1.3), number(-0.2, 0.2), number(-0.2, 0.2), number(0.5, 1.5), 1e-5)

    def mean(self, x, *axes):
        return ops.reduce_mean(x, ops.constant(list(axes)), keep_dims=False)

    def attention(self, x, width, mask=None):
        q, k, v = (self.dense(x, width, width) for _ in range(3))
        scores = ops.multiply(ops.matmul(q, k, False, True), ops.constant(np.float32(width**-0.5)))
        if mask is not None:
            scores = ops.add(scores, mask)
        return self.dense(ops.matmul(ops.softmax(scores, 2), v, False, False), width, width)

    def encoder(self, x, width, mask=None):
        x = ops.add(x, self.attention(ops.mvn(x, ops.constant([2]), True, 1e-5, "INSIDE_SQRT"), width, mask))
        return ops.add(x, self.dense(ops.gelu(self.dense(x, width, 2 * width), "erf"), 2 * width, width))

    def floats(self, *shape, count=ROWS):
        return [self.chance.standard_normal((1, *shape)).astype(np.float32) for _ in range(count)]

    def model(self):
        return ov.Model([made for _, made in self.results], self.inputs, "net")


def numpy(tensor):
    """What a client gets of a tensor of OpenVINO."""
    if tensor.element_type == ov.Type.bf16:
        return Bf16(np.array(tensor.data).view(np.uint16).reshape(tensor.shape))
    return np.array(tensor.data)


def given(array):
    return ov.Tensor(array.bits, ov.Shape(array.shape), ov.Type.bf16) if isinstance(array, Bf16) else ov.Tensor(np.ascontiguousarray(array))


def answered(file, inputs, outputs, rows):
    core = ov.Core()
    request = core.compile_model(core.read_model(file), "CPU", {"INFERENCE_NUM_THREADS": 1}).create_infer_request()
    questions = []
    for row in rows:
        for name, array in zip(inputs, row):
            request.set_tensor(name, given(array))
        request.infer()
        questions.append((dict(zip(inputs, row)), {name: numpy(request.get_tensor(name)) for name in outputs}))
    return questions


def case(directory, net, rows, batch=8, more=(), text=..., **options):
    """`rows`: the inputs of each question. `text`: a configuration in the place of the one that says all."""
    file = os.path.join(directory, "model.xml")
    ov.save_model(net.model(), file, compress_to_fp16=False)
    questions = answered(file, [x.get_friendly_name() for x in net.inputs], [name for name, _ in net.results], rows)
    return Case(questions, described("openvino", questions, batch, *more) if text is ... else text, batch, **options)


def columns(*lists):
    return list(zip(*lists))


# Nets of images.


def vgg(seed, directory):
    net = Net(seed)
    x, width = net.input("image", 3, 16, 16), 6 + seed % 3
    for before, after in ((3, width), (width, 2 * width)):
        x = ops.max_pool(ops.relu(net.conv(x, before, after)), [2, 2], [1, 1], [0, 0], [0, 0], [2, 2], "floor").output(0)
    net.output("logits", net.dense(ops.reshape(x, ops.constant([0, -1]), True), 2 * width * 16, 10))
    return case(directory, net, columns(net.floats(3, 16, 16)))


def resnet(seed, directory):
    net = Net(seed)
    x = ops.relu(net.norm(net.conv(net.input("image", 3, -1, -1), 3, 8), 8))
    for _ in range(2 + seed % 2):
        x = ops.relu(ops.add(x, net.norm(net.conv(ops.relu(net.norm(net.conv(x, 8, 8), 8)), 8, 8), 8)))
    net.output("logits", net.dense(net.mean(x, 2, 3), 8, 7))
    return case(directory, net, columns(net.floats(3, 12, 12, count=6) + net.floats(3, 16, 10, count=6)))


def mobilenet(seed, directory):
    net = Net(seed)
    x = net.input("image", 3, 20, 20)
    x = net.conv(x, 3, 8, stride=2)
    x = ops.group_convolution(ops.clamp(x, 0.0, 6.0), net.weights(8, 1, 1, 3, 3, of=9), [1, 1], [1, 1], [1, 1], [1, 1])
    x = net.conv(ops.hswish(x), 8, 12, size=1)
    net.output("OUTPUT", net.dense(net.mean(ops.relu(x), 2, 3), 12, 9))
    return case(directory, net, columns(net.floats(3, 20, 20)), more=[parameters(PERFORMANCE_HINT="LATENCY", INFERENCE_NUM_THREADS=1)])


def inception(seed, directory):
    net = Net(seed)
    x = net.input("x", 3, 12, 12)
    parts = [net.conv(x, 3, 4, size=size) for size in (1, 3, 5)] + [ops.avg_pool(x, [1, 1], [1, 1], [1, 1], [3, 3], True, "floor")]
    y = ops.relu(ops.concat(parts, 1))
    net.output("features", y).output("logits", net.dense(ops.reduce_max(y, ops.constant([2, 3]), keep_dims=False), 15, 6))
    return case(directory, net, columns(net.floats(3, 12, 12)), batch=5)


def unet(seed, directory):
    net = Net(seed)
    x = net.input("image", 3, 16, 16)
    a = ops.relu(net.conv(x, 3, 4))
    b = ops.relu(net.conv(ops.max_pool(a, [2, 2], [1, 1], [0, 0], [0, 0], [2, 2], "floor").output(0), 4, 8))
    up = ops.convolution_backprop_data(b, net.weights(8, 4, 2, 2, of=8), [2, 2], pads_begin=[0, 0], pads_end=[0, 0], dilations=[1, 1])
    y = net.conv(ops.concat([a, up], 1), 8, 3, size=1)
    net.output("logits", y).output("mask", ops.squeeze(ops.topk(y, ops.constant(1), 1, "max", "value", "i32").output(1), ops.constant([1])))
    return case(directory, net, columns(net.floats(3, 16, 16)))


def detector(seed, directory):
    net = Net(seed)
    y = net.conv(ops.relu(net.conv(net.input("image", 3, 16, 16), 3, 8, stride=2)), 8, 7, size=1)
    y = ops.transpose(ops.reshape(y, ops.constant([0, 7, -1]), True), ops.constant([0, 2, 1]))
    boxes, scores = ops.variadic_split(y, ops.constant(2), ops.constant([4, 3])).outputs()
    best = ops.topk(ops.reduce_max(ops.softmax(scores, 2), ops.constant([2]), keep_dims=False), ops.constant(5), 1, "max", "value", "i64")
    net.output("scores", best.output(0)).output("places", best.output(1)).output("boxes", ops.gather(boxes, best.output(1), ops.constant(1), 1))
    return case(directory, net, columns(net.floats(3, 16, 16)))


def video(seed, directory):
    net = Net(seed)
    x = ops.relu(net.conv(net.input("clip", 2, 6, 8, 8), 2, 5, rank=3))
    net.output("OUTPUT", net.dense(net.mean(x, 2, 3, 4), 5, 4))
    return case(directory, net, columns(net.floats(2, 6, 8, 8)), batch=3)


def resized(seed, directory):
    """Pixels in, larger pixels out."""
    net = Net(seed)
    x = net.input("pixels", 8, 8, 3, kind="u8")
    y = ops.transpose(ops.convert(x, "f32"), ops.constant([0, 3, 1, 2]))
    y = ops.interpolate(y, ops.constant([13, 11]), "linear_onnx", "sizes", axes=ops.constant([2, 3]))
    net.output("larger", ops.convert(ops.clamp(ops.round(net.conv(y, 3, 3, size=1), "half_to_even"), 0.0, 255.0), "u8"))
    rows = columns([net.chance.integers(0, 256, (1, 8, 8, 3), np.uint8) for _ in range(ROWS)])
    return case(directory, net, rows)


def normed(seed, directory):
    net = Net(seed)
    x = ops.lrn(ops.prelu(net.conv(net.input("x", 4, 9, 9), 4, 8), net.weights(8)), ops.constant([1]), 1e-3, 0.75, 1.0, 5)
    x = ops.group_normalization(x, net.weights(8, of=2), net.weights(8, of=2), 2, 1e-5)
    net.output("y", ops.normalize_l2(net.mean(ops.mish(x), 2, 3), ops.constant([1]), 1e-6, "add"))
    return case(directory, net, columns(net.floats(4, 9, 9)))


# Texts and sequences.


def bert(seed, directory):
    net = Net(seed)
    ids, mask = net.input("input_ids", -1, kind="i64"), net.input("attention_mask", -1, kind="i64")
    real = ops.convert(mask, "f32")
    hidden = ops.unsqueeze(ops.multiply(ops.subtract(real, ops.constant(np.float32(1))), ops.constant(np.float32(1e6))), ops.constant([1]))
    x = ops.gather(net.weights(60, 12), ids, ops.constant(0))
    for _ in range(1 + seed % 2):
        x = net.encoder(x, 12, hidden)
    weight = ops.unsqueeze(real, ops.constant([2]))
    pooled = ops.divide(ops.reduce_sum(ops.multiply(x, weight), ops.constant([1])), ops.reduce_sum(weight, ops.constant([1])))
    net.output("last_hidden_state", x).output("pooled", pooled)
    rows = []
    for length in (5, 9):
        for at in range(6):
            rows.append((net.chance.integers(0, 60, (1, length)), (np.arange(length) < length - at % 3).astype(np.int64)[None]))
    return case(directory, net, rows)


def vit(seed, directory):
    net = Net(seed)
    x = ops.convolution(net.input("image", 3, 16, 16), net.weights(12, 3, 4, 4, of=48), [4, 4], [0, 0], [0, 0], [1, 1])
    x = ops.transpose(ops.reshape(x, ops.constant([0, 12, 16]), True), ops.constant([0, 2, 1]))
    x = net.encoder(ops.add(x, net.weights(1, 16, 12)), 12)
    net.output("logits", net.dense(net.mean(x, 1), 12, 10))
    return case(directory, net, columns(net.floats(3, 16, 16)))


def recurrent(which, gates):
    def make(seed, directory):
        net = Net(seed)
        width, features, length = 5 + seed % 3, 4, 6
        x = net.input("x", length, features)
        rows = ops.gather(ops.shape_of(x, "i64"), ops.constant([0]), ops.constant(0))
        zeros = ops.broadcast(ops.constant(np.float32(0)), ops.concat([rows, ops.constant(np.array([1, width], np.int64))], 0))
        lengths = ops.broadcast(ops.constant(np.int64(length)), rows)
        w, r = net.weights(1, gates * width, features, of=features), net.weights(1, gates * width, width, of=width)
        b = net.weights(1, (gates + (which == "gru")) * width, of=9)
        if which == "lstm":
            made = ops.lstm_sequence(x, zeros, zeros, lengths, w, r, b, width, "forward")
        elif which == "gru":
            made = ops.gru_sequence(x, zeros, lengths, w, r, b, width, "forward", linear_before_reset=True)
        else:
            made = ops.rnn_sequence(x, zeros, lengths, w, r, b, width, "forward")
        last = ops.squeeze(made.output(1), ops.constant([1]))
        net.output("steps", ops.squeeze(made.output(0), ops.constant([1]))).output("last", net.dense(last, width, 3))
        return case(directory, net, columns(net.floats(length, features)))

    make.__name__ = which
    return make


def sound(seed, directory):
    net = Net(seed)
    x = ops.unsqueeze(net.input("sound", -1), ops.constant([1]))
    for before, after in ((1, 6), (6, 6)):
        x = ops.elu(ops.convolution(x, net.weights(after, before, 5, of=5 * before), [2], [2], [2], [1]), 1.0)
    net.output("letters", ops.log_softmax(ops.transpose(x, ops.constant([0, 2, 1])), 2))
    return case(directory, net, columns(net.floats(32, count=6) + net.floats(45, count=6)))


# Numbers, several inputs and outputs, datatypes, settings.


def mlp(seed, directory):
    net = Net(seed)
    x = net.input("INPUT", 6)
    for before, after in ((6, 16), (16, 8)):
        x = [ops.tanh, ops.sigmoid, ops.relu][seed % 3](net.dense(x, before, after))
    net.output("OUTPUT", net.dense(x, 8, 3))
    return case(directory, net, columns(net.floats(6)), batch=16)


def recommender(seed, directory):
    net = Net(seed)
    ids, numbers = net.input("ids", 3, kind="i32"), net.input("numbers", 4)
    words = ops.reshape(ops.gather(net.weights(30, 4), ids, ops.constant(0)), ops.constant([0, -1]), True)
    net.output("chance", ops.sigmoid(net.dense(ops.relu(net.dense(ops.concat([words, numbers], 1), 16, 12)), 12, 1)))
    return case(directory, net, columns([net.chance.integers(0, 30, (1, 3), np.int32) for _ in range(ROWS)], net.floats(4)))


def siamese(seed, directory):
    net = Net(seed)
    a, b = net.input("left", 5), net.input("right", 5)
    weights = net.weights(5, 4, of=5)
    a, b = (ops.tanh(ops.matmul(x, weights, False, False)) for x in (a, b))
    near = ops.reduce_sum(ops.multiply(a, b), ops.constant([1]), keep_dims=True)
    net.output("a", a).output("b", b).output("near", near).output("is_near", ops.greater(near, ops.constant(np.float32(0))))
    return case(directory, net, columns(net.floats(5), net.floats(5)))


def integers(seed, directory):
    net = Net(seed)
    kinds = ["u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64"]
    lists = []
    for at, kind in enumerate(kinds):
        x = net.input(f"IN{at}", 3, kind=kind)
        net.output(f"OUT{at}", ops.add(x, ops.constant(1 + at, getattr(ov.Type, kind))))
        lists.append([net.chance.integers(0, 50, (1, 3)).astype({"u": "uint", "i": "int"}[kind[0]] + kind[1:]) for _ in range(ROWS)])
    net.output("NOT", ops.logical_not(net.input("IS", 2, kind="boolean")))
    lists.append([net.chance.random((1, 2)) < 0.5 for _ in range(ROWS)])
    return case(directory, net, columns(*lists))


def floats(seed, directory):
    """FP16, BF16 and FP64 in turn."""
    net = Net(seed)
    kind = ["f16", "bf16", "f64"][seed % 3]
    net.output("Y", ops.multiply(net.input("X", 4, kind=kind), ops.constant(3, getattr(ov.Type, kind))))
    rows = net.floats(4)
    if kind == "bf16":
        return case(directory, net, columns([Bf16((x.view(np.uint32) >> 16).astype(np.uint16)) for x in rows]))
    return case(directory, net, columns([x.astype({"f16": np.float16, "f64": np.float64}[kind]) for x in rows]))


def converted(seed, directory):
    """Datatypes of the configuration in the place of the file's."""
    made = mlp(seed, directory)
    made.config = made.config.replace('"OUTPUT" data_type: TYPE_FP32', '"OUTPUT" data_type: TYPE_FP64')
    made.questions = [(q, {name: a.astype(np.float64) for name, a in answer.items()}) for q, answer in made.questions]
    made.tolerance = 2e-4
    return made


def split(seed, directory):
    net = Net(seed)
    x = net.dense(net.input("x", 6), 6, 12)
    for at, part in enumerate(ops.split(x, ops.constant(1), 4).outputs()):
        net.output(f"part{at}", [ops.swish, ops.hsigmoid, ops.softplus, ops.abs][at](part))
    return case(directory, net, columns(net.floats(6)))


def rolled(seed, directory):
    """Sums, orders and choices along a row."""
    net = Net(seed)
    x = net.input("x", -1)
    total = ops.cum_sum(x, ops.constant(1))
    net.output("total", total).output("chosen", ops.select(ops.greater(x, ops.constant(np.float32(0))), x, total))
    net.output("padded", ops.pad(x, ops.constant([0, 1]), ops.constant([0, 2]), "constant", ops.constant(np.float32(7))))
    return case(directory, net, columns(net.floats(4, count=6) + net.floats(7, count=6)))


def product(seed, directory):
    net = Net(seed)
    a, b = net.input("a", 3, 4), net.input("b", 4, 2)
    net.output("product", ops.einsum([a, b], "nij,njk->nik")).output("square", ops.power(a, ops.constant(np.float32(2))))
    return case(directory, net, columns(net.floats(3, 4), net.floats(4, 2)))


def one_hot(seed, directory):
    net = Net(seed)
    ids = net.input("ids", 2, kind="i64")
    net.output("hot", ops.one_hot(ids, ops.constant(12), ops.constant(np.float32(1)), ops.constant(np.float32(0)), -1))
    rows = [(np.array([[at, (at * 5 + seed) % 12]], np.int64),) for at in range(ROWS)]
    return case(directory, net, rows)


def fixed_file(net):
    x = net.whole("image", 1, 3, 8, 8)
    return net.output("logits", net.dense(net.mean(ops.relu(net.conv(x, 3, 6)), 2, 3), 6, 5))


def fixed(seed, directory):
    """A file with a batch of 1: it becomes variable."""
    net = fixed_file(Net(seed))
    return case(directory, net, columns(net.floats(3, 8, 8)))


def padded(seed, directory):
    net = fixed_file(Net(seed))
    return case(directory, net, columns(net.floats(3, 8, 8)), more=[parameters(ENABLE_BATCH_PADDING="YES")])


def reshaped(seed, directory):
    """Inputs get the dims of the configuration."""
    net = Net(seed)
    net.output("y", net.mean(ops.relu(net.conv(net.input("x", 3, -1, -1), 3, 4)), 2, 3))
    return case(directory, net, columns(net.floats(3, 10, 12)), more=[parameters(RESHAPE_IO_LAYERS="YES")])


def layouts(seed, directory):
    """Inputs, outputs and the batch are read from the file: the configuration has the backend alone."""
    net = Net(seed)
    net.output("y", net.dense(net.input("x", 5), 5, 4))
    for one in (*net.inputs, *(made for _, made in net.results)):
        one.set_layout(ov.Layout("NC"))
    made = case(directory, net, columns(net.floats(5)), batch=4, text='backend: "openvino"\n')
    return made


def without_configuration(seed, directory):
    """No config.pbtxt, and so no batch."""
    net = Net(seed)
    net.output("y", ops.tanh(net.dense(net.input("x", 5), 5, 3)))
    rows = [(net.chance.standard_normal((1 + at, 5)).astype(np.float32),) for at in range(6)]
    return case(directory, net, rows, batch=0, text=None)


def any_image(seed, directory):
    """No batch: each request is an image of a size of its own."""
    net = Net(seed)
    net.output("y", ops.relu(net.conv(net.whole("image", -1, 3, -1, -1), 3, 2)))
    return case(directory, net, [(net.chance.standard_normal((1, 3, 6 + at, 14 - at)).astype(np.float32),) for at in range(6)], batch=0)


def onnx_file(seed, directory):
    """An ONNX file that OpenVINO runs."""
    file = os.path.join(directory, "model.onnx")
    shutil.copy(os.path.join(HERE, "../../../examples/models/variable/1/model.onnx"), file)
    net = Net(seed)
    rows = columns(net.floats(3, count=6) + net.floats(5, count=6))
    questions = answered(file, ["X"], ["DOUBLED", "SUM"], rows)
    return Case(questions, described("openvino", questions, 8, 'default_model_filename: "model.onnx"\n'), 8)


def instances(seed, directory):
    net = Net(seed)
    net.output("y", net.dense(ops.relu(net.dense(net.input("x", 5), 5, 12)), 12, 4))
    return case(directory, net, columns(net.floats(5)), more=["instance_group [ { count: 2 kind: KIND_CPU } ]\n"])


def throughput(seed, directory):
    net = Net(seed)
    net.output("y", net.dense(ops.relu(net.dense(net.input("x", 5), 5, 12)), 12, 4))
    return case(directory, net, columns(net.floats(5)), batch=32, more=[parameters(PERFORMANCE_HINT="THROUGHPUT", NUM_STREAMS=1)])


KINDS = [
    resnet, bert, integers, mlp, vgg, recurrent("lstm", 4), floats, mobilenet, siamese, inception, recurrent("gru", 3), layouts, unet, detector, vit,
    recurrent("rnn", 1), video, resized, normed, sound, recommender, converted, split, rolled, product, one_hot, fixed, padded, reshaped, without_configuration, any_image,
    onnx_file, instances, throughput,
]  # fmt: skip

if __name__ == "__main__":
    main(KINDS, ov.__version__.split("-")[0])
