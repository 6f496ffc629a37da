"""Models of PyTorch for the suite `frameworks`: nets as those of torchvision and small ones of other kinds, with random weights. See case.py."""
import math
import os
from typing import Dict, List, Optional, Tuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from case import Bf16, Case, described, main, parameters

ROWS = 10


def numpy(value):
    """What a client gets of a value."""
    if isinstance(value, list):
        return np.array(value)
    return Bf16(value.view(torch.int16).numpy().view(np.uint16)) if value.dtype == torch.bfloat16 else value.numpy()


def start(seed):
    """The same weights whatever was made before."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    return np.random.default_rng(seed)


def alive(module):
    """Evaluates, with statistics of batch norms as training leaves them, and weights that do not fade from layer to layer."""
    for part in module.modules():
        if isinstance(part, (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)):
            nn.init.normal_(part.running_mean, 0, 0.2)
            nn.init.uniform_(part.running_var, 0.5, 1.5)
            nn.init.uniform_(part.weight, 0.7, 1.3)
        elif isinstance(part, (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)):
            nn.init.kaiming_normal_(part.weight, nonlinearity="relu")
    return module.eval()


def answered(module, inputs, outputs, rows, keys=None):
    """Questions of rows of tensors in the order of the inputs, and what the module returns for each, alone."""
    questions = []
    for row in rows:
        # A model may change its inputs.
        given = [x.clone() if isinstance(x, Tensor) else list(x) for x in row]
        with torch.inference_mode():
            returned = module({name: x for name, x in zip(inputs, given)}) if keys else module(*given)
        if isinstance(returned, dict):
            returned = [returned[name] for name in outputs]
        returned = [returned] if isinstance(returned, Tensor) else returned
        if not isinstance(returned, (list, tuple)) or (returned and isinstance(returned[0], str)):
            returned = [returned]
        asked = {name: numpy(x) if isinstance(x, Tensor) else np.array(x) for name, x in zip(inputs, row)}
        questions.append((asked, {name: numpy(x) for name, x in zip(outputs, returned)}))
    return questions


def case(directory, module, rows, inputs=None, outputs=1, batch=8, traced=False, keys=False, more=(), write=None, **options):
    """A TorchScript file of the module, unless `write` writes other files. Answers are those of the file, read again: a script has strings of its own."""
    inputs = inputs or [f"INPUT__{i}" for i in range(len(rows[0]))]
    outputs = [f"OUTPUT__{i}" for i in range(outputs)] if isinstance(outputs, int) else outputs
    if write is not None:
        read = write(module)
    else:
        file = os.path.join(directory, "model.pt")
        (torch.jit.trace(module, tuple(rows[0])) if traced else torch.jit.script(module)).save(file)
        read = torch.jit.load(file)
    questions = answered(read, inputs, outputs, rows, keys)
    return Case(questions, described("pytorch", questions, batch, *more), batch, **options)


def images(size, channels=3, count=ROWS):
    return [(torch.randn(1, channels, size, size),) for _ in range(count)]


# Nets of images.


class Plain(nn.Module):
    """Convolutions and pools in a row, as VGG."""

    def __init__(self, width, stages, classes):
        super().__init__()
        layers: List[nn.Module] = []
        channels = 3
        for stage in range(stages):
            layers += [nn.Conv2d(channels, width << stage, 3, padding=1), nn.BatchNorm2d(width << stage), nn.ReLU(inplace=True), nn.MaxPool2d(2)]
            channels = width << stage
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Flatten(), nn.LazyLinear(64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x))


def vgg(seed, directory):
    start(seed)
    module = Plain(8 + seed % 3, 2 + seed % 2, 10).eval()
    rows = images(32)
    module(rows[0][0])
    return case(directory, alive(module), rows, traced=seed % 2 == 0, batch=4 + seed % 5)


class Block(nn.Module):
    def __init__(self, before, after, stride):
        super().__init__()
        self.a = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.norm_a = nn.BatchNorm2d(after)
        self.b = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norm_b = nn.BatchNorm2d(after)
        self.short = nn.Identity() if before == after and stride == 1 else nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm_a(self.a(x)))
        return F.relu(self.norm_b(self.b(y)) + self.short(x))


class Residual(nn.Module):
    def __init__(self, width, depths, classes):
        super().__init__()
        layers: List[nn.Module] = [nn.Conv2d(3, width, 3, 1, 1), nn.BatchNorm2d(width), nn.ReLU()]
        before = width
        for stage, depth in enumerate(depths):
            for at in range(depth):
                layers.append(Block(before, width << stage, 2 if at == 0 and stage else 1))
                before = width << stage
        self.layers = nn.Sequential(*layers)
        self.fc = nn.Linear(before, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.layers(x).mean([2, 3]))


def resnet(seed, directory):
    start(seed)
    # Any size of image, which are batches of their own.
    rows = images(24, count=6) + images(32, count=6)
    return case(directory, alive(Residual(8, [1, 1, 2] if seed % 2 else [2, 2], 10)), rows)


class Mobile(nn.Module):
    """Depthwise convolutions, as MobileNet."""

    def __init__(self, width):
        super().__init__()
        layers: List[nn.Module] = [nn.Conv2d(3, width, 3, 2, 1), nn.ReLU6()]
        for stage in range(3):
            c = width << stage
            layers += [nn.Conv2d(c, c, 3, 1, 1, groups=c), nn.BatchNorm2d(c), nn.ReLU6(), nn.Conv2d(c, 2 * c, 1), nn.BatchNorm2d(2 * c), nn.Hardswish()]
        self.layers = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width << 3, 12))

    def forward(self, x):
        return self.layers(x)


def mobilenet(seed, directory):
    start(seed)
    return case(directory, alive(Mobile(6 + seed % 4)), images(32), traced=True, more=[parameters(INTRA_OP_THREAD_COUNT=1)])


class Dense(nn.Module):
    def __init__(self, growth, depth):
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv2d(3 + growth * i, growth, 3, padding=1) for i in range(depth)])
        self.fc = nn.Linear(3 + growth * depth, 7)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.cat([x, F.relu(layer(x))], 1)
        return F.log_softmax(self.fc(F.adaptive_max_pool2d(x, 1).flatten(1)), 1)


def densenet(seed, directory):
    start(seed)
    return case(directory, alive(Dense(4 + seed % 3, 4)), images(20))


class Inception(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(3, 6, 1)
        self.b = nn.Sequential(nn.Conv2d(3, 6, (1, 5), padding=(0, 2)), nn.Conv2d(6, 6, (5, 1), padding=(2, 0)))
        self.c = nn.Conv2d(3, 6, 3, padding=2, dilation=2)
        self.fc = nn.Linear(21, 9)
        self.aux = nn.Linear(6, 9)

    def forward(self, x: Tensor) -> Tuple[Tensor, Tensor]:
        a = torch.relu(self.a(x))
        y = torch.cat([a, torch.relu(self.b(x)), torch.relu(self.c(x)), F.avg_pool2d(x, 3, 1, 1)], 1)
        return self.fc(y.amax([2, 3])), self.aux(a.amax([2, 3]))


def inception(seed, directory):
    start(seed)
    return case(directory, alive(Inception()), images(16 + seed % 8), outputs=2)


class Excited(nn.Module):
    """Channels weighed by squeeze and excitation, group norm, GELU."""

    def __init__(self, channels):
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 4, 4)
        self.norm = nn.GroupNorm(2, channels)
        self.squeeze = nn.Sequential(nn.Linear(channels, 4), nn.SiLU(), nn.Linear(4, channels), nn.Sigmoid())
        self.conv = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.fc = nn.Linear(channels, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = F.gelu(self.conv(self.norm(self.stem(x))))
        return self.fc((y * self.squeeze(y.mean([2, 3]))[:, :, None, None]).amax([2, 3]))


def convnext(seed, directory):
    start(seed)
    return case(directory, alive(Excited(8 + 4 * (seed % 3))), images(32))


class UNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.down = nn.Conv2d(3, width, 3, padding=1)
        self.deep = nn.Conv2d(width, 2 * width, 3, padding=1)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.out = nn.Conv2d(2 * width, 4, 1)

    def forward(self, x: Tensor) -> Tuple[Tensor, Tensor]:
        a = torch.relu(self.down(x))
        b = self.up(torch.relu(self.deep(F.max_pool2d(a, 2))))
        y = self.out(torch.cat([a, b], 1))
        return y, y.argmax(1)


def unet(seed, directory):
    start(seed)
    return case(directory, alive(UNet(6)), images(16, count=6) + images(20, count=6), outputs=["LOGITS__0", "MASK__1"], batch=5)


class Detector(nn.Module):
    """Boxes, scores and classes of the best places."""

    def __init__(self):
        super().__init__()
        self.body = nn.Conv2d(3, 8, 5, 2)
        self.head = nn.Conv2d(8, 4 + 3, 1)

    def forward(self, images: Tensor) -> Dict[str, Tensor]:
        y = self.head(torch.relu(self.body(images))).flatten(2).transpose(1, 2)
        scores, classes = y[:, :, 4:].softmax(2).max(2)
        best, at = scores.topk(5, dim=1)
        boxes = torch.gather(y[:, :, :4], 1, at[:, :, None].expand(-1, -1, 4))
        return {"boxes": boxes, "scores": best, "labels": torch.gather(classes, 1, at).to(torch.int32)}


def detector(seed, directory):
    start(seed)
    return case(directory, alive(Detector()), images(24), inputs=["images"], outputs=["boxes", "scores", "labels"])


class Video(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv3d(2, 6, 3, padding=1), nn.ReLU(), nn.MaxPool3d(2), nn.Conv3d(6, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 2 * 4 * 4, 6))

    def forward(self, x):
        return self.layers(x)


def video(seed, directory):
    start(seed)
    return case(directory, alive(Video()), [(torch.randn(1, 2, 8, 12, 12),) for _ in range(ROWS)], traced=True, batch=3)


class Patches(nn.Module):
    """A transformer of the patches of an image."""

    def __init__(self, width, heads):
        super().__init__()
        self.patch = nn.Conv2d(3, width, 8, 8)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.place = nn.Parameter(torch.randn(1, 17, width))
        self.body = Encoder(width, heads, 2)
        self.fc = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        y = self.patch(x).flatten(2).transpose(1, 2)
        y = torch.cat([self.token.expand(y.size(0), -1, -1), y], 1) + self.place
        return self.fc(self.body(y, None)[:, 0])


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, mask: Optional[Tensor]) -> Tensor:
        rows, length, width = x.shape
        q, k, v = self.qkv(x).view(rows, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        weights = q @ k.transpose(2, 3) / math.sqrt(width // self.heads)
        if mask is not None:
            weights = weights.masked_fill(mask == 0, -1e9)
        return self.out((weights.softmax(3) @ v).transpose(1, 2).reshape(rows, length, width))


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attention = Attention(width, heads)
        self.one, self.two = nn.LayerNorm(width), nn.LayerNorm(width)
        self.wide = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor, mask: Optional[Tensor]) -> Tensor:
        x = x + self.attention(self.one(x), mask)
        return x + self.wide(self.two(x))


class Encoder(nn.Module):
    def __init__(self, width, heads, depth):
        super().__init__()
        self.layers = nn.ModuleList([Layer(width, heads) for _ in range(depth)])

    def forward(self, x: Tensor, mask: Optional[Tensor]) -> Tensor:
        for layer in self.layers:
            x = layer(x, mask)
        return x


def vit(seed, directory):
    start(seed)
    return case(directory, alive(Patches(16 + 8 * (seed % 3), 4)), images(32))


# Texts and sequences.


class Bert(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.words, self.places = nn.Embedding(100, width), nn.Embedding(32, width)
        self.body = Encoder(width, 4, depth)
        self.norm = nn.LayerNorm(width)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tuple[Tensor, Tensor]:
        x = self.words(input_ids) + self.places(torch.arange(input_ids.size(1)))
        y = self.norm(self.body(x, attention_mask[:, None, None, :]))
        weight = attention_mask[:, :, None].to(y.dtype)
        return y, (y * weight).sum(1) / weight.sum(1)


def tokens(chance, length, real):
    mask = torch.zeros(1, length, dtype=torch.int64)
    mask[:, :real] = 1
    return torch.from_numpy(chance.integers(0, 100, (1, length))), mask


def bert(seed, directory):
    chance = start(seed)
    rows = [tokens(chance, length, length - at % 3) for length in (6, 11) for at in range(6)]
    return case(directory, alive(Bert(16, 1 + seed % 3)), rows, inputs=["input_ids", "attention_mask"], outputs=["last_hidden_state__0", "pooled__1"])


class Causal(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 24)
        self.body = Encoder(24, 3, 2)
        self.head = nn.Linear(24, 50)

    def forward(self, ids: Tensor) -> Tuple[Tensor, Tensor]:
        length = ids.size(1)
        logits = self.head(self.body(self.words(ids.long()), torch.ones(length, length).tril()))
        return logits, logits[:, -1].argmax(1, keepdim=True)


def gpt(seed, directory):
    chance = start(seed)
    rows = [(torch.from_numpy(chance.integers(0, 50, (1, length), np.int32)),) for length in (4, 9) for _ in range(6)]
    return case(directory, alive(Causal()), rows, outputs=["logits__0", "next__1"])


class Recurrent(nn.Module):
    def __init__(self, kind, inputs, width, layers, both):
        super().__init__()
        self.rnn = kind(inputs, width, layers, batch_first=True, bidirectional=both)
        self.fc = nn.Linear(width * (2 if both else 1), 4)

    def forward(self, x: Tensor) -> Tuple[Tensor, Tensor]:
        y = self.rnn(x)[0]
        return y, self.fc(y[:, -1])


def lstm(seed, directory):
    start(seed)
    rows = [(torch.randn(1, length, 5),) for length in (3, 7) for _ in range(6)]
    return case(directory, alive(Recurrent(nn.LSTM, 5, 8 + seed % 4, 1 + seed % 2, False)), rows, outputs=2)


def gru(seed, directory):
    start(seed)
    rows = [(torch.randn(1, 6, 5),) for _ in range(ROWS)]
    return case(directory, alive(Recurrent(nn.GRU, 5, 6, 1, True)), rows, outputs=2, traced=True)


def rnn(seed, directory):
    start(seed)
    return case(directory, alive(Recurrent(nn.RNN, 3, 7, 2, False)), [(torch.randn(1, 5, 3),) for _ in range(ROWS)], outputs=2, batch=16)


class Dilated(nn.Module):
    """Sound to the chance of letters, as wav2letter."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*[part for i in range(3) for part in (nn.Conv1d(1 if i == 0 else 8, 8, 3, dilation=2**i, padding=2**i), nn.BatchNorm1d(8), nn.LeakyReLU(0.1))])
        self.head = nn.Conv1d(8, 5, 9, 4)

    def forward(self, sound: Tensor) -> Tensor:
        return self.head(self.layers(sound[:, None])).transpose(1, 2)


