"""What `Triton.bind` takes."""

from nereid.pytriton.model_config.common import DeviceKind, DynamicBatcher, ModelConfig, ModelWarmup, QueuePolicy, Tensor, TimeoutAction, WarmupInput

__all__ = ["DeviceKind", "DynamicBatcher", "ModelConfig", "ModelWarmup", "QueuePolicy", "Tensor", "TimeoutAction", "WarmupInput"]
