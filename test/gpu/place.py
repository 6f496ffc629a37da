"""
Where the parts are: a clone, or a bundle that `npm run test:gpu -- --pack` made. Both have them at the same paths below one directory, so that
nothing here asks which of the two it is.
"""
import importlib.util
import json
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
MAIN = os.path.join(ROOT, "dist/cli/main.js")
LOAD = os.path.join(ROOT, "target/release/nereid-bench")
MODELS = os.path.join(ROOT, "target/gpu/models")
COUNTER = os.path.join(ROOT, "target/gpu/counter")
PACKAGES = os.path.join(ROOT, "packages")
"""Python packages that a bundle brings."""
PROVIDER = "libonnxruntime_providers_cuda.so"
STAND_INS = os.path.join(ROOT, "test/python/device")


def node():
    """The interpreter of a bundle, or this machine's."""
    own = os.path.join(ROOT, "node/bin/node")
    return own if os.path.exists(own) else shutil.which("node")


def write_models(*names):
    """Writes the models of the rows below MODELS, or those of them that are named; they stay for the next row."""
    # A server refuses a repository that is not there, also one of which it is to load nothing.
    os.makedirs(MODELS, exist_ok=True)
    subprocess.run([node(), os.path.join(HERE, "models.mjs"), MODELS, *names], check=True, timeout=240)


def prepare(mock=None):
    """Paths of this process: the clients of the tests, and what a bundle brings behind what is installed."""
    sys.path.insert(0, os.path.join(ROOT, "test/python"))
    if mock:
        sys.path.insert(0, STAND_INS)
    if os.path.isdir(PACKAGES):
        # In front: they fit each other. numpy and CUDA are not among them.
        sys.path.insert(0, PACKAGES)
    # Where the server looks for CUDA's packages and for the interpreter of Python models.
    os.environ.setdefault("VIRTUAL_ENV", sys.prefix)
    if node() is not None:
        os.environ.setdefault("NEREID_TEST_SERVER", f"{node()} {MAIN}")


def found(name):
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def provider_directory(given):
    """Where ONNX Runtime's CUDA provider lies: as given, in the bundle, or in the wheel `onnxruntime-gpu` of this interpreter. None without one."""
    places = [given] if given else [os.path.join(ROOT, "provider")]
    if not given and found("onnxruntime"):
        places.append(os.path.join(importlib.util.find_spec("onnxruntime").submodule_search_locations[0], "capi"))
    return next((place for place in places if os.path.exists(os.path.join(place, PROVIDER))), None)


def cuda_libraries():
    """Directories of the CUDA libraries that pip installed for this interpreter, for programs that look for them by LD_LIBRARY_PATH."""
    if not found("nvidia"):
        return []
    places = [os.path.join(top, name, "lib") for top in importlib.util.find_spec("nvidia").submodule_search_locations for name in sorted(os.listdir(top))]
    return [one for one in places if os.path.isdir(one)]


def tensorrt():
    """Why TensorRT cannot be used; None where it can."""
    import ctypes

    places = [""]
    for package in ("tensorrt_libs", "tensorrt"):
        if found(package):
            places.append(os.path.join(importlib.util.find_spec(package).submodule_search_locations[0], ""))
    for place in places:
        try:
            ctypes.CDLL(f"{place}libnvinfer.so.10")
            return None
        except OSError:
            continue
    return "TensorRT 10 is not here: libnvinfer.so.10 cannot be opened"


def torch():
    """Why PyTorch cannot use the device; None where it can."""
    if not found("torch"):
        return f"there is no torch for {sys.executable}: pip install torch"
    done = subprocess.run([sys.executable, "-c", "import sys, torch; sys.exit(0 if torch.cuda.is_available() else f'torch {torch.__version__} cannot use the device')"], capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else done.stderr.strip()[-200:]


def server():
    if node() is None:
        return "there is no node"
    return None if os.path.exists(MAIN) else "the server is not built: npm run setup"


def client():
    about = os.path.join(ROOT, "bundle.json")
    if os.path.exists(about):
        with open(about, encoding="utf-8") as file:
            wanted = json.load(file)["python"]
        if wanted != f"{sys.version_info[0]}.{sys.version_info[1]}":
            return f"the bundle has tritonclient for Python {wanted}, and this is {sys.version.split()[0]}: --pack --python=VERSION"
    for name in ("numpy", "tritonclient", "cuda.bindings"):
        if not found(name):
            return f"Python has no {name}: pip install numpy tritonclient[all] cuda-bindings"
    return None


def counter():
    """Builds the library that counts copies, once. Why it cannot be had; None where it is there."""
    library = os.path.join(COUNTER, "libcount.so")
    if os.path.exists(library):
        return None
    if shutil.which("cc") is None:
        return "the library that counts copies is not built, and there is no cc"
    os.makedirs(os.path.join(COUNTER, "stub"), exist_ok=True)
    stub = os.path.join(COUNTER, "stub/libcuda.so.1")
    source = os.path.join(HERE, "count.c")
    for command in (
        ["cc", "-shared", "-fPIC", "-x", "c", "/dev/null", "-Wl,-soname,libcuda.so.1", "-o", stub],
        ["cc", "-O2", "-Wall", "-shared", "-fPIC", source, "-Wl,--no-as-needed", stub, "-ldl", "-o", f"{library}.new"],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return f"the library that counts copies does not build: {done.stderr.strip()[-200:]}"
    os.replace(f"{library}.new", library)
    return None


def facts(probed, given_provider):
    """What rows may need → None where it is there, else the reason."""
    devices = len(probed["devices"])
    has_provider = provider_directory(given_provider) is not None or "NEREID_TEST_PROVIDER_LIBRARY" in os.environ
    wheel = f"{PROVIDER} is not here: pip install 'onnxruntime-gpu[cuda,cudnn]==1.30.0', or --provider-directory=DIR"
    needs = {
        "driver": probed["driver"],
        "ipc": probed["ipc"] and f"memory of the device cannot be shared between processes here: {probed['ipc']}",
        "host-register": probed["host-register"] and f"memory cannot be page-locked here: {probed['host-register']}",
        "nvml": probed["nvml"] and f"no NVML: {probed['nvml']}",
        "two-devices": None if devices > 1 else f"it wants two devices, there are {devices}",
        "server": server(),
        "client": client(),
        "load": None if os.path.exists(LOAD) else "the load generator is not built: cargo build --release -p nereid-bench",
        "provider": None if has_provider else wheel,
    }
    # What takes time is looked at only where the answer matters.
    for name, look in (("counter", counter), ("tensorrt", tensorrt), ("torch", torch)):
        needs[name] = probed["driver"] or look()
    return needs


if __name__ == "__main__":
    # Of a bundle that is being made: what needs a compiler.
    sys.exit(counter())
