"""Of the driver interface: whether a device has been used."""
from ._mock import Error as CUresult  # noqa: F401
from ._mock import text

CUresult.CUDA_SUCCESS = CUresult.cudaSuccess


def cuGetErrorString(error):
    return CUresult(0), text(error)


def cuDeviceGet(device):
    return CUresult(0), device


def cuDevicePrimaryCtxGetState(device):
    return CUresult(0), 0, 1