def audio(seed, directory):
    start(seed)
    return case(directory, alive(Dilated()), [(torch.randn(1, length),) for length in (64, 90) for _ in range(6)])


# Numbers, several inputs and outputs, datatypes.


def mlp(seed, directory):
    start(seed)
    sizes = [6, 20, 16, 3][: 3 + seed % 2]
    layers = [part for a, b in zip(sizes, sizes[1:]) for part in (nn.Linear(a, b), [nn.Tanh(), nn.ELU(), nn.Softplus()][seed % 3])]
    return case(directory, alive(nn.Sequential(*layers)), [(torch.randn(1, 6),) for _ in range(ROWS)], traced=True, batch=16)


class Recommender(nn.Module):
    """Wide and deep: ids of several fields, a bag of ids, and numbers."""

    def __init__(self):
        super().__init__()
        self.fields = nn.ModuleList([nn.Embedding(20, 4) for _ in range(3)])
        self.bag = nn.EmbeddingBag(30, 4)
        self.deep = nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, fields: Tensor, history: Tensor, numbers: Tensor) -> Tensor:
        parts = [self.bag(history), numbers]
        for i, table in enumerate(self.fields):
            parts.append(table(fields[:, i]))
        return torch.sigmoid(self.deep(torch.cat(parts, 1)))


