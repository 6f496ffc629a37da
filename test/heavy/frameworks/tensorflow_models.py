"""Models of TensorFlow for the suite `frameworks`: nets of Keras, functions and tables of TensorFlow 2, and sessions of TensorFlow 1, with random weights. See case.py."""
import json
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from case import Case, described, main, parameters, tensors

v1 = tf.compat.v1
ROWS = 10
FILE = "model.savedmodel"
#: Without a group there are two processes, which take twice as long to start.
ONE = "instance_group [ { count: 1 kind: KIND_CPU } ]\n"
WORDS = ["one", "zwei", "трое", "四", "cinq", "six🙂", "sept", "acht", "nine and nine", "d"]


def start(seed):
    """The same weights whatever was made before."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(seed)
    return np.random.default_rng(seed)


# Questions.


def floats(chance, *shape, count=ROWS):
    return [chance.standard_normal((1, *shape)).astype(np.float32) for _ in range(count)]


def integers(chance, below, *shape, kind=np.int32, count=ROWS):
    return [chance.integers(0, below, (1, *shape)).astype(kind) for _ in range(count)]


def texts(*values):
    """Tensors of texts, each of a question: lists of strings or bytes."""
    return [np.array(encoded(value), object) for value in values]


def encoded(value):
    if isinstance(value, list):
        return [encoded(one) for one in value]
    return value if isinstance(value, bytes) else value.encode()


def columns(**lists):
    return [dict(zip(lists, row)) for row in zip(*lists.values())]


def kept(array):
    """What a file of numpy keeps of an array: bytes of a fixed length, which must not end with 0."""
    if array.dtype.kind != "O":
        return array
    if any(text.endswith(b"\0") for text in array.reshape(-1).tolist()):
        raise ValueError("a text ends with 0, which a file of numpy does not keep")
    return np.array(array.tolist(), np.bytes_).reshape(array.shape)


def answered(directory, rows, key="serving_default"):
    """What the file makes of rows, each asked alone: TensorFlow 2 calls the signature as a function."""
    # The signature does not keep what it was loaded with.
    loaded = tf.saved_model.load(os.path.join(directory, FILE))
    return [(row, {name: made.numpy() for name, made in loaded.signatures[key](**{name: tf.constant(a) for name, a in row.items()}).items()}) for row in rows]


def case_of(questions, batch=8, more=(ONE,), text=..., line=None, **options):
    """`text`: a configuration, or None, in the place of the one that says all."""
    questions = [({name: kept(a) for name, a in asked.items()}, {name: kept(np.asarray(a)) for name, a in answer.items()}) for asked, answer in questions]
    return Case(questions, described("tensorflow", questions, batch, *more, line=line) if text is ... else text, batch, **options)


# Files.


def alive(chance, model):
    """Weights that do not fade from layer to layer, and statistics as training leaves them."""
    for weight in model.weights:
        name, shape = weight.path.rsplit("/")[-1], weight.shape
        made = {
            "kernel": lambda: chance.standard_normal(shape) * np.sqrt(2 / np.prod(shape[:2] if shape[-1] == 1 and len(shape) == 4 else shape[:-1])),  # noqa: B023
            "embeddings": lambda: chance.standard_normal(shape),  # noqa: B023
            "bias": lambda: chance.normal(0, 0.2, shape), "beta": lambda: chance.normal(0, 0.2, shape), "gamma": lambda: chance.uniform(0.7, 1.3, shape),  # noqa: B023
            "moving_mean": lambda: chance.normal(0, 0.2, shape), "moving_variance": lambda: chance.uniform(0.5, 1.5, shape),  # noqa: B023
        }.get(name)  # fmt: skip
        if made is not None:
            weight.assign(made())
    return model


def exported(chance, directory, inputs, outputs, rows, **options):
    """A functional model of Keras."""
    alive(chance, keras.Model(inputs, outputs)).export(os.path.join(directory, FILE), verbose=False)
    return case_of(answered(directory, rows), **options)


def spec(name, kind, *dims):
    """`dims` without the batch."""
    return tf.TensorSpec([None, *dims], kind, name=name)


class Net(tf.Module):
    """Weights of a function."""

    def __init__(self, chance):
        super().__init__()
        self.chance, self.kept = chance, []

    def keep(self, thing):
        self.kept.append(thing)
        return thing

    def weights(self, *shape, of=1, kind=tf.float32):
        """`of`: how many products are summed."""
        return self.keep(tf.Variable(tf.cast(self.chance.standard_normal(shape) * np.sqrt(2 / of), kind)))

    def dense(self, before, after, kind=tf.float32):
        weight, bias = self.weights(before, after, of=before, kind=kind), self.weights(after, of=20, kind=kind)
        return lambda x: tf.matmul(x, weight) + bias

    def save(self, directory, **signatures):
        """`signatures`: of each `(function, its inputs)`."""
        made = {key: tf.function(function, input_signature=specs) for key, (function, specs) in signatures.items()}
        tf.saved_model.save(self, os.path.join(directory, FILE), signatures=made)


def function(net, directory, rows, of, *specs, **options):
    net.save(directory, serving_default=(of, specs))
    return case_of(answered(directory, rows), **options)


# Nets of images.


def conv(x, width, size=3, stride=1, act="relu", norm=True, **options):
    x = layers.Conv2D(width, size, stride, "same", use_bias=not norm, **options)(x)
    return layers.Activation(act)(layers.BatchNormalization()(x) if norm else x)


def pooled(x):
    return layers.GlobalAveragePooling2D()(x)


def vgg(seed, directory):
    chance = start(seed)
    image = keras.Input((16, 16, 3), name="image")
    x, width = image, 6 + seed % 3
    for stage in range(2):
        x = layers.MaxPooling2D()(conv(x, width << stage, norm=False))
    x = layers.Dense(20, "relu")(layers.Flatten()(x))
    return exported(chance, directory, image, layers.Dense(10)(layers.Dropout(0.5)(x)), columns(image=floats(chance, 16, 16, 3)))


def resnet(seed, directory):
    chance = start(seed)
    image = keras.Input((None, None, 3), name="image")
    x = conv(image, 8)
    for _ in range(2 + seed % 2):
        x = layers.ReLU()(layers.Add()([x, conv(conv(x, 8), 8, act="linear")]))
    rows = columns(image=floats(chance, 12, 12, 3, count=6) + floats(chance, 16, 10, 3, count=6))
    return exported(chance, directory, image, layers.Dense(7, name="logits")(pooled(x)), rows, line='platform: "tensorflow_savedmodel"')


def mobilenet(seed, directory):
    """Inverted residuals with squeeze and excitation, as MobileNet 3."""
    chance = start(seed)
    image = keras.Input((20, 20, 3), name="image")
    x = conv(image, 8, stride=2, act="hard_swish")
    for _ in range(2):
        y = layers.DepthwiseConv2D(3, padding="same", use_bias=False)(conv(x, 16, 1, act="relu6"))
        y = layers.Activation("relu6")(layers.BatchNormalization()(y))
        squeezed = layers.Dense(16, "hard_sigmoid")(layers.Dense(4, "relu")(layers.GlobalAveragePooling2D(keepdims=True)(y)))
        x = layers.Add()([x, conv(layers.Multiply()([y, squeezed]), 8, 1, act="linear")])
    return exported(chance, directory, image, layers.Dense(9)(pooled(x)), columns(image=floats(chance, 20, 20, 3)), more=[ONE, parameters(TF_NUM_INTRA_THREADS=1, TF_NUM_INTER_THREADS=1)])


def densenet(seed, directory):
    chance = start(seed)
    image = keras.Input((12, 12, 3), name="x")
    x = conv(image, 6)
    for _ in range(3):
        x = layers.Concatenate()([x, conv(layers.ReLU()(layers.BatchNormalization()(x)), 4, norm=False)])
    x = layers.AveragePooling2D(2)(conv(x, 8, 1))
    return exported(chance, directory, image, layers.Dense(6, "log_softmax")(layers.GlobalMaxPooling2D()(x)), columns(x=floats(chance, 12, 12, 3)))


def inception(seed, directory):
    chance = start(seed)
    image = keras.Input((12, 12, 3), name="x")
    x = layers.Concatenate()([conv(image, 4, size) for size in (1, 3, 5)] + [conv(layers.AveragePooling2D(3, 1, "same")(image), 4, 1)])
    outputs = {"features": layers.SeparableConv2D(5, 3, dilation_rate=2)(x), "logits": layers.Dense(6)(layers.GlobalMaxPooling2D()(x))}
    return exported(chance, directory, image, outputs, columns(x=floats(chance, 12, 12, 3)), batch=5)


def efficientnet(seed, directory):
    """Pixels in, which the model itself scales; groups of channels, and layers of normalization of other kinds."""
    chance = start(seed)
    image = keras.Input((16, 16, 3), dtype="uint8", name="pixels")
    x = layers.Normalization(mean=[120.0, 110.0, 100.0], variance=[900.0, 800.0, 700.0])(layers.Rescaling(1.0)(image))
    x = conv(layers.ZeroPadding2D(1)(x), 8, stride=2, act="swish")
    x = layers.GroupNormalization(2)(conv(x, 8, groups=2, act="gelu", norm=False))
    x = layers.LayerNormalization()(layers.PReLU(shared_axes=[1, 2])(x))
    return exported(chance, directory, image, layers.Dense(8)(pooled(x)), columns(pixels=integers(chance, 256, 16, 16, 3, kind=np.uint8)))


def unet(seed, directory):
    chance = start(seed)
    image = keras.Input((16, 16, 3), name="image")
    a = conv(image, 4)
    up = layers.Conv2DTranspose(4, 2, 2)(conv(layers.MaxPooling2D()(a), 8))
    deep = layers.UpSampling2D(interpolation="bilinear")(conv(a, 4, stride=2))
    logits = layers.Conv2D(3, 1)(layers.Concatenate()([a, up, deep]))
    return exported(chance, directory, image, {"logits": logits, "mask": keras.ops.argmax(logits, -1)}, columns(image=floats(chance, 16, 16, 3)))


def ssd(seed, directory):
    """Boxes and classes of two scales."""
    chance = start(seed)
    image = keras.Input((16, 16, 3), name="image")
    near = conv(image, 8, stride=2)
    boxes, classes = [], []
    for x in (near, conv(near, 12, stride=2)):
        boxes.append(layers.Reshape((-1, 4))(layers.Conv2D(8, 3, padding="same")(x)))
        classes.append(layers.Reshape((-1, 5))(layers.Conv2D(10, 3, padding="same")(x)))
    outputs = {"boxes": layers.Concatenate(1)(boxes), "classes": layers.Softmax()(layers.Concatenate(1)(classes))}
    return exported(chance, directory, image, outputs, columns(image=floats(chance, 16, 16, 3)), batch=6)


def detector(seed, directory):
    """As the API of object detection writes them: one image of any size, and the best boxes with their number."""
    chance = start(seed)
    net = Net(chance)
    kernel, head = net.weights(3, 3, 3, 6, of=27), net.weights(1, 1, 6, 7, of=6)

    def serve(input_tensor):
        x = tf.nn.relu(tf.nn.conv2d(tf.cast(input_tensor, tf.float32) / 255.0, kernel, 2, "SAME"))
        y = tf.reshape(tf.nn.conv2d(x, head, 1, "SAME"), [tf.shape(x)[0], -1, 7])
        low = tf.sigmoid(y[..., :2])
        boxes = tf.concat([low, low + tf.sigmoid(y[..., 2:4])], -1)
        made = tf.image.combined_non_max_suppression(boxes[:, :, None], tf.sigmoid(y[..., 4:]), 5, 10, 0.5, 0.3, clip_boxes=False)
        return {"detection_boxes": made[0], "detection_scores": made[1], "detection_classes": made[2], "num_detections": tf.cast(made[3], tf.float32)}

    rows = columns(input_tensor=[chance.integers(0, 256, (1, 10 + at, 20 - at, 3)).astype(np.uint8) for at in range(6)])
    return function(net, directory, rows, serve, tf.TensorSpec([1, None, None, 3], tf.uint8, name="input_tensor"), batch=0)


def suppressed(seed, directory):
    """No batch: as many boxes as are left."""
    chance = start(seed)

    def serve(boxes, scores):
        chosen = tf.image.non_max_suppression(boxes, scores, 20, 0.4, 0.3)
        return {"chosen": chosen, "boxes": tf.gather(boxes, chosen), "count": tf.size(chosen)[None]}

    low = [chance.random((8 + at, 2)).astype(np.float32) for at in range(6)]
    rows = columns(boxes=[np.concatenate([a, a + 0.4], 1) for a in low], scores=[chance.random(len(a)).astype(np.float32) for a in low])
    return function(Net(chance), directory, rows, serve, spec("boxes", tf.float32, 4), spec("scores", tf.float32), batch=0)


def video(seed, directory):
    chance = start(seed)
    clip = keras.Input((6, 8, 8, 2), name="clip")
    x = layers.MaxPooling3D()(layers.Conv3D(5, 3, padding="same", activation="relu")(clip))
    return exported(chance, directory, clip, layers.Dense(4)(layers.GlobalAveragePooling3D()(x)), columns(clip=floats(chance, 6, 8, 8, 2)), batch=3)


def weather(seed, directory):
    """A recurrent net of images."""
    chance = start(seed)
    maps = keras.Input((4, 6, 6, 1), name="maps")
    x = layers.ConvLSTM2D(3, 3, padding="same", return_sequences=True)(maps)
    outputs = layers.TimeDistributed(layers.Conv2D(1, 1))(x)
    return exported(chance, directory, maps, outputs, columns(maps=floats(chance, 4, 6, 6, 1)), batch=4)


def resized(seed, directory):
    """Pixels in, larger pixels out."""
    chance = start(seed)
    serve = lambda pixels: {"larger": tf.cast(tf.clip_by_value(tf.round(tf.image.resize(pixels, [13, 11])), 0, 255), tf.uint8)}  # noqa: E731
    return function(Net(chance), directory, columns(pixels=integers(chance, 256, 8, 8, 3, kind=np.uint8)), serve, spec("pixels", tf.uint8, 8, 8, 3))


def pictures(seed, directory):
    """Files of PNG in, of which each is a row."""
    chance = start(seed)
    net = Net(chance)
    layer = net.dense(6 * 6 * 3, 5)

    def serve(image_bytes):
        read = lambda one: tf.image.resize(tf.io.decode_image(one, 3, expand_animations=False), [6, 6])  # noqa: E731
        images = tf.map_fn(read, image_bytes, fn_output_signature=tf.TensorSpec([6, 6, 3], tf.float32))
        return {"scores": layer(tf.reshape(images, [-1, 108]) / 255.0)}

    files = [tf.io.encode_png(chance.integers(0, 256, (5 + at, 9, 3)).astype(np.uint8)).numpy() for at in range(ROWS)]
    return function(net, directory, columns(image_bytes=texts(*([file] for file in files))), serve, spec("image_bytes", tf.string))


def generator(seed, directory):
    chance = start(seed)
    noise = keras.Input((8,), name="noise")
    x = layers.Reshape((2, 2, 8))(layers.Dense(32)(noise))
    for width in (6, 4):
        x = layers.LeakyReLU(0.2)(layers.BatchNormalization()(layers.Conv2DTranspose(width, 4, 2, "same")(x)))
    return exported(chance, directory, noise, conv(x, 3, act="tanh", norm=False), columns(noise=floats(chance, 8)))


# Texts and sequences.


def attention(net, width):
    q, k, v, out = (net.dense(width, width) for _ in range(4))
    return lambda x, mask: out(tf.matmul(tf.nn.softmax(tf.matmul(q(x), k(x), transpose_b=True) * width**-0.5 + mask), v(x)))


def normed(x):
    mean, variance = tf.nn.moments(x, -1, keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + 1e-5)


def encoder(net, width, depth):
    parts = [(attention(net, width), net.dense(width, 2 * width), net.dense(2 * width, width)) for _ in range(depth)]

    def run(x, mask):
        for attend, wide, narrow in parts:
            x += attend(normed(x), mask)
            x += narrow(tf.nn.gelu(wide(normed(x))))
        return x

    return run


def bert(seed, directory):
    """As that of TensorFlow Hub: ids, masks and segments of int32."""
    chance = start(seed)
    net = Net(chance)
    words, places, segments = net.weights(60, 12), net.weights(16, 12), net.weights(2, 12)
    body, pooler = encoder(net, 12, 1 + seed % 2), net.dense(12, 12)

    def serve(input_word_ids, input_mask, input_type_ids):
        x = tf.gather(words, input_word_ids) + tf.gather(segments, input_type_ids) + places[: tf.shape(input_word_ids)[1]]
        y = normed(body(x, (1.0 - tf.cast(input_mask, tf.float32)[:, None]) * -1e9))
        return {"sequence_output": y, "pooled_output": tf.tanh(pooler(y[:, 0]))}

    rows = []
    for length in (5, 9):
        for at in range(6):
            mask = (np.arange(length) < length - at % 3).astype(np.int32)[None]
            rows.append({"input_word_ids": integers(chance, 60, length)[0], "input_mask": mask, "input_type_ids": integers(chance, 2, length)[0]})
    return function(net, directory, rows, serve, *(spec(name, tf.int32, None) for name in rows[0]))


def gpt(seed, directory):
    chance = start(seed)
    net = Net(chance)
    words, body, head = net.weights(40, 12), encoder(net, 12, 2), net.dense(12, 40)

    def serve(ids):
        length = tf.shape(ids)[1]
        future = tf.linalg.band_part(tf.ones([length, length]), -1, 0)
        logits = head(normed(body(tf.gather(words, ids), (1.0 - future) * -1e9)))
        return {"logits": logits, "next": tf.argmax(logits[:, -1], -1)}

    return function(net, directory, columns(ids=integers(chance, 40, 4, kind=np.int64, count=6) + integers(chance, 40, 9, kind=np.int64, count=6)), serve, spec("ids", tf.int64, None))


def translator(seed, directory):
    """An encoder and a decoder of layers of Keras."""
    chance = start(seed)
    source, target = keras.Input((None,), dtype="int32", name="source"), keras.Input((None,), dtype="int32", name="target")
    x, y = layers.Embedding(30, 8)(source), layers.Embedding(30, 8)(target)
    x = layers.LayerNormalization()(layers.Add()([x, layers.MultiHeadAttention(2, 4)(x, x)]))
    y = layers.Add()([y, layers.MultiHeadAttention(2, 4)(y, y, use_causal_mask=True)])
    y = layers.Add()([y, layers.MultiHeadAttention(2, 4)(y, x)])
    rows = columns(source=integers(chance, 30, 5, count=6) + integers(chance, 30, 8, count=6), target=integers(chance, 30, 4, count=6) + integers(chance, 30, 3, count=6))
    return exported(chance, directory, [source, target], layers.Dense(30)(y), rows)


def vit(seed, directory):
    chance = start(seed)
    image = keras.Input((16, 16, 3), name="image")
    x = layers.Reshape((16, 12))(layers.Conv2D(12, 4, 4)(image))
    y = layers.LayerNormalization()(x)
    x = layers.Add()([x, layers.MultiHeadAttention(3, 4)(y, y)])
    x = layers.Add()([x, layers.Dense(12)(layers.Dense(24, "gelu")(layers.LayerNormalization()(x)))])
    return exported(chance, directory, image, layers.Dense(10)(layers.GlobalAveragePooling1D()(x)), columns(image=floats(chance, 16, 16, 3)))


def rnn(seed, directory):
    chance = start(seed)
    x = keras.Input((6, 4), name="x")
    steps = layers.SimpleRNN(5, return_sequences=True)(x)
    return exported(chance, directory, x, [steps, layers.SimpleRNN(3, go_backwards=True)(steps)], columns(x=floats(chance, 6, 4)))


def lstm(seed, directory):
    """Words of texts of any length, of which 0 is none, read from both ends."""
    chance = start(seed)
    ids = keras.Input((None,), dtype="int64", name="ids")
    x = layers.Bidirectional(layers.LSTM(5 + seed % 3))(layers.Embedding(20, 6, mask_zero=True)(ids))
    rows = []
    for length in (4, 7):
        for at in range(6):
            row = chance.integers(1, 20, (1, length))
            row[:, length - at % 3 :] = 0
            rows.append({"ids": row})
    return exported(chance, directory, ids, layers.Dense(3)(x), rows)


def gru(seed, directory):
    """State in, state out."""
    chance = start(seed)
    x, state = keras.Input((None, 4), name="x"), keras.Input((6,), name="state")
    steps, last = layers.GRU(6, return_sequences=True, return_state=True)(x, initial_state=state)
    rows = columns(x=floats(chance, 3, 4, count=6) + floats(chance, 5, 4, count=6), state=floats(chance, 6, count=12))
    return exported(chance, directory, {"x": x, "state": state}, {"steps": steps, "state": last}, rows)


def sound(seed, directory):
    """Sound of any length to its spectrum, and to letters."""
    chance = start(seed)
    net = Net(chance)
    layer = net.dense(9, 6)

    def serve(waveform):
        spectrum = tf.abs(tf.signal.stft(waveform, 16, 8, 16))
        return {"letters": tf.nn.log_softmax(layer(tf.math.log(spectrum + 0.1))), "energy": tf.reduce_sum(spectrum, -1)}

    return function(net, directory, columns(waveform=floats(chance, 64, count=6) + floats(chance, 90, count=6)), serve, spec("waveform", tf.float32, None))


def wavenet(seed, directory):
    chance = start(seed)
    series = keras.Input((None, 2), name="series")
    x = layers.Conv1D(6, 1)(series)
    for rate in (1, 2, 4):
        y = layers.Multiply()([layers.Conv1D(6, 2, padding="causal", dilation_rate=rate, activation=act)(x) for act in ("tanh", "sigmoid")])
        x = layers.Add()([x, layers.Conv1D(6, 1)(y)])
    return exported(chance, directory, series, layers.Conv1D(1, 1)(x), columns(series=floats(chance, 9, 2, count=6) + floats(chance, 14, 2, count=6)))


def written(seed, directory):
    """A loop that writes a sequence from what it wrote, as long as it goes on."""
    chance = start(seed)
    net = Net(chance)
    words, layer = net.weights(20, 6), net.dense(6, 20)

    def serve(first):
        at, x, wrote = tf.constant(0), tf.gather(words, first[:, 0]), tf.TensorArray(tf.int32, 7)
        while at < 7:
            best = tf.argmax(layer(tf.tanh(x)), -1, tf.int32)
            wrote, x, at = wrote.write(at, best), x * 0.5 + tf.gather(words, best), at + 1
        return {"ids": tf.transpose(wrote.stack()), "state": x}

    rows = [{"first": np.array([[at]], np.int32)} for at in range(ROWS)]
    return function(net, directory, rows, serve, spec("first", tf.int32, 1))


def vectorized(seed, directory):
    """Texts in, which the model itself cuts into words."""
    chance = start(seed)
    text = keras.Input((), dtype="string", name="text")
    ids = layers.TextVectorization(output_sequence_length=6, vocabulary=["the", "cat", "sat", "on", "mat", "ünder"])(text)
    x = layers.Flatten()(layers.Embedding(8, 4)(ids))
    rows = texts(["The cat"], ["sat on, the mat!"], ["ünder the mat"], [""], ["the the the the the the the"], ["cat"], ["a dog sat"], ["mat on cat"])
    return exported(chance, directory, text, layers.Dense(3)(x), columns(text=rows))


def hashed(seed, directory):
    """Words into buckets, without a list of them."""
    chance = start(seed)
    net = Net(chance)
    table, layer = net.weights(50, 6), net.dense(6, 3)

    def serve(words):
        ids = tf.strings.to_hash_bucket_fast(words, 50)
        return {"scores": layer(tf.reduce_sum(tf.gather(table, ids), 1)), "ids": ids}

    pick = lambda count: [[WORDS[at] for at in chance.integers(0, len(WORDS), count)]]  # noqa: E731
    return function(net, directory, columns(words=texts(*(pick(3) for _ in range(6)), *(pick(5) for _ in range(6)))), serve, spec("words", tf.string, None))


def tables(seed, directory):
    """Words to numbers and numbers to words."""
    chance = start(seed)
    net = Net(chance)
    static = lambda keys, values, default: net.keep(tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), default))  # noqa: E731
    numbers = tf.constant(np.arange(len(WORDS)) * 11, tf.int64)
    to_number, to_word = static(WORDS, numbers, -1), static(numbers, WORDS, "?")
    serve = lambda WORD, NUMBER: {"NUMBER_OF": to_number.lookup(WORD), "WORD_OF": to_word.lookup(NUMBER)}  # noqa: E731
    rows = columns(WORD=texts(*([[word, "none"]] for word in WORDS)), NUMBER=[np.array([[at * 11, at]], np.int64) for at in range(ROWS)])
    return function(net, directory, rows, serve, spec("WORD", tf.string, 2), spec("NUMBER", tf.int64, 2))


def vocabulary(seed, directory):
    """A list of words in a file that lies beside the graph."""
    chance = start(seed)
    net = Net(chance)
    path = os.path.join(directory, "words.txt")
    with open(path, "w") as to:
        to.write("\n".join(WORDS[:7]) + "\n")
    asset = net.keep(tf.saved_model.Asset(path))
    lines = tf.lookup.TextFileInitializer(asset, tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER)
    table = net.keep(tf.lookup.StaticVocabularyTable(lines, 3))
    serve = lambda words: {"ids": table.lookup(words), "hot": tf.one_hot(table.lookup(words), 10)}  # noqa: E731
    made = function(net, directory, columns(words=texts(*([[word, WORDS[at - 1]]] for at, word in enumerate(WORDS)))), serve, spec("words", tf.string, 2))
    # What is served is the copy in `assets`.
    os.remove(path)
    return made


def changed(seed, directory):
    """Texts in, texts and numbers out: one for each row, and any bytes."""
    chance = start(seed)

    def serve(TEXT):  # noqa: N803
        loud = tf.strings.regex_replace(tf.strings.upper(TEXT, "utf-8"), "[AEIOU]", "*")
        return {"LOUD": tf.strings.join([loud, "!"]), "BASE64": tf.io.encode_base64(TEXT, pad=True), "LENGTH": tf.strings.length(TEXT, "UTF8_CHAR"), "SAME": tf.identity(TEXT)}

    rows = columns(TEXT=texts(*([word] for word in WORDS), [b"\xff\x00\xfe"], [""]))
    return function(Net(chance), directory, rows, serve, spec("TEXT", tf.string))


def cut(seed, directory):
    """No batch: as many words as a text has."""
    chance = start(seed)

    def serve(line):
        words = tf.strings.split(line).flat_values
        return {"words": words, "lengths": tf.strings.length(words), "joined": tf.strings.reduce_join(words, separator="_")[None]}

    rows = columns(line=texts(*([" ".join(WORDS[: at + 1]), *WORDS[: 2 + at % 3]] for at in range(6))))
    return function(Net(chance), directory, rows, serve, spec("line", tf.string), batch=0)


FEATURES = {"age": tf.io.FixedLenFeature([2], tf.float32), "city": tf.io.FixedLenFeature([1], tf.string, "none"), "seen": tf.io.VarLenFeature(tf.int64)}


def example(age, city, seen):
    of = tf.train.Feature
    features = {"age": of(float_list=tf.train.FloatList(value=age)), "seen": of(int64_list=tf.train.Int64List(value=seen))}
    if city is not None:
        features["city"] = of(bytes_list=tf.train.BytesList(value=[city.encode()]))
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString(deterministic=True)


def parsed(seed, directory):
    """Rows as `tf.train.Example`, as TFX has them."""
    chance = start(seed)
    net = Net(chance)
    cities, layer = net.weights(9, 3), net.dense(6, 2)

    def serve(examples):
        row = tf.io.parse_example(examples, FEATURES)
        city = tf.gather(cities, tf.strings.to_hash_bucket_fast(row["city"][:, 0], 9))
        seen = tf.sparse.reduce_sum(tf.cast(row["seen"], tf.float32), 1, keepdims=True)
        return {"outputs": layer(tf.concat([row["age"], city, tf.ensure_shape(seen, [None, 1])], 1)), "city": row["city"]}

    files = [example(chance.standard_normal(2), None if at == 3 else WORDS[at], range(1, 2 + at % 4)) for at in range(ROWS)]
    return function(net, directory, columns(examples=texts(*([file] for file in files))), serve, spec("examples", tf.string))


# Recommenders, and other nets of numbers.


def wide_and_deep(seed, directory):
    """Words, numbers and lists of ids."""
    chance = start(seed)
    city, user = keras.Input((1,), dtype="string", name="city"), keras.Input((1,), dtype="int64", name="user")
    history, numbers = keras.Input((4,), dtype="int32", name="history"), keras.Input((3,), name="numbers")
    places = layers.StringLookup(vocabulary=WORDS[:6])(city)
    people = layers.Hashing(12)(user)
    deep = [layers.Flatten()(layers.Embedding(size, 4)(ids)) for size, ids in ((7, places), (12, people), (20, history))]
    ages = layers.CategoryEncoding(6, "one_hot")(layers.Discretization([-1.0, -0.3, 0.0, 0.3, 1.0])(numbers[:, :1]))
    x = layers.Dense(8, "relu")(layers.Concatenate()([*deep, numbers]))
    wide = layers.Dense(1, use_bias=False)(layers.Concatenate()([ages, layers.CategoryEncoding(7, "multi_hot")(places)]))
    chances = layers.Activation("sigmoid")(layers.Add()([layers.Dense(1)(x), wide]))
    rows = columns(city=texts(*([[word]] for word in WORDS)), user=integers(chance, 1000, 1, kind=np.int64), history=integers(chance, 20, 4), numbers=floats(chance, 3))
    return exported(chance, directory, [city, user, history, numbers], chances, rows)


def dlrm(seed, directory):
    """Products of all pairs of embeddings."""
    chance = start(seed)
    net = Net(chance)
    fields = [net.weights(20, 4) for _ in range(3)]
    bottom, top = net.dense(5, 4), net.dense(10, 1)

    def serve(dense_features, sparse_features):
        x = tf.nn.relu(bottom(dense_features))
        parts = tf.stack([x, *(tf.gather(table, sparse_features[:, at]) for at, table in enumerate(fields))], 1)
        pairs = tf.boolean_mask(tf.matmul(parts, parts, transpose_b=True), np.tri(4, k=-1, dtype=bool), axis=1)
        return {"click": tf.sigmoid(top(tf.concat([x, tf.ensure_shape(pairs, [None, 6])], 1)))}

    rows = columns(dense_features=floats(chance, 5), sparse_features=integers(chance, 20, 3, kind=np.int64))
    return function(net, directory, rows, serve, spec("dense_features", tf.float32, 5), spec("sparse_features", tf.int64, 3), batch=16)


def towers(seed, directory):
    """Two towers, and the best of what is known."""
    chance = start(seed)
    net = Net(chance)
    user, known = net.dense(6, 4), net.weights(12, 4)
    names = tf.constant([f"film {at}" for at in range(12)])

    def serve(user_features):
        best = tf.math.top_k(tf.matmul(tf.math.l2_normalize(user(user_features), 1), tf.math.l2_normalize(known, 1), transpose_b=True), 5)
        return {"scores": best.values, "films": tf.gather(names, best.indices)}

    return function(net, directory, columns(user_features=floats(chance, 6)), serve, spec("user_features", tf.float32, 6))


def mlp(seed, directory):
    """A list of layers, as first examples have it."""
    chance = start(seed)
    acts = ["tanh", "sigmoid", "relu"]
    model = keras.Sequential([keras.Input((6,), name="x"), layers.Dense(16, acts[seed % 3]), layers.Dense(8, "elu"), layers.Dense(3)])
    alive(chance, model).export(os.path.join(directory, FILE), verbose=False)
    return case_of(answered(directory, columns(x=floats(chance, 6))), batch=16)


@keras.saving.register_keras_serializable("frameworks")
class Coder(keras.Model):
    """A class of the user's, with a training step and a sampling one."""

    def __init__(self):
        super().__init__()
        self.down, self.up = layers.Dense(6), layers.Dense(10, "tanh")

    def call(self, x, training=False):
        mean, spread = keras.ops.split(self.down(x), 2, -1)
        return {"rebuilt": self.up(mean), "mean": mean, "spread": keras.ops.exp(spread)}


