"""Layouts whose networks are ONNX files: each function writes random weights and returns questions and answers."""
import os

import numpy as np

from layouts_common import code, fill, separate, version


class Onnx:
    """A network of ONNX with random weights. The reference evaluator of the package onnx gives its answers."""

    def __init__(self, chance):
        self.chance, self.nodes, self.constants = chance, [], []

    def constant(self, value):
        from onnx import numpy_helper

        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def weights(self, *shape, of):
        """`of`: how many products a result is the sum of."""
        return self.constant((self.chance.standard_normal(shape) * (2 / of) ** 0.5).astype(np.float32))

    def node(self, kind, *inputs, name=None, **attributes):
        """The name of its first output. `name`: that name, or the names of all outputs."""
        from onnx import helper

        names = name if isinstance(name, list) else [name or f"n{len(self.nodes)}"]
        self.nodes.append(helper.make_node(kind, list(inputs), names, **attributes))
        return names[0]

    def save(self, file, inputs, outputs):
        """Writes the file; rows of name, type and shape. Returns a function of the inputs, which lists the outputs."""
        from onnx import TensorProto, checker, helper, save_model
        from onnx.reference import ReferenceEvaluator

        def infos(rows):
            return [helper.make_tensor_value_info(name, getattr(TensorProto, kind), shape) for name, kind, shape in rows]

        graph = helper.make_graph(self.nodes, "net", infos(inputs), infos(outputs), self.constants)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        checker.check_model(made)
        save_model(made, file, format="protobuf")
        evaluator = ReferenceEvaluator(made)
        return lambda **tensors: evaluator.run(None, tensors)


def densenet_onnx(directory, chance):
    net = Onnx(chance)
    x = net.node("Relu", net.node("Conv", "data_0", net.weights(8, 3, 7, 7, of=147), strides=[16, 16]))
    x = net.node("Concat", x, net.node("Conv", x, net.weights(8, 8, 1, 1, of=8)), axis=1)
    x = net.node("GlobalMaxPool", x)
    net.node("Conv", x, net.weights(1000, 16, 1, 1, of=16), name="fc6_1")
    run = net.save(
        os.path.join(version(directory, "densenet_onnx"), "model.onnx"),
        [("data_0", "FLOAT", [1, 3, 224, 224])],
        [("fc6_1", "FLOAT", [1, 1000, 1, 1])],
    )
    with open(os.path.join(directory, "densenet_onnx/densenet_labels.txt"), "w") as to:
        to.writelines(f"class {i}\n" for i in range(1000))
    images = [chance.standard_normal((3, 224, 224)).astype(np.float32) for _ in range(4)]
    return separate([({"data_0": x}, {"fc6_1": run(data_0=x[None])[0].reshape(1000)}) for x in images])


def text_recognition(directory, chance):
    prepare, cut, read = (
        code("text_recognition", model)
        for model in ("detection_preprocessing", "detection_postprocessing", "recognition_postprocessing")
    )
    net = Onnx(chance)
    x = net.node("Sub", net.node("Div", "input_images:0", net.constant(np.float32(127.5))), net.constant(np.float32(1)))
    x = net.node("Transpose", x, perm=[0, 3, 1, 2])
    x = net.node("Relu", net.node("Conv", x, net.weights(6, 3, 4, 4, of=48), strides=[4, 4]))
    scores = net.node("Sigmoid", net.node("Conv", x, net.weights(1, 6, 1, 1, of=6)))
    net.node("Transpose", scores, perm=[0, 2, 3, 1], name="feature_fusion/Conv_7/Sigmoid:0")
    geometry = net.node("Conv", x, net.weights(5, 6, 1, 1, of=6))
    net.node("Transpose", geometry, perm=[0, 2, 3, 1], name="feature_fusion/concat_3:0")
    detect = net.save(
        os.path.join(version(directory, "text_detection"), "model.onnx"),
        [("input_images:0", "FLOAT", ["n", "h", "w", 3])],
        [
            ("feature_fusion/Conv_7/Sigmoid:0", "FLOAT", ["n", "a", "b", 1]),
            ("feature_fusion/concat_3:0", "FLOAT", ["n", "a", "b", 5]),
        ],
    )
    net = Onnx(chance)
    x = net.node("Flatten", net.node("AveragePool", "input.1", kernel_shape=[4, 4], strides=[4, 4]))
    x = net.node("MatMul", x, net.weights(200, 26 * 37, of=200))
    net.node("Reshape", x, net.constant(np.array([-1, 26, 37])), name="308")
    recognize = net.save(
        os.path.join(version(directory, "text_recognition"), "model.onnx"),
        [("input.1", "FLOAT", ["n", 1, 32, 100])],
        [("308", "FLOAT", ["n", 26, 37])],
    )
    version(directory, "ensemble_model")
    questions = []
    for height, width in ((64, 120), (100, 160), (130, 112)):
        pixels = chance.integers(0, 256, (height, width, 3), np.uint8)
        encoded = f"P6 {width} {height} 255 ".encode() + pixels.tobytes()
        image = prepare.middle(encoded)
        cuts = cut.places(*detect(**{"input_images:0": image}), image)
        texts = read.texts(recognize(**{"input.1": cuts})[0]).tolist()
        questions.append(({"input_image": np.frombuffer(encoded, np.uint8)[None]}, {"recognized_text": np.array(texts)}))
    return separate(questions)


