"""
Writes the repository of a layout with random weights, and what its framework makes of questions: `python layouts.py DIRECTORY NAME`. See case.py.

A layout is a directory of `layouts`: configurations and code of models, written after a public project. Names, dims and parameters are as they are there.
"""
import json
import os
import shutil
import sys

import numpy as np

from case import Case, save

HERE = os.path.dirname(os.path.abspath(__file__))


def version(directory, model):
    made = os.path.join(directory, model, "1")
    os.makedirs(made, exist_ok=True)
    return made


def alone(questions):
    """Each is a request by itself."""
    return Case(questions, None, 0)


def resnet50_libtorch(directory, chance):
    import torch

    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 7, 16), torch.nn.ReLU(), torch.nn.AdaptiveMaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(64, 1000)).eval()
    torch.jit.script(net).save(os.path.join(version(directory, "resnet50"), "model.pt"))
    images = [torch.from_numpy(chance.standard_normal((3, 224, 224), np.float32)) for _ in range(4)]
    with torch.no_grad():
        return alone([({"input__0": x.numpy()}, {"output__0": net(x[None]).numpy().reshape(1, 1000, 1, 1)}) for x in images])


def merlin_recommender(directory, chance):
    import torch

    class Click(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.users, self.items, self.last = torch.nn.Embedding(50, 8), torch.nn.Embedding(5, 4), torch.nn.Linear(13, 1)

        def forward(self, user_id, item_category, position):
            return torch.sigmoid(self.last(torch.cat([self.users(user_id[:, 0]), self.items(item_category[:, 0]), position], 1)))

    torch.manual_seed(2)
    net = Click().eval()
    torch.jit.script(net).save(os.path.join(version(directory, "1_predictpytorchtriton"), "model.pt"))
    version(directory, "executor_model")
    words = ["hats", "shoes", "books", "music", "games"]
    questions = []
    for rows in (1, 3, 4, 7):
        user, at, position = chance.integers(0, 1000, (rows, 1)), chance.integers(0, 5, (rows, 1)), chance.random((rows, 1)) * 20
        with torch.no_grad():
            clicks = net(torch.from_numpy(user % 50), torch.from_numpy(at), torch.from_numpy(((position - 10) / 5).astype(np.float32)))
        questions.append(({"user_id": user, "item_category": np.array(words)[at], "position": position}, {"click/binary_output": clicks.numpy()}))
    return alone(questions)


def fil_xgboost(directory, chance):
    import xgboost

    x = chance.standard_normal((400, 32)).astype(np.float32)
    booster = xgboost.train({"objective": "binary:logistic", "max_depth": 5, "nthread": 1}, xgboost.DMatrix(x[:380], x[:380, 3] * x[:380, 7] > 0.2), 20)
    booster.save_model(os.path.join(version(directory, "fil"), "xgboost.json"))
    p = booster.predict(xgboost.DMatrix(x[380:]))
    answers = np.stack([1 - p, p], axis=1)
    # Batches to 32768 are served; here they have up to 16 rows.
    return Case([({"input__0": x[380 + i : 381 + i]}, {"output__0": answers[i : i + 1]}) for i in range(20)], None, 16, coarse=True, tolerance=1e-5)


def face_detection_openvino(directory, chance):
    import openvino as ov
    from openvino import opset13 as ops

    x = ops.parameter([1, 3, 300, 300], ov.Type.f32, name="data")
    x.output(0).get_tensor().set_names({"data"})
    weights = lambda *shape: ops.constant((chance.standard_normal(shape) / 10).astype(np.float32))  # noqa: E731
    y = ops.relu(ops.convolution(x, weights(7, 3, 10, 10), [15, 15], [0, 0], [0, 0], [1, 1]))
    y = ops.transpose(ops.reshape(y, ops.constant([1, 7, 400]), False), ops.constant([0, 2, 1]))
    best = ops.topk(ops.reduce_max(y, ops.constant([2])), ops.constant(200), 1, "max", "value")
    made = ops.result(ops.unsqueeze(ops.gather(y, ops.squeeze(best.output(1), ops.constant([0])), ops.constant(1)), ops.constant([1])))
    made.input(0).get_source_output().get_tensor().add_names({"detection_out"})
    file = os.path.join(version(directory, "face-detection-retail-0004"), "model.xml")
    ov.save_model(ov.Model([made], [x], "face"), file, compress_to_fp16=False)
    compiled = ov.Core().compile_model(file, "CPU")
    images = [chance.standard_normal((1, 3, 300, 300)).astype(np.float32) for _ in range(3)]
    return alone([({"data": image}, {"detection_out": np.array(compiled(image)[0])}) for image in images])


# ONNX.


class Onnx:
    """A network of ONNX, with random weights, and what the reference evaluator of the package onnx makes of an input."""

    def __init__(self, chance):
        self.chance, self.nodes, self.constants = chance, [], []

    def constant(self, value):
        from onnx import numpy_helper

        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def weights(self, *shape, of):
        return self.constant((self.chance.standard_normal(shape) * (2 / of) ** 0.5).astype(np.float32))

    def node(self, kind, *inputs, name=None, **attributes):
        """The name of its first output. `name`: that, or those of all."""
        from onnx import helper

        names = name if isinstance(name, list) else [name or f"n{len(self.nodes)}"]
        self.nodes.append(helper.make_node(kind, list(inputs), names, **attributes))
        return names[0]

    def save(self, file, inputs, outputs):
        from onnx import TensorProto, checker, helper, save_model
        from onnx.reference import ReferenceEvaluator

        def infos(rows):
            return [helper.make_tensor_value_info(name, getattr(TensorProto, kind), shape) for name, kind, shape in rows]

        graph = helper.make_graph(self.nodes, "net", infos(inputs), infos(outputs), self.constants)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        checker.check_model(made)
        save_model(made, file)
        evaluator = ReferenceEvaluator(made)
        return lambda **tensors: evaluator.run(None, tensors)


def densenet_onnx(directory, chance):
    net = Onnx(chance)
    x = net.node("Relu", net.node("Conv", "data_0", net.weights(8, 3, 7, 7, of=147), strides=[16, 16]))
    x = net.node("Concat", x, net.node("Conv", x, net.weights(8, 8, 1, 1, of=8)), axis=1)
    x = net.node("GlobalMaxPool", x)
    net.node("Conv", x, net.weights(1000, 16, 1, 1, of=16), name="fc6_1")
    run = net.save(os.path.join(version(directory, "densenet_onnx"), "model.onnx"), [("data_0", "FLOAT", [1, 3, 224, 224])], [("fc6_1", "FLOAT", [1, 1000, 1, 1])])
    with open(os.path.join(directory, "densenet_onnx/densenet_labels.txt"), "w") as to:
        to.writelines(f"class {i}\n" for i in range(1000))
    images = [chance.standard_normal((3, 224, 224)).astype(np.float32) for _ in range(4)]
    return alone([({"data_0": x}, {"fc6_1": run(data_0=x[None])[0].reshape(1000)}) for x in images])


def text_recognition(directory, chance):
    net = Onnx(chance)
    x = net.node("Transpose", "input_images:0", perm=[0, 3, 1, 2])
    x = net.node("Relu", net.node("Conv", x, net.weights(6, 3, 4, 4, of=48), strides=[4, 4]))
    scores = net.node("Sigmoid", net.node("Conv", x, net.weights(1, 6, 1, 1, of=6)))
    net.node("Transpose", scores, perm=[0, 2, 3, 1], name="feature_fusion/Conv_7/Sigmoid:0")
    net.node("Transpose", net.node("Conv", x, net.weights(5, 6, 1, 1, of=6)), perm=[0, 2, 3, 1], name="feature_fusion/concat_3:0")
    detect = net.save(
        os.path.join(version(directory, "text_detection"), "model.onnx"), [("input_images:0", "FLOAT", ["n", "h", "w", 3])],
        [("feature_fusion/Conv_7/Sigmoid:0", "FLOAT", ["n", "a", "b", 1]), ("feature_fusion/concat_3:0", "FLOAT", ["n", "a", "b", 5])],
    )  # fmt: skip
    net = Onnx(chance)
    x = net.node("Flatten", net.node("AveragePool", "input.1", kernel_shape=[4, 4], strides=[4, 4]))
    net.node("Reshape", net.node("MatMul", x, net.weights(200, 26 * 37, of=200)), net.constant(np.array([-1, 26, 37])), name="308")
    read = net.save(os.path.join(version(directory, "text_recognition"), "model.onnx"), [("input.1", "FLOAT", ["n", 1, 32, 100])], [("308", "FLOAT", ["n", 26, 37])])
    version(directory, "ensemble_model")
    letters = "-0123456789abcdefghijklmnopqrstuvwxyz"
    questions = []
    for height, width in ((64, 120), (48, 160), (80, 112)):
        pixels = chance.integers(0, 256, (height, width, 3), np.uint8)
        encoded = np.frombuffer(f"P6 {width} {height} 255 ".encode() + pixels.tobytes(), np.uint8)
        image = pixels[None].astype(np.float32) / 127.5 - 1
        scores, geometry = detect(**{"input_images:0": image})
        grey = image[0].mean(axis=2)
        texts = []
        for at in np.argsort(-scores.reshape(-1), kind="stable")[:3]:
            row, column = int(at) // scores.shape[2], int(at) % scores.shape[2]
            left = 4 * column + int(abs(geometry[0, row, column, 0]) * 4)
            cut = np.take(np.take(grey, range(4 * row, 4 * row + 32), 0, mode="wrap"), range(left, left + 100), 1, mode="wrap")
            steps = read(**{"input.1": cut[None, None].astype(np.float32)})[0][0].argmax(axis=1)
            texts.append("".join(letters[s] for i, s in enumerate(steps) if s and (i == 0 or steps[i - 1] != s)))
        questions.append(({"input_image": encoded}, {"recognized_text": np.array(texts)}))
    return alone(questions)


def transformer_onnx(directory, chance):
    net = Onnx(chance)
    x = net.node("Gather", net.weights(100, 16, of=2), "input_ids")
    mask = net.node("Unsqueeze", net.node("Cast", "attention_mask", to=1), net.constant(np.array([2])))
    q, k = (net.node("MatMul", x, net.weights(16, 16, of=16)) for _ in range(2))
    hidden = net.node("Transpose", net.node("Mul", net.node("Sub", mask, net.constant(np.float32(1))), net.constant(np.float32(1e6))), perm=[0, 2, 1])
    weights = net.node("Softmax", net.node("Add", net.node("MatMul", q, net.node("Transpose", k, perm=[0, 2, 1])), hidden), axis=2)
    x = net.node("Mul", net.node("MatMul", weights, x), mask)
    pooled = net.node("ReduceMax", x, axes=[1], keepdims=0)
    net.node("MatMul", pooled, net.weights(16, 2, of=16), name="output")
    run = net.save(
        os.path.join(version(directory, "transformer_onnx_model"), "model.onnx"), [(name, "INT64", ["n", "t"]) for name in ("input_ids", "attention_mask")], [("output", "FLOAT", ["n", 2])],
    )  # fmt: skip
    version(directory, "transformer_onnx_inference")
    questions = []
    for texts in (["this movie was fine"], ["one", "a longer text than the other one"], ["über die Brücke", "x y", "the same words the same"], ["last"]):
        rows = [[1 + sum(word.encode()) % 99 for word in text.split()] for text in texts]
        ids = np.zeros((len(rows), max(map(len, rows))), np.int64)
        for i, row in enumerate(rows):
            ids[i, : len(row)] = row
        questions.append(({"TEXT": np.array(texts)}, {"output": run(input_ids=ids, attention_mask=(ids > 0).astype(np.int64))[0]}))
    return alone(questions)


def yolov8_ensemble(directory, chance):
    net = Onnx(chance)
    parts = []
    for stride in (8, 16, 32):
        x = net.node("Conv", "images", net.weights(84, 3, stride, stride, of=3 * stride * stride), strides=[stride, stride])
        parts.append(net.node("Reshape", x, net.constant(np.array([0, 84, -1]))))
    x = net.node("Concat", *parts, axis=2)
    boxes, scores = (net.node("Slice", x, *(net.constant(np.array([at])) for at in (first, last, 1))) for first, last in ((0, 4), (4, 84)))
    boxes = net.node("Add", net.node("Mul", net.node("Sigmoid", boxes), net.constant(np.float32(60))), net.constant(np.float32(1)))
    net.node("Concat", boxes, net.node("Sigmoid", net.node("Sub", scores, net.constant(np.float32(2.5)))), axis=1, name="output0")
    run = net.save(os.path.join(version(directory, "yolov8_onnx"), "model.onnx"), [("images", "FLOAT", ["n", 3, "h", "w"])], [("output0", "FLOAT", ["n", 84, "p"])])
    version(directory, "yolov8_ensemble")
    questions = []
    for shape in ((1, 3, 64, 64), (2, 3, 64, 96), (1, 3, 96, 64)):
        images = chance.standard_normal(shape).astype(np.float32)
        kept = [suppressed(row) for row in run(images=images)[0]]
        most = max(map(len, kept))
        filled = lambda a, *more: np.stack([np.concatenate([x, np.zeros((most - len(x), *more), x.dtype)]) for x in a])  # noqa: E731
        answer = {
            "num_detections": np.array(list(map(len, kept)), np.int32),
            "detection_boxes": filled([np.array([box for box, _, _ in row], np.float32) for row in kept], 4),
            "detection_scores": filled([np.array([score for _, score, _ in row], np.float32) for row in kept]),
            "detection_classes": filled([np.array([kind for _, _, kind in row], np.int32) for row in kept]),
        }
        questions.append(({"images": images}, answer))
    return alone(questions)


def suppressed(rows):
    """Boxes by score, at most 20, none below 0.25 and none that overlaps a better one by 0.45."""
    kept = []
    for at in np.argsort(-rows[4:].max(axis=0), kind="stable"):
        x, y, w, h = rows[:4, at]
        score = rows[4:, at].max()
        if score < 0.25 or len(kept) == 20:
            break
        for (a, b, c, d), _, _ in kept:
            wide, high = min(x + w / 2, a + c / 2) - max(x - w / 2, a - c / 2), min(y + h / 2, b + d / 2) - max(y - h / 2, b - d / 2)
            shared = max(wide, 0) * max(high, 0)
            if shared / (w * h + c * d - shared) >= 0.45:
                break
        else:
            kept.append((rows[:4, at], score, rows[4:, at].argmax()))
    return kept


def wenet_asr(directory, chance):
    net = Onnx(chance)
    x = net.node("Sub", "speech", net.node("ReduceMean", "speech", axes=[2]))
    net.node("Tanh", net.node("MatMul", x, net.weights(80, 256, of=80)), name="encoder_out")
    net.node("Identity", "speech_lengths", name="encoder_out_lens")
    x = net.node("LogSoftmax", net.node("MatMul", "encoder_out", net.weights(256, 40, of=20)), axis=2)
    net.node("TopK", x, net.constant(np.array([10])), axis=2, name=["beam_log_probs", "beam_log_probs_idx"])
    run = net.save(
        os.path.join(version(directory, "encoder"), "encoder.onnx"), [("speech", "FLOAT", ["n", "t", 80]), ("speech_lengths", "INT32", ["n"])],
        [("encoder_out", "FLOAT", ["n", "t", 256]), ("encoder_out_lens", "INT32", ["n"]), ("beam_log_probs", "FLOAT", ["n", "t", 10]), ("beam_log_probs_idx", "INT64", ["n", "t", 10])],
    )  # fmt: skip
    version(directory, "attention_rescoring")
    questions = []
    for samples in (1600, 2400):
        for at in range(4):
            sound, length = chance.standard_normal((1, samples)).astype(np.float32) * (1 + at), samples - 80 * at
            rows = [sound[0, first : first + 400] for first in range(0, length - 399, 160)]
            power = [np.abs(np.fft.rfft(row))[1:161] ** 2 for row in rows]
            speech = np.array([np.log(row[0::2] + row[1::2] + 1e-3) for row in power], np.float32)
            best = run(speech=speech[None], speech_lengths=np.array([len(rows)], np.int32))[3][0, :, 0]
            text = "".join(chr(0x4E00 + s) for i, s in enumerate(best) if s and (i == 0 or best[i - 1] != s))
            questions.append(({"WAV": sound, "WAV_LENS": np.array([[length]], np.int32)}, {"TRANSCRIPTS": np.array([[text]])}))
    return Case(questions, None, 6)


def vllm_opt(directory, chance):
    """What the stand-in of vLLM writes: a word for each step. Its model is a directory, in which it notes what happens."""
    file = os.path.join(directory, "vllm_model/1/model.json")
    with open(file) as read:
        arguments = json.load(read)
    with open(file, "w") as to:
        json.dump({**arguments, "model": os.path.dirname(file)}, to)
    prompts = ["What is Triton Inference Server?", "The capital of France is", "四"]
    with open(os.path.join(os.path.dirname(directory), "questions", "vllm_model.json"), "w") as to:
        json.dump([{"text_input": text, "steps": 2 + i, "text_output": text + "".join(f" t{at}" for at in range(2 + i))} for i, text in enumerate(prompts)], to)
    return None


#: Layout → what it is after, what makes its weights, the models in the order of their loads (the last one is asked), and the function of the weights.
LAYOUTS = {
    "resnet50_libtorch": ("tutorials of Triton, PyTorch", "torch", ["resnet50"], resnet50_libtorch),
    "densenet_onnx": ("example repository of Triton", "onnx", ["densenet_onnx"], densenet_onnx),
    "text_recognition": ("tutorials of Triton, ensembles", "onnx", ["detection_preprocessing", "text_detection", "detection_postprocessing", "text_recognition", "recognition_postprocessing", "ensemble_model"], text_recognition),
    "transformer_onnx": ("transformer-deploy", "onnx", ["transformer_onnx_tokenize", "transformer_onnx_model", "transformer_onnx_inference"], transformer_onnx),
    "yolov8_ensemble": ("YOLOv8 with its postprocessing in Python", "onnx", ["yolov8_onnx", "postprocess", "yolov8_ensemble"], yolov8_ensemble),
    "wenet_asr": ("WeNet, runtime for GPUs", "onnx", ["feature_extractor", "encoder", "scoring", "attention_rescoring"], wenet_asr),
    "fil_xgboost": ("fil_backend, XGBoost", "xgboost", ["fil"], fil_xgboost),
    "face_detection_openvino": ("Open Model Zoo, on openvino_backend", "openvino", ["face-detection-retail-0004"], face_detection_openvino),
    "merlin_recommender": ("Merlin, NVTabular and PyTorch", "torch", ["0_transformworkflowtriton", "1_predictpytorchtriton", "executor_model"], merlin_recommender),
    # vLLM itself needs a GPU and many GB: its stand-in is what the tests of that backend have.
    "vllm_opt": ("vllm_backend, over a stand-in of vLLM", "numpy", ["vllm_model"], vllm_opt),
}


def main():
    root, name = sys.argv[1:]
    _, module, models, make = LAYOUTS[name]
    directory = os.path.join(root, "models")
    os.makedirs(os.path.join(root, "questions"), exist_ok=True)
    shutil.copytree(os.path.join(HERE, "layouts", name), directory, dirs_exist_ok=True)
    case = make(directory, np.random.default_rng(11))
    row = {"name": models[-1], "kind": name, "batch": 0, "coarse": False}
    if case is not None:
        save(root, models[-1], case)
        row |= {"batch": case.batch, "coarse": case.coarse, "tolerance": case.tolerance}
    with open(os.path.join(root, "cases.json"), "w") as to:
        json.dump({"cases": [row]}, to)


if __name__ == "__main__":
    main()