def autoencoder(seed, directory):
    """A class, saved by TensorFlow and not by Keras, with a signature of its own."""
    chance = start(seed)
    coder = Coder()
    coder(np.zeros((1, 10), np.float32))
    serve = tf.function(lambda x: coder(x), input_signature=[spec("x", tf.float32, 10)])
    tf.saved_model.save(alive(chance, coder), os.path.join(directory, FILE), signatures={"encode_and_decode": serve})
    rows = columns(x=floats(chance, 10))
    return case_of(answered(directory, rows, "encode_and_decode"), batch=32, more=[ONE, parameters(TF_SIGNATURE_DEF="encode_and_decode")])


def experts(seed, directory):
    """Branches that a row's own numbers choose."""
    chance = start(seed)
    net = Net(chance)
    gate, parts = net.dense(6, 3), [net.dense(6, 5) for _ in range(3)]

    def serve(x):
        chosen = tf.argmax(gate(x), 1, tf.int32)
        pieces = tf.dynamic_partition(x, chosen, 3)
        places = tf.dynamic_partition(tf.range(tf.shape(x)[0]), chosen, 3)
        y = tf.dynamic_stitch(places, [part(piece) for part, piece in zip(parts, pieces)])
        return {"y": tf.reshape(y, [-1, 5]), "expert": chosen}

    return function(net, directory, columns(x=floats(chance, 6)), serve, spec("x", tf.float32, 6))