def transformer_onnx(directory, chance):
    tokenize = code("transformer_onnx", "transformer_onnx_tokenize")
    net = Onnx(chance)
    x = net.node("Gather", net.weights(tokenize.WORDS, 16, of=2), "input_ids")
    mask = net.node("Unsqueeze", net.node("Cast", "attention_mask", to=1), net.constant(np.array([2])))
    q, k = (net.node("MatMul", x, net.weights(16, 16, of=16)) for _ in range(2))
    hidden = net.node("Sub", mask, net.constant(np.float32(1)))
    hidden = net.node("Transpose", net.node("Mul", hidden, net.constant(np.float32(1e6))), perm=[0, 2, 1])
    weights = net.node("MatMul", q, net.node("Transpose", k, perm=[0, 2, 1]))
    weights = net.node("Softmax", net.node("Add", weights, hidden), axis=2)
    x = net.node("Mul", net.node("MatMul", weights, x), mask)
    pooled = net.node("ReduceMax", x, axes=[1], keepdims=0)
    net.node("MatMul", pooled, net.weights(16, 2, of=16), name="output")
    run = net.save(
        os.path.join(version(directory, "transformer_onnx_model"), "model.bin"),
        [(name, "INT32", ["n", "t"]) for name in ("input_ids", "attention_mask")],
        [("output", "FLOAT", ["n", 2])],
    )
    version(directory, "transformer_onnx_inference")
    questions = []
    for texts in (
        ["this movie was fine"],
        ["one", "a longer text than the other one, with more than eight words"],
        ["über die Brücke", "x y", "the same words the same"],
        ["last"],
    ):
        ids, mask = tokenize.tokens(texts)
        questions.append(({"TEXT": np.array(texts)}, {"output": run(input_ids=ids, attention_mask=mask)[0]}))
    return separate(questions)


def yolov8_ensemble(directory, chance):
    keep = code("yolov8_ensemble", "postprocess")
    net = Onnx(chance)
    parts = []
    for stride in (8, 16, 32):
        inputs = 3 * stride * stride
        x = net.node("SpaceToDepth", "images", blocksize=stride)
        x = net.node("Reshape", x, net.constant(np.array([0, inputs, -1])))
        parts.append(net.node("MatMul", net.weights(84, inputs, of=inputs), x))
    x = net.node("Concat", *parts, axis=2)
    at, size, scores = (
        net.node("Slice", x, *(net.constant(np.array([bound])) for bound in (first, last, 1)))
        for first, last in ((0, 2), (2, 4), (4, 84))
    )
    at = net.node("Mul", net.node("Sigmoid", at), net.constant(np.float32(640)))
    size = net.node("Add", net.node("Mul", net.node("Sigmoid", size), net.constant(np.float32(300))), net.constant(np.float32(1)))
    # Few of the 8,400 places have a score above the threshold.
    scores = net.node("Sigmoid", net.node("Sub", scores, net.constant(np.float32(6.5))))
    x = net.node("Concat", at, size, scores, axis=1)
    # ONNX Runtime must not find out that a place has 84 numbers: exports of that time with `dynamic=True` leave all
    # dims of this output open, and so does the configuration.
    last = net.node("Slice", net.node("Shape", x), *(net.constant(np.array([bound])) for bound in (2, 3)))
    shape = net.node("Concat", net.constant(np.array([0, -1])), last, axis=0)
    net.node("Reshape", x, shape, name="output0")
    run = net.save(
        os.path.join(version(directory, "yolov8_onnx"), "model.onnx"),
        [("images", "FLOAT", ["batch", 3, "height", "width"])],
        [("output0", "FLOAT", ["batch", "numbers", "anchors"])],
    )
    version(directory, "yolov8_ensemble")
    questions = []
    for _ in range(3):
        images = chance.standard_normal((1, 3, 640, 640)).astype(np.float32)
        answer = keep.detections(run(images=images)[0])
        assert 1 < answer["num_detections"] < 1000
        questions.append(({"images": images}, answer))
    return separate(questions)


