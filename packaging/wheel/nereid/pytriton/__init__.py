"""PyTriton's form of serving functions: programs change their imports only. What is bound runs in the program's own process."""

from nereid.pytriton import model_config, triton
from nereid.pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from nereid.pytriton.triton import RemoteTriton, Triton, TritonConfig

__all__ = ["DynamicBatcher", "ModelConfig", "RemoteTriton", "Tensor", "Triton", "TritonConfig", "model_config", "triton"]
