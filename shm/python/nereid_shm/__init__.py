"""Tensors in system shared memory, for clients of an inference server on the same machine.

One region holds all tensors of a request and of its answer: it is created once, registered once, and named by each request. Needs numpy
only; works with tritonclient, over HTTP and gRPC, and with plain JSON. README.md, beside this package's directory, shows how.
"""
from .layout import REGION_BYTES_MAX, Layout, RegionError, Space
from .region import Region

__all__ = ["REGION_BYTES_MAX", "Layout", "Region", "RegionError", "Space"]
