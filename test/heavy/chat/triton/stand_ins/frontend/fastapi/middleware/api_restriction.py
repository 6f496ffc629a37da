"""In the place of the middleware that restricts APIs."""
import pytest


class RestrictedFeatures:
    def __init__(self, _):
        pytest.skip("calls a class of Triton's front end, without a server")
