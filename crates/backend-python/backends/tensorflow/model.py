"""The backend `tensorflow`: SavedModels of TensorFlow 1 and 2, run by the user's own tensorflow
(docs/spec/backends-native.md, 5).

Each instance is a process with a session that runs the graph of the SavedModel, as in Triton, so that signatures, tags,
threads and initialising operations have the same meaning. Requests of a batch run in one call; inputs are read-only
views of their memory, or of one concatenation.

Not here: GraphDef and files of Keras, which the server rejects by name before it starts a process.
"""
import json
import os
import sys

import nereid_tensorflow_model as models
import triton_python_backend_utils as pb_utils
from nereid_shared import Arrays, LoadError, Model, RequestError, framework, gpu_of, run_together


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(auto_complete_model_config):
        model = Model.to_complete(auto_complete_model_config, models.FILE)
        config = model.config
        batch = model.max_batch_size
        if config["input"] and config["output"] and batch > 0 and (batch == 1 or models.SCHEDULERS & config.keys()):
            # The file cannot add anything.
            return auto_complete_model_config
        _framework(model)
        try:
            signature = models.Signature(models.Saved(model).graph, model)
        except LoadError as error:
            raise LoadError(
                f"unable to auto-complete model configuration for '{model.name}', failed to load model: {error}"
            ) from None
        models.complete(auto_complete_model_config, model, signature)
        return auto_complete_model_config

    def initialize(self, args):
        self.model = model = Model(args)
        threads = models.threads_of(model)
        operations = _operations(model)
        self.tf = tf = _framework(model)
        for library in model.config.get("model_operations", {}).get("op_library_filename", []):
            models.attempt(tf.load_op_library, library)
        saved = models.Saved(model)
        signature = models.Signature(saved.graph, model)
        signature.compare()
        device, settings = _device_of(tf, args, model)
        settings = models.settings_of(tf, model, threads, settings)
        graph = tf.Graph()
        self.session = session = models.attempt(tf.compat.v1.Session, graph=graph, config=settings)
        with graph.as_default(), tf.device(device):
            models.attempt(saved.load, session)
        for name in operations:
            models.attempt(session.run, name)
        graph.finalize()
        inputs, outputs = model.tensors()
        self.feeds = {tensor["name"]: signature.inputs[tensor["name"]].tensor for tensor in inputs}
        self.fetches = {tensor["name"]: signature.outputs[tensor["name"]].tensor for tensor in outputs}
        self.scalar_inputs = {name for name in self.feeds if signature.inputs[name].is_scalar}
        self.scalar_outputs = {name for name in self.fetches if signature.outputs[name].is_scalar}
        # Outputs may share a tensor.
        self.fetched = list(dict.fromkeys(self.fetches.values()))
        self.call = self._callable()
        self.arrays = Arrays(model)

    def _callable(self):
        """A function of all inputs, which `Session.run` would prepare at each call at four times the cost; None if
        impossible."""
        make = getattr(self.session, "_make_callable_from_options", None)
        # Only `run` can fetch a fed tensor.
        if make is None or set(self.fetched) & set(self.feeds.values()):
            return None
        from tensorflow.core.protobuf.config_pb2 import CallableOptions

        return models.attempt(make, CallableOptions(feed=list(self.feeds.values()), fetch=self.fetched))

    def execute(self, requests):
        return run_together(self.model, requests, self._run, self.arrays)

    def _run(self, inputs):
        given = {name: array.reshape(()) if name in self.scalar_inputs else array for name, array in inputs.items()}
        try:
            if self.call is not None and len(given) == len(self.feeds):
                made = self.call(*[given[name] for name in self.feeds])
            else:
                made = self.session.run(self.fetched, {self.feeds[name]: array for name, array in given.items()})
        except Exception as error:
            raise RequestError(models.text_of(error)) from error
        values = dict(zip(self.fetched, made))
        return {
            name: [values[tensor]] if name in self.scalar_outputs else values[tensor]
            for name, tensor in self.fetches.items()
        }

    def finalize(self):
        self.session.close()


def _framework(model):
    # Its messages about the CPU at each start are not for a server's log. Its warnings are.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    return framework("tensorflow", "TensorFlow", model)


def _operations(model):
    """Names of the operations that initialise the graph, from the file that a parameter names."""
    file = model.parameter("TF_INIT_OPS_FILE")
    if not file:
        return []
    paths = [os.path.join(directory, file) for directory in (model.version_directory, model.directory)]
    path = next((path for path in paths if os.path.exists(path)), paths[-1])
    try:
        with open(path, encoding="utf-8") as text:
            names = json.load(text)["init_ops"]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError("'init_ops' is no list of names")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LoadError(
            f"parameter 'TF_INIT_OPS_FILE' of model '{model.name}': '{path}' must be JSON of the form {{\"init_ops\":"
            f' ["init"]}}: {error}'
        ) from None
    return names


def _device_of(tf, args, model):
    """`(device, settings)`: the default device of operations, and the session's settings of devices."""
    if args["model_instance_kind"] == "MODEL":
        return None, {}
    if args["model_instance_kind"] == "GPU":
        number, there = int(args["model_instance_device_id"]), len(tf.config.list_physical_devices("GPU"))
        why = None
        if number >= there:
            why = (
                "it was built without CUDA"
                if there == 0 and not tf.test.is_built_with_cuda()
                else f"it finds {there} of them"
            )
            why = f"tensorflow {tf.__version__} of {sys.executable} cannot use GPU {number} ({why})"
        if gpu_of(args, model, why, "tensorflow"):
            # The process sees no other GPU, because it would allocate memory of each.
            return "/GPU:0", {"visible": str(number)}
    return None, {"count": {"GPU": 0}}
