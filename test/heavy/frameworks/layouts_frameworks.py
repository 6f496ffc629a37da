"""Layouts of the other frameworks: each function writes random weights and returns questions and the framework's answers."""
import json
import os
from typing import Dict

import numpy as np

from case import Case
from layouts_common import code, separate, version


def resnet50_libtorch(directory, chance):
    import torch
    from torch.nn import AdaptiveMaxPool2d, Conv2d, Flatten, Linear, ReLU, Sequential

    torch.manual_seed(1)
    net = Sequential(Conv2d(3, 16, 7, 16), ReLU(), AdaptiveMaxPool2d(2), Flatten(), Linear(64, 1000)).eval()
    traced = torch.jit.trace(net, torch.randn(1, 3, 224, 224))
    torch.jit.save(traced, os.path.join(version(directory, "resnet50"), "model.pt"))
    images = [torch.from_numpy(chance.standard_normal((3, 224, 224), np.float32)) for _ in range(4)]
    with torch.no_grad():
        answers = [net(image[None]).numpy().reshape(1, 1000, 1, 1) for image in images]
    return separate([({"input__0": x.numpy()}, {"output__0": y}) for x, y in zip(images, answers)])


def merlin_recommender(directory, chance):
    import torch

    class Click(torch.nn.Module):
        """Takes a dictionary of columns, as the models of Merlin do."""

        def __init__(self):
            super().__init__()
            self.users, self.items = torch.nn.Embedding(50, 8), torch.nn.Embedding(5, 4)
            self.last = torch.nn.Linear(13, 1)

        def forward(self, inputs: Dict[str, torch.Tensor]):
            parts = [self.users(inputs["user_id"]), self.items(inputs["item_category"]), inputs["position"].unsqueeze(1)]
            return torch.sigmoid(self.last(torch.cat(parts, 1)))

    workflow = code("merlin_recommender", "0_transformworkflowtriton")
    torch.manual_seed(2)
    net = Click().eval()
    torch.jit.script(net).save(os.path.join(version(directory, "1_predictpytorchtriton"), "model.pt"))
    questions = []
    for rows in (1, 3, 4, 7):
        words = np.array(workflow.CATEGORIES)[chance.integers(0, 5, rows)]
        asked = {"user_id": chance.integers(0, 1000, rows), "item_category": words, "position": chance.random(rows) * 20}
        columns = {name: torch.from_numpy(array) for name, array in workflow.transformed(*asked.values()).items()}
        columns["position"] = columns["position"].float()
        with torch.no_grad():
            questions.append((asked, {"click": net(columns).numpy()}))
    return separate(questions)