def graph(seed, directory):
    """Convolution over a graph: any number of nodes, and a matrix of bool."""
    chance = start(seed)
    net = Net(chance)
    one, two = net.dense(4, 8), net.dense(8, 2)

    def serve(nodes, edges):
        weight = tf.cast(edges, tf.float32)
        weight /= tf.maximum(tf.reduce_sum(weight, 2, keepdims=True), 1.0)
        y = tf.matmul(weight, two(tf.nn.relu(tf.matmul(weight, one(nodes)))))
        return {"y": y, "linked": tf.reduce_any(edges, 2)}

    nodes = floats(chance, 4, 4, count=6) + floats(chance, 6, 4, count=6)
    rows = columns(nodes=nodes, edges=[chance.random((1, a.shape[1], a.shape[1])) < 0.4 for a in nodes])
    return function(net, directory, rows, serve, spec("nodes", tf.float32, None, 4), spec("edges", tf.bool, None, None))


def several(seed, directory):
    """A module with several signatures, of which a parameter names one."""
    chance = start(seed)
    net = Net(chance)
    one, two = net.dense(5, 4), net.dense(4, 5)
    key = ["encode", "decode"][seed % 2]
    specs = {"encode": spec("x", tf.float32, 5), "decode": spec("code", tf.float32, 4)}
    net.save(directory, encode=(lambda x: {"code": tf.tanh(one(x))}, [specs["encode"]]), decode=(lambda code: {"x": two(code)}, [specs["decode"]]))
    rows = [{specs[key].name: a} for a in floats(chance, specs[key].shape[1])]
    return case_of(answered(directory, rows, key), more=[ONE, parameters(TF_SIGNATURE_DEF=key)])