def wenet_asr(directory, chance):
    extract, score = (code("wenet_asr", model) for model in ("feature_extractor", "scoring"))
    signs, size, beam = 40, 256, 10
    words = [chr(0x4E00 + sign) for sign in range(signs)]
    words[score.BLANK], words[1], words[-1] = "<blank>", "<unk>", "<sos/eos>"
    path = os.path.join(directory, "words.txt")
    with open(path, "w", encoding="utf-8") as to:
        to.writelines(f"{word} {sign}\n" for sign, word in enumerate(words))
    fill(directory, "scoring", vocabulary_path=path)
    net = Onnx(chance)
    x = net.node("Sub", "speech", net.node("ReduceMean", "speech", axes=[2]))
    net.node("Tanh", net.node("MatMul", x, net.weights(80, size, of=80)), name="encoder_out")
    net.node("Identity", "speech_lengths", name="encoder_out_lens")
    net.node("LogSoftmax", net.node("MatMul", "encoder_out", net.weights(size, signs, of=20)), axis=2, name="ctc_log_probs")
    net.node("TopK", "ctc_log_probs", net.constant(np.array([beam])), axis=2, name=["beam_log_probs", "beam_log_probs_idx"])
    encode = net.save(
        os.path.join(version(directory, "encoder"), "encoder.onnx"),
        [("speech", "FLOAT", ["B", "T", 80]), ("speech_lengths", "INT32", ["B"])],
        [
            ("encoder_out", "FLOAT", ["B", "T_OUT", size]),
            ("encoder_out_lens", "INT32", ["B"]),
            ("ctc_log_probs", "FLOAT", ["B", "T_OUT", signs]),
            ("beam_log_probs", "FLOAT", ["B", "T_OUT", beam]),
            ("beam_log_probs_idx", "INT64", ["B", "T_OUT", beam]),
        ],
    )
    decode = wenet_decoder(directory, Onnx(chance), signs, size, beam)
    version(directory, "attention_rescoring")
    questions = []
    for rows, samples in ((1, 1600), (1, 2400), (2, 1600), (3, 2400), (1, 1600), (2, 2400)):
        sounds = chance.standard_normal((rows, samples)).astype(np.float32)
        lengths = (samples - 160 * np.arange(rows)).astype(np.int32)[:, None]
        texts = []
        for sound, length in zip(sounds, lengths[:, 0]):
            speech = extract.features(sound[:length], 80, 160, 400)
            count = np.array([len(speech)], np.int32)
            encoded, _, _, scores, found = (one[0] for one in encode(speech=speech[None], speech_lengths=count))
            inputs = score.decoder_inputs([(encoded, count[0], scores, found)], beam, signs - 1)
            best = decode(**{**inputs, "encoder_out_lens": count})[0]
            texts += score.texts(inputs, best, words)
        questions.append(({"WAV": sounds, "WAV_LENS": lengths}, {"TRANSCRIPTS": np.array(texts)}))
    return separate(questions)


def wenet_decoder(directory, net, signs, size, beam):
    """Compares the mean of the sound with the sum of the signs of each text, in both directions, beside `ctc_score`."""

    def within(values, lengths, axis):
        """1 where a position along the axis is below the length, else 0, in FP32."""
        count = net.node("Gather", net.node("Shape", values), net.constant(np.int64(axis)))
        positions = net.node("Cast", net.node("Range", net.constant(np.int64(0)), count, net.constant(np.int64(1))), to=6)
        return net.node("Cast", net.node("Less", positions, net.node("Unsqueeze", lengths, net.constant(np.array([-1])))), to=1)

    last = net.constant(np.array([-1]))
    mask = net.node("Unsqueeze", within("encoder_out", "encoder_out_lens", 1), last)
    total = net.node("ReduceSum", net.node("Mul", "encoder_out", mask), net.constant(np.array([1])), keepdims=0)
    count = net.node("Unsqueeze", net.node("Cast", "encoder_out_lens", to=1), last)
    sound = net.node("Unsqueeze", net.node("Div", total, count), last)
    score = "ctc_score"
    for name in ("hyps_pad_sos_eos", "r_hyps_pad_sos_eos"):
        # Each sign weighs by its position: a text and its reverse differ.
        table = net.weights(signs, size, of=8)
        x = net.node("Mul", net.node("Gather", table, name), net.node("Unsqueeze", within(name, "hyps_lens_sos", 2), last))
        positions = net.node("CumSum", net.node("Unsqueeze", within(name, "hyps_lens_sos", 2), last), net.constant(np.int64(2)))
        x = net.node("ReduceSum", net.node("Mul", x, positions), net.constant(np.array([2])), keepdims=0)
        x = net.node("Squeeze", net.node("MatMul", x, sound), last)
        score = net.node("Add", score, x)
    net.node("ArgMax", score, axis=1, keepdims=0, name="best_index")
    return net.save(
        os.path.join(version(directory, "decoder"), "decoder.onnx"),
        [
            ("encoder_out", "FLOAT", ["B", "T", size]),
            ("encoder_out_lens", "INT32", ["B"]),
            ("hyps_pad_sos_eos", "INT64", ["B", beam, "T2"]),
            ("hyps_lens_sos", "INT32", ["B", beam]),
            ("r_hyps_pad_sos_eos", "INT64", ["B", beam, "T2"]),
            ("ctc_score", "FLOAT", ["B", beam]),
        ],
        [("best_index", "INT64", ["B"])],
    )
