"""Exceptions as texts (B-PY-24), formatted like pybind11's: clients match on them."""
import linecache
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_UTILS = os.path.dirname(os.path.dirname(HERE)) + os.sep
_OURS = (HERE, _UTILS + "triton_python_backend_utils.py", _UTILS + "c_python_backend_utils.py")
_IMPORT = "<frozen importlib"


def is_ours(file):
    """True if the file belongs to the runtime, which texts omit."""
    return file.startswith(_OURS)


#: Characters of an error or a log line. The server shows fewer; a longer text would fit into no frame.
TEXT_CHARS_MAX = 1 << 16


def cut(text):
    """Makes a text sendable: UTF-8, limited in length, and cut at a NUL, which ends texts in Triton."""
    text = text[:TEXT_CHARS_MAX]
    at = text.find("\0")
    if at >= 0:
        text = text[:at]
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


#: Package and end of the name of exceptions that say that an engine in this process is dead and stays so.
_DEAD = (("vllm", "EngineDeadError"),)
_CAUSES_MAX = 8
#: Why this process can do no more work and has to be started again.
lost = None


def look(error):
    """Sets `lost` if an exception, or one that caused it, says so."""
    global lost
    chain = []
    while error is not None and len(chain) < _CAUSES_MAX:
        chain.append(error)
        error = error.__cause__ or error.__context__
    for one in chain:
        kinds = [(kind.__module__.partition(".")[0], kind.__name__) for kind in type(one).__mro__]
        if any(package == of and name.endswith(end) for package, name in kinds for of, end in _DEAD):
            lost = lost or one_line(one)
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    try:
        # After some errors, such as an assertion in a kernel, each later use of the device fails.
        if any(isinstance(one, RuntimeError) for one in chain) and cuda.is_initialized():
            cuda.current_stream().query()
    except RuntimeError as e:
        lost = lost or one_line(e)
    except AttributeError:
        pass  # Without torch, or while it is imported.


def text_of(error):
    """The text of an exception, or the name of its type."""
    return str(error) or type(error).__name__


def one_line(error):
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def describe(error):
    """`<Type>: <text>` and the stack, from the inside out."""
    look(error)
    return cut(_described(error, True))


def _described(error, deep):
    kind = type(error).__name__
    unavailable = None
    try:
        message = str(error)
        message = message.encode("utf-8", "backslashreplace").decode()
    except BaseException as e:
        message = "<MESSAGE UNAVAILABLE DUE TO ANOTHER EXCEPTION>"
        unavailable = e
    text = f"{kind}: {message or '<EMPTY MESSAGE>'}"
    notes = getattr(error, "__notes__", None)
    if isinstance(notes, list) and notes:
        text += f"\n__notes__ (len={len(notes)}):" + "".join(f"\n{note}" for note in notes)
    frames = list(frames_of(error))
    if frames:
        text += "\n\nAt:\n" + "".join(f"  {file}({line}): {name}\n" for file, line, name in frames)
    if unavailable is not None and deep:
        text += ("" if frames else "\n") + f"\nMESSAGE UNAVAILABLE DUE TO EXCEPTION: {_described(unavailable, False)}"
    return text


def frames_of(error):
    """`(file, line, function)` from the raising frame outwards, without the runtime's and the import system's. Contains
    the callers, not the frames passed while unwinding: a coroutine has no caller any more."""
    trace = error.__traceback__
    if trace is None:
        return
    while trace.tb_next is not None:
        trace = trace.tb_next
    frame = trace.tb_frame
    while frame is not None:
        code = frame.f_code
        file = code.co_filename
        if file == _BASE:
            return
        if not (is_ours(file) or file.startswith(_IMPORT) or file.endswith("importlib/__init__.py")):
            yield file, frame.f_lineno, code.co_name
        frame = frame.f_back


#: The file that calls a model; frames outside of it are irrelevant.
_BASE = HERE + "run.py"


def source_of(error, directory):
    """`{"file", "line", "text"}` of the relevant line of the model's own code, or None."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        text = error.text or linecache.getline(error.filename, error.lineno)
        return {"file": error.filename, "line": error.lineno, "text": cut(text.rstrip("\n"))}
    for file, line, _ in frames_of(error):
        if os.path.abspath(file).startswith(directory.rstrip(os.sep) + os.sep):
            linecache.checkcache(file)
            return {"file": file, "line": line, "text": cut(linecache.getline(file, line).rstrip("\n"))}
    return None


def missing_of(error, package):
    """The name of a package that was not found, or None. `package`: the model's own, which cannot be installed."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        name = error.name.split(".")[0]
        return name if name and name != package else None
    return None