# Datatypes and operations.


def whole_numbers(seed, directory):
    chance = start(seed)
    kinds = ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"]
    one = lambda x: tf.cast(tf.cast(x, tf.int64) * 2 + 1, x.dtype)  # noqa: E731
    serve = lambda *given: {**{f"OUT{at}": one(x) for at, x in enumerate(given[:-1])}, "NOT": tf.logical_not(given[-1])}  # noqa: E731
    rows = columns(**{f"IN{at}": integers(chance, 60, 3, kind=kind) for at, kind in enumerate(kinds)}, IS=[chance.random((1, 2)) < 0.5 for _ in range(ROWS)])
    return function(Net(chance), directory, rows, serve, *(spec(f"IN{at}", getattr(tf, kind), 3) for at, kind in enumerate(kinds)), spec("IS", tf.bool, 2))


def real_numbers(seed, directory):
    """FP16, FP32 and FP64 in one model."""
    chance = start(seed)
    net = Net(chance)
    kinds = {"half": tf.float16, "single": tf.float32, "double": tf.float64}
    parts = [net.dense(4, 3, kind) for kind in kinds.values()]

    def serve(*given):
        made = [part(x) for part, x in zip(parts, given)]
        return {**{f"{name}_out": y for name, y in zip(kinds, made)}, "all": sum(tf.cast(y, tf.float64) for y in made)}

    rows = columns(**{name: [a.astype(kind.as_numpy_dtype) for a in floats(chance, 4)] for name, kind in kinds.items()})
    return function(net, directory, rows, serve, *(spec(name, kind, 4) for name, kind in kinds.items()), tolerance=1e-2)


