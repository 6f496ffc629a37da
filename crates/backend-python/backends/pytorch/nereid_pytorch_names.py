"""Maps inputs to arguments of `forward` and outputs to returned values by Triton's rules (docs/spec/backends-native.md,
4).

Independent of PyTorch. An argument or a value is a path: the first step of an argument is its position or its name,
further ones index into it.
"""
import re

_STEP = re.compile(r"""\[\s*(?:"([^"\]]*)"|'([^'\]]*)'|([^\[\]"']+?))\s*\]""")


def index_of(name):
    """The number after the first `__` of a name, or None."""
    digits = name.partition("__")[2]
    return int(digits) if digits.isascii() and digits.isdigit() else None


def path_of(name, *roots):
    """`[root, *steps]` of a name such as `ARGS[0]` or `RESULT[0]["mask"]`, or None."""
    for root in roots:
        rest = name[len(root) :]
        if name.startswith(root) and rest and "".join(found.group() for found in _STEP.finditer(rest)) == rest:
            return [root, *(_step(found) for found in _STEP.finditer(rest))]
    return None


def _step(found):
    double, single, bare = found.groups()
    if bare is None:
        return double if double is not None else single
    return int(bare) if bare.isascii() and bare.isdigit() else bare


def arguments_of(names, arguments, model):
    """`({input: argument}, warning)`. `arguments`: names of the arguments of `forward`, None if unknown. An argument is
    a name or a position."""
    paths = [path_of(name, "ARGS", "KWARGS") for name in names]
    if names and all(path is not None and len(path) == 2 for path in paths):
        return {name: path[1] for name, path in zip(names, paths)}, None
    if arguments is not None and all(name in arguments for name in names):
        return {name: name for name in names}, None
    indices = [index_of(name) for name in names]
    if None not in indices:
        return dict(zip(names, indices)), None
    odd = names[indices.index(None)]
    warning = (
        f"input '{odd}' or previous input(s) are neither an input argument to the model '{model}' nor do they follow"
        " the <name>__<index> naming convention. Falling back to enforcing strict ordering from model configuration."
    )
    # A single input cannot be confused with another.
    return {name: at for at, name in enumerate(names)}, warning if len(names) > 1 else None


def values_of(names, model):
    """`({output: path}, warning)`: the steps into the returned value, usually starting with a position."""
    paths = [path_of(name, "RESULT") for name in names]
    if names and None not in paths:
        return {name: path[1:] for name, path in zip(names, paths)}, None
    indices = [index_of(name) for name in names]
    if None not in indices:
        return {name: [index] for name, index in zip(names, indices)}, None
    odd = names[indices.index(None)]
    warning = (
        f"output '{odd}' or previous output(s) of the model '{model}' do not follow the <name>__<index> naming"
        " convention. Falling back to enforcing strict ordering from model configuration."
    )
    return {name: [at] for at, name in enumerate(names)}, warning if len(names) > 1 else None


def mistake_in(arguments, required, known, model):
    """Why inputs cannot be the arguments of a call, or None. `required`: position and name of arguments without a
    default; `known`: names of all arguments, None if unknown."""
    seen = {}
    for name, argument in arguments.items():
        if argument in seen:
            return f"inputs '{seen[argument]}' and '{name}' of model '{model}' are both argument {argument} of forward"
        seen[argument] = name
    positions = {argument for argument in seen if isinstance(argument, int)}
    if known is None:
        gap = next((at for at in range(len(positions)) if at not in positions), None)
        return (
            None
            if gap is None
            else f"no input of model '{model}' is argument {gap} of forward, and one is a later argument"
        )
    most = len(known)
    if len(seen) > most or len(seen) < len(required):
        return (
            f"unable to load model '{model}', configuration expects {len(seen)} inputs, model provides {most}:"
            f" {', '.join(known)}"
        )
    beyond = next((at for at in sorted(positions) if at >= most), None)
    if beyond is not None:
        return f"input '{seen[beyond]}' of model '{model}' is argument {beyond} of forward, which has {most}"
    missing = next((name for at, name in required if name not in seen and at not in seen), None)
    return None if missing is None else f"no input of model '{model}' is the argument '{missing}' of forward"
