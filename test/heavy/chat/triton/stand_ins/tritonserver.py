"""In the place of Triton's Python bindings: the names that its tests of the OpenAI front end use."""


class ModelControlMode:
    """Values of the flag."""

    NONE = "none"
    EXPLICIT = "explicit"


class Server:
    """For annotations."""