def mixed(seed, directory):
    """Weights of FP32, layers of FP16 or BF16, and outputs of FP32."""
    chance = start(seed)
    policy = keras.mixed_precision.DTypePolicy(["mixed_float16", "mixed_bfloat16"][seed % 2])
    x = keras.Input((6,), name="x")
    y = layers.Dense(8, "relu", dtype=policy)(x)
    return exported(chance, directory, x, layers.Dense(3, dtype="float32")(y), columns(x=floats(chance, 6)), tolerance=4e-2)


def quantized(seed, directory):
    """Numbers of 8 bits in and out, as after training for them."""
    chance = start(seed)
    weight = chance.integers(-30, 30, (6, 4)).astype(np.int8)

    def serve(q):
        total = tf.matmul(tf.cast(q, tf.int32) - 128, tf.cast(tf.constant(weight), tf.int32))
        y = tf.quantization.fake_quant_with_min_max_args(tf.cast(total, tf.float32) / 64, -255, 255, 8)
        return {"total": total, "q_out": tf.cast(tf.clip_by_value(tf.round(y / 2) + 128, 0, 255), tf.uint8)}

    return function(Net(chance), directory, columns(q=integers(chance, 256, 6, kind=np.uint8)), serve, spec("q", tf.uint8, 6))


def unique(seed, directory):
    """No batch: as many answers as there are different numbers."""
    chance = start(seed)

    def serve(ids):
        made = tf.unique_with_counts(ids)
        return {"values": made.y, "places": made.idx, "counts": made.count}

    rows = columns(ids=[chance.integers(0, 6, 5 + at) for at in range(6)])
    return function(Net(chance), directory, rows, serve, spec("ids", tf.int64), batch=0)


