"""Servers of Python models, which run in the interpreter of the tests: it has numpy. Others, with the packages of a framework, are looked for."""
import functools
import glob
import os
import shutil
import subprocess
import sys
import venv

import numpy
from server import Server

FLAG = f"--backend-config=python,python-executable={sys.executable}"
AS_CONFIGURED = "--disable-auto-complete-config"
"""For models whose configurations are whole: a load starts no process that asks the model for more. Half of the CPU of the load."""


def python_server(repository, *flags, log, **options):
    """A server whose models are ready."""
    return Server(repository, FLAG, *flags, log=log, **options)


@functools.lru_cache(None)
def interpreter_with(module):
    """`(path, version)` of an interpreter that has numpy and a module: of NEREID_TEST_PYTHON (one, or several as PATH has them), that of the tests, or one of the system. None without one."""
    wanted = [*os.environ.get("NEREID_TEST_PYTHON", "").split(os.pathsep), sys.executable, "/usr/bin/python3", shutil.which("python3")]
    code = f"import numpy, {module}; print({module}.__version__)"
    for python in dict.fromkeys(path for path in wanted if path and os.path.exists(path)):
        try:
            asked = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=120)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if asked.returncode == 0:
            return python, asked.stdout.strip()
    return None


def interpreter_with_numpy_only(directory):
    """Path of an interpreter, made in a directory, that has the tests' numpy and nothing else."""
    venv.create(directory, symlinks=True)
    (packages,) = glob.glob(f"{directory}/lib/python*/site-packages")
    for part in glob.glob(os.path.join(os.path.dirname(os.path.dirname(numpy.__file__)), "numpy*")):
        os.symlink(part, os.path.join(packages, os.path.basename(part)))
    return f"{directory}/bin/python"
