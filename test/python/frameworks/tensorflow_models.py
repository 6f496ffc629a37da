"""Writes the models of test_tensorflow.py, and what plain TensorFlow makes of an input: `python tensorflow_models.py DIRECTORY`. Files only, no configurations."""
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
#: Types in the order of the model `types`.
KINDS = ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]


def save(directory, name, functions):
    """`functions`: of each signature `(function, {input: (shape, type)})`."""
    module = tf.Module()
    made = {}
    for key, (function, inputs) in functions.items():
        module.__dict__[key] = traced = tf.function(function)
        made[key] = traced.get_concrete_function(**{name: tf.TensorSpec(shape, kind, name=name) for name, (shape, kind) in inputs.items()})
    tf.saved_model.save(module, os.path.join(directory, name), signatures=made)


def pair(A, B):  # noqa: N803
    return {"SUM": A + B, "DIFFERENCE": A - B}


def types(**inputs):
    one = lambda x: tf.logical_not(x) if x.dtype == tf.bool else tf.cast(tf.cast(x, tf.float64) + 1, x.dtype)  # noqa: E731
    return {f"OUT{at}": one(inputs[f"IN{at}"]) for at in range(len(KINDS))}


def texts(TEXT):  # noqa: N803
    return {"LOUD": tf.strings.join([TEXT, "!"]), "LENGTH": tf.strings.length(TEXT)}


def classifier(input_1):
    """Of a thousand classes: the mean of the image, 0, 1, …"""
    return {"predictions": tf.reduce_mean(input_1, [1, 2, 3])[:, None] + tf.range(1000.0)[None, :]}


class Words(tf.Module):
    """Has a table, which an operation of the graph fills when it is loaded, from a file beside it."""

    def __init__(self, directory):
        super().__init__()
        path = os.path.join(directory, "words.txt")
        with open(path, "w") as file:
            file.write("one\ntwo\nthree\n")
        self.file = tf.saved_model.Asset(path)
        self.table = tf.lookup.StaticVocabularyTable(tf.lookup.TextFileInitializer(self.file, tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER), 1)

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.string, name="WORDS")])
    def serve(self, words):
        return {"IDS": self.table.lookup(words)}


def old(directory):
    """One of TensorFlow 1: two graphs by their tags, several signatures, a default for an input, a variable that only an operation initialises."""
    builder = v1.saved_model.Builder(os.path.join(directory, "old"))
    for at, tag in enumerate(("serve", "second")):
        with tf.Graph().as_default(), v1.Session() as session:
            x = v1.placeholder(tf.float32, [None, 3], "x")
            by = v1.placeholder_with_default(tf.constant([2.0 + at]), [None], "by")
            kept = v1.get_variable("kept", initializer=10.0, use_resource=True)
            local = v1.get_variable("local", initializer=100.0, collections=[v1.GraphKeys.LOCAL_VARIABLES], use_resource=True)
            v1.group(local.initializer, name="begin")
            y = tf.add(x * by, kept, "y")
            info = v1.saved_model.build_tensor_info
            signature = lambda inputs, outputs: v1.saved_model.build_signature_def({k: info(v) for k, v in inputs.items()}, {k: info(v) for k, v in outputs.items()})  # noqa: E731, B023
            signatures = {
                "first": signature({"X": x, "BY": by}, {"Y": y}),
                "shared": signature({"X": x}, {"Y": y, "AGAIN": y, "SAME": x}),
                "local": signature({"X": x}, {"Y": x + local}),
            }
            session.run(kept.initializer)
            if at == 0:
                builder.add_meta_graph_and_variables(session, [tag], signature_def_map=signatures)
            else:
                builder.add_meta_graph([tag], signature_def_map=signatures)
    builder.save()


def frozen(directory):
    with tf.Graph().as_default() as graph:
        tf.add(v1.placeholder(tf.float32, [None, 3], "x"), 1.0, "y")
    with open(os.path.join(directory, "frozen.graphdef"), "wb") as file:
        file.write(graph.as_graph_def().SerializeToString())


def network(directory):
    """One of Keras: an image of 8 × 8 to the probabilities of five classes."""
    import keras

    keras.utils.set_random_seed(7)
    layers = [keras.Input((8, 8, 3), name="image"), keras.layers.Conv2D(8, 3, activation="relu"), keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(5, activation="softmax", name="classes")]
    model = keras.Sequential(layers)
    model.save(os.path.join(directory, "network.keras"))
    model.export(os.path.join(directory, "network"), verbose=False)
    # Functions of this one read variables of which the file has copies only.
    tf.saved_model.save(model, os.path.join(directory, "network_by_tensorflow"))
    images = np.random.default_rng(8).standard_normal((6, 8, 8, 3)).astype(np.float32)
    np.save(os.path.join(directory, "images.npy"), images)
    np.save(os.path.join(directory, "classes.npy"), model.predict(images, verbose=0))


def main(directory):
    some = ([None, None], tf.float32)
    save(directory, "pair", {"serving_default": (pair, {"A": some, "B": some}), "swapped": (lambda A, B: {"SUM": B - A}, {"A": some, "B": some})})
    save(directory, "double", {"serving_default": (lambda X: {"Y": X * 2}, {"X": some})})
    save(directory, "fixed", {"only": (lambda X: {"Y": X * 2}, {"X": ([1, 3], tf.float32)})})
    save(directory, "types", {"serving_default": (types, {f"IN{at}": ([None, 2], getattr(tf, kind)) for at, kind in enumerate(KINDS)})})
    save(directory, "texts", {"serving_default": (texts, {"TEXT": ([None], tf.string)})})
    save(directory, "more", {"serving_default": (lambda X: {"Y": tf.concat([X, X], 0)}, {"X": ([None, 3], tf.float32)})})
    save(directory, "scalar", {"serving_default": (lambda X, BY: {"Y": X * BY, "TEXT": tf.strings.as_string(BY)}, {"X": ([None], tf.float32), "BY": ([], tf.float32)})})
    save(directory, "complex", {"serving_default": (lambda X: {"Y": X}, {"X": ([None], tf.complex64)})})
    # As models of guides have them.
    save(directory, "resnet50", {"serving_default": (classifier, {"input_1": ([None, 224, 224, 3], tf.float32)})})
    save(directory, "identity", {"serving_default": (lambda INPUT0: {"OUTPUT0": tf.identity(INPUT0)}, {"INPUT0": ([None, None], tf.string)})})
    sixteen = ([None, 16], tf.int32)
    save(directory, "add_sub", {"serving_default": (lambda INPUT0, INPUT1: {"OUTPUT0": INPUT0 + INPUT1, "OUTPUT1": INPUT0 - INPUT1}, {"INPUT0": sixteen, "INPUT1": sixteen})})
    words = Words(directory)
    tf.saved_model.save(words, os.path.join(directory, "words"), signatures={"serving_default": words.serve})
    old(directory)
    frozen(directory)
    network(directory)


if __name__ == "__main__":
    main(sys.argv[1])