def nonzero(seed, directory):
    """No batch, and an output that may be empty."""
    chance = start(seed)
    serve = lambda x: {"places": tf.where(x > 0.5), "values": tf.boolean_mask(x, x > 0.5)}  # noqa: E731
    rows = columns(x=[np.zeros((2, 3), np.float32), *(chance.standard_normal((3 + at, 4)).astype(np.float32) for at in range(5))])
    return function(Net(chance), directory, rows, serve, spec("x", tf.float32, None), batch=0)


def numbers(seed, directory):
    """One number for each row, without dims."""
    chance = start(seed)
    serve = lambda price, count: {"total": price * tf.cast(count, tf.float32), "many": count > 5, "text": tf.strings.as_string(count)}  # noqa: E731
    rows = columns(price=floats(chance), count=[np.array([at], np.int64) for at in range(ROWS)])
    return function(Net(chance), directory, rows, serve, spec("price", tf.float32), spec("count", tf.int64))


def scalars(seed, directory):
    """No batch: numbers that are vectors of one for clients."""
    chance = start(seed)
    serve = lambda x, by: {"scaled": x * by, "greatest": tf.reduce_max(x), "text": tf.strings.as_string(tf.cast(by, tf.int32))}  # noqa: E731
    specs = spec("x", tf.float32, 3), tf.TensorSpec([], tf.float32, name="by")
    Net(chance).save(directory, serving_default=(serve, specs))
    rows = columns(x=[chance.standard_normal((1 + at, 3)).astype(np.float32) for at in range(6)], by=[np.float32(2 + at) for at in range(6)])
    whole = lambda side: {name: np.array([a]) if np.ndim(a) == 0 else a for name, a in side.items()}  # noqa: E731
    return case_of([(whole(asked), whole(answer)) for asked, answer in answered(directory, rows)], batch=0)


