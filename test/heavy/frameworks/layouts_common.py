"""What the scripts of the layouts share. Nothing of the server is imported here."""
import importlib.util
import os
import sys
import types

from case import Case

HERE = os.path.dirname(os.path.abspath(__file__))
LAYOUTS_DIRECTORY = os.path.join(HERE, "layouts")


def version(directory, model):
    """The directory of the model's only version, which it makes."""
    made = os.path.join(directory, model, "1")
    os.makedirs(made, exist_ok=True)
    return made


def separate(questions):
    """A case whose questions are whole requests: pairs of the inputs and the expected outputs."""
    return Case(questions, None, 0)


def code(layout, model):
    """The module `model.py` of a layout's Python model. Only its `TritonPythonModel` needs `pb_utils`."""
    sys.modules.setdefault("triton_python_backend_utils", types.ModuleType("triton_python_backend_utils"))
    path = os.path.join(LAYOUTS_DIRECTORY, layout, model, "1", "model.py")
    spec = importlib.util.spec_from_file_location(f"{layout}_{model.replace('-', '_')}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fill(directory, model, **values):
    """Replaces `#name` in a configuration by the value, as the script of a project does that publishes templates."""
    path = os.path.join(directory, model, "config.pbtxt")
    with open(path) as read:
        text = read.read()
    for name, value in values.items():
        text = text.replace(f"#{name}", value)
    with open(path, "w") as to:
        to.write(text)