def resnet50_savedmodel(directory, chance):
    import tensorflow as tf

    class Net(tf.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = (
                tf.Variable((chance.standard_normal(shape) * (2 / of) ** 0.5).astype(np.float32))
                for shape, of in (((7, 7, 3, 16), 147), ((16, 1000), 16))
            )

        @tf.function(input_signature=[tf.TensorSpec([None, 224, 224, 3], tf.float32, name="input_1")])
        def serve(self, input_1):
            x = tf.nn.relu(tf.nn.conv2d(input_1, self.first, 16, "VALID"))
            return {"predictions": tf.nn.softmax(tf.matmul(tf.reduce_max(x, [1, 2]), self.last))}

    net = Net()
    tf.saved_model.save(net, os.path.join(version(directory, "resnet50"), "model.savedmodel"), signatures=net.serve)
    images = [chance.standard_normal((rows, 224, 224, 3)).astype(np.float32) for rows in (1, 2, 3)]
    return separate([({"input_1": x}, {"predictions": net.serve(tf.constant(x))["predictions"].numpy()}) for x in images])


def face_detection_openvino(directory, chance):
    import openvino as ov
    from openvino import opset13 as ops

    numbers = lambda *values: ops.constant(np.array(values, np.int64))  # noqa: E731
    x = ops.parameter([1, 3, 300, 300], ov.Type.f32, name="data")
    x.output(0).get_tensor().set_names({"data"})
    weights = ops.constant((chance.standard_normal((7, 3, 10, 10)) / 10).astype(np.float32))
    y = ops.relu(ops.convolution(x, weights, [12, 12], [0, 0], [0, 0], [1, 1]))
    # 200 rows of 7 numbers for each picture, those of all pictures one after the other.
    y = ops.transpose(ops.reshape(y, numbers(0, 0, -1), True), numbers(0, 2, 1))
    best = ops.topk(ops.reduce_max(y, numbers(2)), ops.constant(np.int64(200)), 1, "max", "value")
    y = ops.gather(y, best.output(1), ops.constant(np.int64(1)), batch_dims=1)
    made = ops.result(ops.reshape(y, numbers(1, 1, -1, 7), False))
    made.input(0).get_source_output().get_tensor().add_names({"detection_out"})
    file = os.path.join(version(directory, "dynamic"), "model.xml")
    ov.save_model(ov.Model([made], [x], "face"), file, compress_to_fp16=False)
    core = ov.Core()
    model = core.read_model(file)
    model.reshape({"data": [-1, 3, -1, -1]})
    compiled = core.compile_model(model, "CPU")
    shapes = [(1, 3, 224, 224), (2, 3, 224, 224), (3, 3, 224, 224), (1, 3, 200, 200), (1, 3, 300, 300)]
    images = [chance.standard_normal(shape).astype(np.float32) for shape in shapes]
    return separate([({"data": image}, {"detection_out": np.array(compiled(image)[0])}) for image in images])


def forest(rows, answers):
    """A case of trees. Batches up to `max_batch_size` are served; here they have up to 16 rows."""
    questions = [
        ({"input__0": row[None].astype(np.float32)}, {"output__0": answer[None].astype(np.float32)})
        for row, answer in zip(rows, answers)
    ]
    return Case(questions, None, 16, coarse=True, tolerance=1e-5)


def both(probability):
    return np.stack([1 - probability, probability], axis=1)


def fil_xgboost(directory, chance):
    import xgboost

    x = chance.standard_normal((600, 393)).astype(np.float32)
    known = xgboost.DMatrix(x[:580], x[:580, 3] * x[:580, 7] > 0.2)
    for size, depth, trees in (("small", 3, 50), ("large", 12, 100)):
        options = {"objective": "binary:logistic", "max_depth": depth, "nthread": 1}
        booster = xgboost.train(options, known, trees)
        booster.save_model(os.path.join(directory, f"{size}.json"))
        # As in the project, two models are one file.
        for model in (f"{size}_model", f"{size}_model-cpu"):
            os.symlink(f"../../{size}.json", os.path.join(version(directory, model), "xgboost.json"))
    return forest(x[580:], both(booster.predict(xgboost.DMatrix(x[580:]))))


def fil_lightgbm(directory, chance):
    import lightgbm as lgb

    def train(model, x, label, rounds, categories=(), **options):
        data = lgb.Dataset(x, label, categorical_feature=list(categories))
        common = {"verbose": -1, "num_threads": 1, "deterministic": True, "seed": 1}
        booster = lgb.train({**common, **options}, data, rounds)
        booster.save_model(os.path.join(version(directory, model), "model.txt"))
        return booster

    x = chance.standard_normal((1000, 400)).astype(np.float32).astype(np.float64)
    train("regression", x, x[:, 1] * x[:, 2], 10, max_depth=25, objective="regression")
    some = x[:, :32]
    bagging = {"boosting": "rf", "bagging_fraction": 0.8, "bagging_freq": 1}
    classes = np.digitize(some[:, 0], np.linspace(-1.2, 1.2, 9))
    train("lightgbm_rf", some, classes, 20, max_depth=10, objective="multiclass", num_class=10, **bagging)
    # Three features have categories: 0 and 1.
    categories = (4, 9, 21)
    mixed = some.copy()
    mixed[:, categories] = some[:, categories] > 0
    label = (mixed[:, 0] + mixed[:, 4] - mixed[:, 9] * mixed[:, 21] + mixed[:, 5] * 0.5) > 0.3
    booster = train("lightgbm", mixed[:980], label[:980], 200, categories, max_depth=3, objective="binary", num_class=1)
    return forest(mixed[980:], both(booster.predict(mixed[980:])))


def vllm_opt(directory, chance):
    """Answers of the stand-in of vLLM: a word for each step. Its model is a directory, in which it notes what happens."""
    file = os.path.join(directory, "vllm_model/1/model.json")
    with open(file) as read:
        arguments = json.load(read)
    with open(file, "w") as to:
        json.dump({**arguments, "model": os.path.dirname(file)}, to)
    prompts = ["What is Triton Inference Server?", "The capital of France is", "四"]
    rows = [
        {"text_input": text, "steps": 2 + i, "text_output": text + "".join(f" t{at}" for at in range(2 + i))}
        for i, text in enumerate(prompts)
    ]
    with open(os.path.join(os.path.dirname(directory), "questions", "vllm_model.json"), "w") as to:
        json.dump(rows, to)
    return None