def split(seed, directory):
    chance = start(seed)
    net = Net(chance)
    layer = net.dense(6, 12)
    acts = [tf.nn.swish, tf.nn.softsign, tf.nn.softplus, tf.abs]
    serve = lambda x: {f"part{at}": act(part) for at, (act, part) in enumerate(zip(acts, tf.split(layer(x), 4, 1)))}  # noqa: E731
    return function(net, directory, columns(x=floats(chance, 6)), serve, spec("x", tf.float32, 6))


def rolled(seed, directory):
    """Sums, orders and choices along a row."""
    chance = start(seed)

    def serve(x):
        total = tf.cumsum(x, 1)
        return {"total": total, "sorted": tf.sort(x, 1), "order": tf.argsort(x, 1), "chosen": tf.where(x > 0, x, total), "padded": tf.pad(x, [[0, 0], [0, 2]], constant_values=7.0)}

    return function(Net(chance), directory, columns(x=floats(chance, 4, count=6) + floats(chance, 7, count=6)), serve, spec("x", tf.float32, None))


def algebra(seed, directory):
    """FP64: equations, determinants, products and a spectrum."""
    chance = start(seed)

    def serve(a, b):
        full = tf.matmul(a, a, transpose_b=True) + tf.eye(3, dtype=tf.float64)
        spectrum = tf.signal.fft(tf.cast(b, tf.complex128))
        return {"solved": tf.linalg.cholesky_solve(tf.linalg.cholesky(full), b[..., None])[..., 0], "size": tf.linalg.det(full)[:, None], "product": tf.einsum("nij,nj->ni", a, b), "power": tf.abs(spectrum)}

    rows = columns(a=[x.astype(np.float64) for x in floats(chance, 3, 3)], b=[x.astype(np.float64) for x in floats(chance, 3)])
    return function(Net(chance), directory, rows, serve, spec("a", tf.float64, 3, 3), spec("b", tf.float64, 3))


def compiled(seed, directory):
    """A function that XLA compiles, of any number of rows."""
    chance = start(seed)
    net = Net(chance)
    one, two = net.dense(5, 12), net.dense(12, 4)
    inner = tf.function(lambda x: two(tf.nn.gelu(one(x))), jit_compile=True)
    return function(net, directory, columns(x=floats(chance, 5)), lambda x: {"y": inner(x)}, spec("x", tf.float32, 5))


# Configurations.


def small(chance, directory):
    net = Net(chance)
    layer = net.dense(5, 4)
    net.save(directory, serving_default=(lambda x: {"y": tf.tanh(layer(x)), "sum": tf.reduce_sum(x, 1, keepdims=True)}, [spec("x", tf.float32, 5)]))
    return answered(directory, columns(x=floats(chance, 5)))


def without_configuration(seed, directory):
    """Inputs, outputs, and batches of four rows are read from the file."""
    return case_of(small(start(seed), directory), batch=4, text=None)


def batch_alone(seed, directory):
    """Inputs and outputs are read from the file."""
    return case_of(small(start(seed), directory), batch=6, text=f'backend: "tensorflow"\nmax_batch_size: 6\n{ONE}')


def one_output(seed, directory):
    """Some of the outputs, and no inputs: these are read from the file."""
    questions = [(asked, {"sum": answer["sum"]}) for asked, answer in small(start(seed), directory)]
    return case_of(questions, text=f'platform: "tensorflow_savedmodel"\nmax_batch_size: 8\n{tensors("output", [("sum", "FP32", [1])])}{ONE}')


def unbatched(seed, directory):
    """Dims with a first one: clients send it, and the model does not batch."""
    chance = start(seed)
    net = Net(chance)
    layer = net.dense(5, 3)
    rows = columns(x=[chance.standard_normal((1 + at, 5)).astype(np.float32) for at in range(6)])
    return function(net, directory, rows, lambda x: {"y": layer(x)}, spec("x", tf.float32, 5), batch=0)


def fixed(seed, directory):
    """A batch of 1 in the file itself."""
    chance = start(seed)
    net = Net(chance)
    kernel, layer = net.weights(3, 3, 3, 4, of=27), net.dense(4, 5)
    serve = lambda image: {"logits": layer(tf.reduce_mean(tf.nn.relu(tf.nn.conv2d(image, kernel, 1, "SAME")), [1, 2]))}  # noqa: E731
    return function(net, directory, columns(image=floats(chance, 8, 8, 3)), serve, tf.TensorSpec([1, 8, 8, 3], tf.float32, name="image"), batch=0)