def recommender(seed, directory):
    chance = start(seed)
    rows = [(torch.from_numpy(chance.integers(0, 20, (1, 3))), torch.from_numpy(chance.integers(0, 30, (1, 5))), torch.randn(1, 4)) for _ in range(ROWS)]
    return case(directory, alive(Recommender()), rows, inputs=["fields", "history", "numbers"])


class Pair(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 4))

    def forward(self, left: Tensor, right: Tensor) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
        a, b = self.body(left), self.body(right)
        return F.cosine_similarity(a, b)[:, None], a, b, (a - b).abs().sum(1) > 2


def siamese(seed, directory):
    start(seed)
    rows = [(torch.randn(1, 8), torch.randn(1, 8)) for _ in range(ROWS)]
    return case(directory, alive(Pair(12)), rows, inputs=["left", "right"], outputs=4)


class Coder(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Linear(10, 2 * 3), nn.Linear(3, 10)

    def forward(self, x: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        mean, spread = self.down(x).chunk(2, 1)
        return torch.tanh(self.up(mean)), mean, spread.exp()


def autoencoder(seed, directory):
    start(seed)
    return case(directory, alive(Coder()), [(torch.randn(1, 10),) for _ in range(ROWS)], outputs=3, batch=32)


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.experts = nn.Linear(6, 4), nn.ModuleList([nn.Linear(6, 5) for _ in range(4)])

    def forward(self, x: Tensor) -> Tensor:
        all_of: List[Tensor] = []
        for expert in self.experts:
            all_of.append(expert(x))
        return (torch.stack(all_of, 1) * self.gate(x).softmax(1)[:, :, None]).sum(1)


def experts(seed, directory):
    start(seed)
    return case(directory, alive(Experts()), [(torch.randn(1, 6),) for _ in range(ROWS)])


class Graph(nn.Module):
    """Convolution over a graph: any number of nodes."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        weights = edges.to(nodes.dtype)
        weights = weights / weights.sum(2, keepdim=True).clamp(min=1)
        return weights @ self.b(torch.relu(weights @ self.a(nodes)))


def graph(seed, directory):
    chance = start(seed)
    rows = [(torch.randn(1, n, 4), torch.from_numpy(chance.random((1, n, n)) < 0.4)) for n in (4, 6) for _ in range(6)]
    return case(directory, alive(Graph()), rows, inputs=["nodes", "edges"])


class Integers(nn.Module):
    def forward(
        self, a: Tensor, b: Tensor, c: Tensor, d: Tensor, e: Tensor, f: Tensor,
    ) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
        return a + 1, b // 2, c * 2, d.cumsum(1), e.flip(1), f ^ True


def integers(seed, directory):
    chance = start(seed)
    kinds = [np.uint8, np.int8, np.int16, np.int32, np.int64]
    rows = [(*(torch.from_numpy(chance.integers(0, 50, (1, 3)).astype(k)) for k in kinds), torch.from_numpy(chance.random((1, 3)) < 0.5)) for _ in range(ROWS)]
    return case(directory, Integers().eval(), rows, inputs=list("abcdef"), outputs=6)


def floats(seed, directory):
    """FP64, FP16 and BF16 in turn."""
    start(seed)
    kind = [torch.float64, torch.float16, torch.bfloat16][seed % 3]
    module = alive(nn.Sequential(nn.Linear(7, 16), nn.ReLU(), nn.Linear(16, 5))).to(kind)
    return case(directory, module, [(torch.randn(1, 7).to(kind),) for _ in range(ROWS)])


class Mixed(nn.Module):
    def forward(self, half: Tensor, brain: Tensor, double: Tensor) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
        return half * 2, brain * 2, double * 2, half.float() + brain.float() + double.float()


def mixed(seed, directory):
    start(seed)
    rows = [(torch.randn(1, 3).half(), torch.randn(1, 3).bfloat16(), torch.randn(1, 3).double()) for _ in range(ROWS)]
    return case(directory, Mixed().eval(), rows, inputs=["half", "brain", "double"], outputs=4)


class Texts(nn.Module):
    def forward(self, texts: List[str]) -> Tuple[List[str], Tensor]:
        changed: List[str] = []
        lengths: List[int] = []
        for text in texts:
            changed.append(text.upper() + "!")
            lengths.append(len(text))
        return changed, torch.tensor(lengths)


WORDS = ["one", "zwei", "трое", "四", "cinq", "six🙂", "sept", "acht", "nine and nine", "d"]


def strings(seed, directory):
    """A list of texts, without a batch."""
    chance = start(seed)
    rows = [([WORDS[i] for i in chance.integers(0, len(WORDS), 1 + at)],) for at in range(6)]
    return case(directory, Texts().eval(), rows, inputs=["texts"], outputs=["LOUD__0", "LENGTH__1"], batch=0)


class Same(nn.Module):
    def forward(self, texts: List[str]) -> List[str]:
        changed: List[str] = []
        for text in texts:
            changed.append("<" + text + ">")
        return changed


def rows_of_strings(seed, directory):
    """Each row of a batch has one text."""
    start(seed)
    made = case(directory, Same().eval(), [([word],) for word in WORDS], inputs=["texts"], outputs=["MARKED__0"], batch=0)
    rows = [({"texts": q["texts"][None]}, {"MARKED__0": a["MARKED__0"][None]}) for q, a in made.questions]
    return Case(rows, described("pytorch", rows, 8), 8)


class Keys(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Dict[str, Tensor]) -> Dict[str, Tensor]:
        return {"sum": self.layer(x["left"] + x["right"]), "product": x["left"] * x["right"]}


def dictionary(seed, directory):
    start(seed)
    rows = [(torch.randn(1, 4), torch.randn(1, 4)) for _ in range(ROWS)]
    return case(directory, alive(Keys()), rows, inputs=["left", "right"], outputs=["product", "sum"], keys=True)


class Loops(nn.Module):
    """Steps and a branch that depend on the values, which only a script can have."""

    def __init__(self):
        super().__init__()
        self.step = nn.Linear(3, 3)

    def forward(self, x: Tensor, times: Tensor) -> Tensor:
        for at in range(int(times.max())):
            moved = torch.tanh(self.step(x))
            x = torch.where(times[:, :1] > at, moved, x)
        return x


def loops(seed, directory):
    start(seed)
    rows = [(torch.randn(1, 3), torch.tensor([[1 + at % 4]], dtype=torch.int32)) for at in range(ROWS)]
    return case(directory, alive(Loops()), rows)


def any_image(seed, directory):
    """No batch: each request is an image of a size of its own."""
    start(seed)
    module = alive(nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 1, 1)))
    rows = [(torch.randn(1, 3, 8 + at, 20 - at),) for at in range(6)]
    return case(directory, module, rows, batch=0, traced=False)


def instances(seed, directory):
    """Two processes of one model, which wait in turn."""
    start(seed)
    module = alive(nn.Sequential(nn.Linear(5, 12), nn.ReLU(), nn.Linear(12, 4)))
    return case(directory, module, [(torch.randn(1, 5),) for _ in range(ROWS)], more=["instance_group [ { count: 2 kind: KIND_CPU } ]\n"])


CLASS = '''"""A class of the user, with weights in model.pt."""
import torch


class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(6, {width})
        self.second = torch.nn.Linear({width}, 4)

    def forward(self, x):
        return self.second(torch.nn.functional.silu(self.first(x)))
'''


def python_class(seed, directory):
    start(seed)
    text = CLASS.format(width=9 + seed % 5)
    names = {}
    exec(text, names)

    def write(module):
        with open(os.path.join(directory, "model.py"), "w") as to:
            to.write(text)
        torch.save(module.state_dict(), os.path.join(directory, "model.pt"))
        return module

    return case(directory, alive(names["Classifier"]()), [(torch.randn(1, 6),) for _ in range(ROWS)], write=write)


def package(seed, directory):
    """A package of AOT-Inductor, which the compiler of this machine makes."""
    start(seed)
    module = alive(nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)))

    def write(module):
        rows = {0: torch.export.Dim("rows", min=1, max=64)}
        program = torch.export.export(module, (torch.randn(4, 5),), dynamic_shapes=({**rows},))
        return torch._inductor.aoti_load_package(torch._inductor.aoti_compile_and_package(program, package_path=os.path.join(directory, "model.pt2")))

    made = case(directory, module, [(torch.randn(1, 5),) for _ in range(ROWS)], write=write)
    made.config = made.config.replace('backend: "pytorch"', 'platform: "torch_aoti"')
    return made


KINDS = [
    resnet, bert, strings, mlp, vgg, lstm, integers, mobilenet, siamese, densenet, gpt, floats, inception, gru, dictionary, convnext, recommender, unet, detector,
    rnn, video, vit, audio, autoencoder, experts, graph, mixed, rows_of_strings, loops, any_image, instances, python_class, package,
]  # fmt: skip

if __name__ == "__main__":
    main(KINDS, torch.__version__)
