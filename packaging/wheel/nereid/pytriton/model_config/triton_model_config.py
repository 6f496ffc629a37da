"""A model as it is served, for decorators and `triton_context`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Sequence

from nereid.pytriton.model_config.common import DeviceKind, DynamicBatcher, ModelWarmup


@dataclass
class ResponseCache:
    enable: bool


@dataclass
class TensorSpec:
    name: str
    shape: Sequence[int]
    dtype: Any
    optional: bool = False


@dataclass
class TritonModelConfig:
    model_name: str
    model_version: int = 1
    max_batch_size: int = 4
    batching: bool = True
    batcher: Optional[DynamicBatcher] = None
    instance_group: Dict[DeviceKind, int] = field(default_factory=dict)
    decoupled: bool = False
    backend_parameters: Dict[str, str] = field(default_factory=dict)
    inputs: Sequence[TensorSpec] = ()
    outputs: Sequence[TensorSpec] = ()
    response_cache: Optional[ResponseCache] = None
    model_warmup: Optional[List[ModelWarmup]] = None