def reshaped(seed, directory):
    """Clients send and get a row as it is not in the file."""
    chance = start(seed)
    net = Net(chance)
    layer = net.dense(3, 4)
    net.save(directory, serving_default=(lambda x: {"y": layer(x)}, [spec("x", tf.float32, 2, 3)]))
    flat = lambda side: {name: a.reshape(1, -1) for name, a in side.items()}  # noqa: E731
    made = case_of([(flat(asked), flat(answer)) for asked, answer in answered(directory, columns(x=floats(chance, 2, 3)))])
    made.config = made.config.replace("dims: [ 6 ]", "dims: [ 6 ] reshape { shape: [ 2, 3 ] }").replace("dims: [ 8 ]", "dims: [ 8 ] reshape { shape: [ 2, 4 ] }")
    return made


def instances(seed, directory):
    """Two processes of one model, which Triton has without a group as well."""
    return case_of(small(start(seed), directory), more=())


def xla(seed, directory):
    """XLA by the configuration."""
    return case_of(small(start(seed), directory), more=[ONE, "optimization { graph { level: 1 } }\n"])


# TensorFlow 1.


def simple_save(seed, directory):
    """Placeholders, variables, and the shortest way to save them."""
    chance = start(seed)
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, 6], "x")
        weight = v1.get_variable("weight", initializer=chance.standard_normal((6, 3)).astype(np.float32), use_resource=seed % 2 == 0)
        y = tf.nn.softmax(tf.matmul(x, weight))
        session.run(v1.global_variables_initializer())
        v1.saved_model.simple_save(session, os.path.join(directory, FILE), {"x": x}, {"y": y})
        return case_of([({"x": a}, {"y": session.run(y, {x: a})}) for a in floats(chance, 6)])


def signature(inputs, outputs, method):
    info = v1.saved_model.build_tensor_info
    return v1.saved_model.build_signature_def({k: info(v) for k, v in inputs.items()}, {k: info(v) for k, v in outputs.items()}, method)


def classifier(seed, directory):
    """As estimators write them: `tf.train.Example` in, names of classes and their scores out, by a signature of that name, and tables that an operation fills."""
    chance = start(seed)
    with tf.Graph().as_default(), v1.Session() as session:
        examples = v1.placeholder(tf.string, [None], "examples")
        rows = v1.parse_example(examples, {"age": FEATURES["age"]})
        weight = v1.get_variable("weight", initializer=chance.standard_normal((2, 3)).astype(np.float32))
        scores = tf.nn.softmax(tf.matmul(rows["age"], weight))
        table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(tf.range(3, dtype=tf.int64), tf.constant(WORDS[:3])), "UNK")
        classes = table.lookup(tf.cast(tf.math.top_k(scores, 3).indices, tf.int64))
        session.run([v1.global_variables_initializer(), v1.tables_initializer()])
        signatures = {"classify": signature({"inputs": examples}, {"classes": classes, "scores": scores}, "tensorflow/serving/classify")}
        builder = v1.saved_model.Builder(os.path.join(directory, FILE))
        builder.add_meta_graph_and_variables(session, ["serve"], signatures, main_op=v1.tables_initializer())
        builder.save()
        files = texts(*([example(chance.standard_normal(2), None, [1])] for _ in range(ROWS)))
        questions = [({"inputs": a}, dict(zip(("classes", "scores"), session.run([classes, scores], {examples: a})))) for a in files]
        return case_of(questions, more=[ONE, parameters(TF_SIGNATURE_DEF="classify")])


def tagged(seed, directory):
    """A tag, a signature and names of inputs and outputs of its own, and batch norm that is told that nothing is trained."""
    chance = start(seed)
    with tf.Graph().as_default(), v1.Session() as session:
        image = v1.placeholder(tf.float32, [None, 8, 8, 3], "images")
        kernel = v1.get_variable("kernel", initializer=(chance.standard_normal((3, 3, 3, 4)) / 4).astype(np.float32))
        is_training = v1.placeholder_with_default(False, [], "is_training")
        x = tf.nn.conv2d(image, kernel, 2, "SAME")
        x = v1.cond(is_training, lambda: tf.nn.dropout(x, 0.5), lambda: tf.identity(x))
        features = tf.reduce_mean(tf.nn.relu(x), [1, 2])
        session.run(v1.global_variables_initializer())
        builder = v1.saved_model.Builder(os.path.join(directory, FILE))
        signatures = {"image_feature_vector": signature({"images:0": image}, {"default": features, "block/1": x}, "extract")}
        builder.add_meta_graph_and_variables(session, ["hub", "serve"][seed % 2 : seed % 2 + 1], signatures)
        builder.save()
        questions = [({"images:0": a}, dict(zip(("default", "block/1"), session.run([features, x], {image: a})))) for a in floats(chance, 8, 8, 3)]
        return case_of(questions, more=[ONE, parameters(TF_GRAPH_TAG=["hub", "serve"][seed % 2])])


def begun(seed, directory):
    """Variables that no saver keeps, and an operation of a file that fills them."""
    chance = start(seed)
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, 4], "x")
        local = v1.get_variable("local", initializer=tf.range(4.0) + seed, collections=[v1.GraphKeys.LOCAL_VARIABLES])
        kept_one = v1.get_variable("kept", initializer=3.0)
        y = x * kept_one + local
        v1.group(local.initializer, name="begin")
        session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
        builder = v1.saved_model.Builder(os.path.join(directory, FILE))
        builder.add_meta_graph_and_variables(session, ["serve"], {"serving_default": signature({"x": x}, {"y": y}, "predict")})
        builder.save()
        with open(os.path.join(directory, "begin.json"), "w") as to:
            json.dump({"init_ops": ["begin"]}, to)
        return case_of([({"x": a}, {"y": session.run(y, {x: a})}) for a in floats(chance, 4)], more=[ONE, parameters(TF_INIT_OPS_FILE="begin.json")])


#: Those that differ most come first; a run of fewer models has these.
KINDS = [
    resnet, bert, changed, mlp, classifier, without_configuration, lstm, whole_numbers, detector, wide_and_deep, tables, vgg, mobilenet, densenet, inception, efficientnet, unet, ssd,
    suppressed, video, pictures, gpt, translator, rnn, gru, sound, wavenet, written, vectorized, hashed, vocabulary, cut, parsed, dlrm, towers, autoencoder, several, real_numbers,
    mixed, unique, nonzero, numbers, scalars, simple_save, tagged, begun, batch_alone, one_output, unbatched, fixed, reshaped, instances, compiled, xla, weather, resized, generator, vit,
    experts, graph, quantized, split, rolled, algebra,
]  # fmt: skip

if __name__ == "__main__":
    tf.config.threading.set_intra_op_parallelism_threads(1)
    main(KINDS, tf.__version__)
