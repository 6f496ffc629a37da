"""Exports the model of a hub's folder to ONNX: `python nereid_text_export.py FOLDER`.

Writes FOLDER/onnx/model.onnx, once ONNX Runtime has answered two texts like torch. `nereid init FOLDER --export` runs
it in the user's interpreter, which needs torch, transformers, onnx and onnxruntime. Nothing is downloaded, and no code
of the folder runs.
"""
import importlib.util
import inspect
import os
import sys
import tempfile
import warnings

PACKAGES = ("torch", "transformers", "onnx", "onnxruntime")
TEXTS = ["A first text.", "Another text, which is longer than the first one."]
# Two implementations of a graph differ by rounding. Values of token states are a few units.
DIFFERENCE_MAX = 1e-3


def export(folder):
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        sys.exit(f"{sys.executable} has no {' and no '.join(missing)}: {sys.executable} -m pip install {' '.join(missing)}")
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    # Those of a trace: whether it followed the model is compared below.
    warnings.simplefilter("ignore")
    config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    generates = [name for name in config.architectures or [] if name.endswith(("ForCausalLM", "ForConditionalGeneration"))]
    if generates and not os.path.exists(os.path.join(folder, "modules.json")):
        sys.exit(f"{folder} is {generates[0]}, a language model, and no file says that it embeds: the backend vllm runs it")
    heads = [name for name in config.architectures or [] if name.endswith("ForSequenceClassification")]
    kind, output = (transformers.AutoModelForSequenceClassification, "logits") if heads else (transformers.AutoModel, "last_hidden_state")
    # The attention of torch's own kernels has branches that a trace does not follow.
    model = kind.from_pretrained(folder, local_files_only=True, attn_implementation="eager", dtype=torch.float32)
    feeds = dict(transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)(TEXTS, padding=True, return_tensors="pt"))
    names = [name for name in inspect.signature(model.forward).parameters if name in feeds]

    class Wrapped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, *tensors):
            return getattr(self.model(**dict(zip(names, tensors))), output)

    axes = {name: {0: "batch", 1: "tokens"} for name in (*names, output)}
    if heads:
        axes[output] = {0: "batch"}
    inputs = tuple(feeds[name] for name in names)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".nereid-export-") as work, torch.no_grad():
        path = os.path.join(work, "model.onnx")
        # The export puts it back to the mode that it finds; in that of training, it has dropout.
        wrapped = Wrapped().eval()
        torch.onnx.export(wrapped, inputs, path, input_names=names, output_names=[output], dynamic_axes=axes, opset_version=17, dynamo=False)
        difference = compare(path, wrapped, dict(zip(names, inputs)))
        if not difference <= DIFFERENCE_MAX:
            sys.exit(f"the exported model differs from torch by {difference:.2g}, more than {DIFFERENCE_MAX}: it was not kept")
        target = os.path.join(folder, "onnx")
        os.makedirs(target, exist_ok=True)
        # Weights beyond 2 GiB are in files beside the graph, which must be there first.
        for name in sorted(os.listdir(work), key=lambda name: name == "model.onnx"):
            os.replace(os.path.join(work, name), os.path.join(target, name))
    print(f"{os.path.join(target, 'model.onnx')}: {output} of {type(model).__name__}, differs from torch by {difference:.1g}")


def compare(path, model, feeds):
    """The greatest difference of a value, for both texts at once and for the first one alone."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    length = int(feeds["attention_mask"][0].sum())
    greatest = 0.0
    for part in (feeds, {name: tensor[:1, :length] for name, tensor in feeds.items()}):
        expected = model(*part.values())
        (found,) = session.run(None, {name: tensor.numpy() for name, tensor in part.items()})
        if found.shape != tuple(expected.shape):
            sys.exit(f"the exported model returns the shape {found.shape}, torch {tuple(expected.shape)}: it was not kept")
        off = abs(expected.numpy() - found)
        # The states of padding mean nothing.
        greatest = max(greatest, float(off[part["attention_mask"].numpy() == 1].max() if off.ndim == 3 else off.max()))
    return greatest


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        export(sys.argv[1])
    except Exception as error:
        sys.exit(f"{sys.argv[1]} cannot be exported: {type(error).__name__}: {error}")
