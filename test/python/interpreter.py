"""Servers of Python models, which run in the interpreter of the tests: it has numpy."""
import sys

from server import Server

FLAG = f"--backend-config=python,python-executable={sys.executable}"


def python_server(repository, *flags, log, **options):
    """A server whose models are ready."""
    return Server(repository, FLAG, *flags, log=log, **options)
