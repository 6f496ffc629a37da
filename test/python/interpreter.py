"""Servers of Python models, which run in the interpreter of the tests: it has numpy."""
import sys

import pytest

from server import Server

FLAG = f"--backend-config=python,python-executable={sys.executable}"


def python_server(repository, *flags, log):
    """A server whose models are ready. Skips where this build has no backend for them."""
    try:
        return Server(repository, FLAG, *flags, log=log)
    except RuntimeError as error:
        if "unable to find backend library for backend 'python'" in str(error):
            pytest.skip("this server does not serve Python models")
        raise
