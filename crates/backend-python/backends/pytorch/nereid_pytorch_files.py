"""Classifies files of PyTorch by their bytes, without running them. `model.pt` may be one of five kinds of files, of
which only some can be served."""
import zipfile

TORCHSCRIPT, WEIGHTS, PACKAGE, PROGRAM, MODULE = "torchscript", "weights", "package", "program", "module"

_POINTER = b"version https://git-lfs.github.com/spec"
#: Bytes of a pickle that are searched for the class of its content.
_PICKLE_BYTES_MAX = 1 << 10


class NotAModel(Exception):
    """The file is something else; the text is the rest of a sentence that begins with its name."""


def kind_of(path):
    """One of the kinds above. Raises `NotAModel` and `OSError`."""
    with open(path, "rb") as file:
        begin = file.read(256)
    if not begin:
        raise NotAModel("is empty: it was not written or copied completely")
    if begin.startswith(_POINTER):
        raise NotAModel("is a pointer of Git LFS and not the file itself: run `git lfs pull` where it was cloned")
    if begin.lstrip()[:5].lower() in (b"<!doc", b"<html", b"<head", b"<?xml"):
        raise NotAModel(
            "is a page of HTML or XML and not a model: the download was answered by a login or an error page; fetch it"
            " again"
        )
    if not begin.startswith(b"PK\3\4"):
        if begin[:1] == b"\x80":
            # torch.save before 1.6: a pickle, mostly of weights.
            return WEIGHTS
        raise NotAModel("is no file of PyTorch: torch.jit.save writes a zip archive, and this is none")
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            pickled = next((name for name in names if name.endswith("data.pkl")), None)
            begin = b"" if pickled is None else archive.open(pickled).read(_PICKLE_BYTES_MAX)
    except (zipfile.BadZipFile, NotImplementedError) as error:
        raise NotAModel(
            f"is a zip archive that cannot be read ({error}): it was not written to its end, or only half of it was"
            " copied"
        ) from None
    if any(name.endswith("/constants.pkl") for name in names):
        return TORCHSCRIPT
    if any("aotinductor/" in name for name in names):
        return PACKAGE
    if any(
        name.endswith("serialized_exported_program.json") or "models/" in name and name.endswith(".json")
        for name in names
    ):
        return PROGRAM
    if pickled is not None:
        return MODULE if _is_object(begin) else WEIGHTS
    raise NotAModel("is a zip archive without a model of PyTorch")


def _is_object(pickle):
    """True if a pickle contains an object of a class, as from `torch.save(model)`, not a dictionary or tensor."""
    if pickle[2:3] != b"c":
        return False
    module, name = (pickle[3:].split(b"\n") + [b"", b""])[:2]
    return (module, name) != (b"collections", b"OrderedDict") and module != b"torch._utils"
