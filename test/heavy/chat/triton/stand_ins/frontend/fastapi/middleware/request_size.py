"""In the place of the middleware that limits bodies: its text."""
import pytest


class RequestSizeLimitMiddleware:
    def __init__(self, **_):
        pytest.skip("calls a class of Triton's front end, without a server")

    @staticmethod
    def _oversized_request_message(actual, limit):
        return (
            f"Request size of {actual} bytes exceeds the maximum allowed input size of {limit} bytes. "
            "Use --http-max-input-size to increase the limit."
        )
