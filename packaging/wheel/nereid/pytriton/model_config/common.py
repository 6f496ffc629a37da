"""What `Triton.bind` takes: tensors and the configuration of a model. Fields and defaults are PyTriton's."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Sequence

import numpy as np


class DeviceKind(enum.Enum):
    KIND_AUTO = "KIND_AUTO"
    KIND_CPU = "KIND_CPU"
    KIND_GPU = "KIND_GPU"


class TimeoutAction(enum.Enum):
    REJECT = "REJECT"
    DELAY = "DELAY"


@dataclass(frozen=True)
class Tensor:
    """`dtype`: a numpy type, or `bytes` for texts. `shape` has no batch. The default name is INPUT_1, OUTPUT_1 …"""

    shape: Sequence[int]
    dtype: Any
    name: Optional[str] = None
    optional: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.dtype, np.dtype):
            object.__setattr__(self, "dtype", self.dtype.type)


@dataclass
class QueuePolicy:
    timeout_action: TimeoutAction = TimeoutAction.REJECT
    default_timeout_microseconds: int = 0
    allow_timeout_override: bool = False
    max_queue_size: int = 0


@dataclass
class DynamicBatcher:
    max_queue_delay_microseconds: int = 0
    preferred_batch_size: Optional[Sequence[int]] = None
    preserve_ordering: bool = False
    priority_levels: int = 0
    default_priority_level: int = 0
    default_queue_policy: Optional[QueuePolicy] = None
    priority_queue_policy: Optional[Dict[int, QueuePolicy]] = None


@dataclass
class WarmupInput:
    """One of the last three says where the data comes from; `input_data_file` is a file of `numpy.save`."""

    dtype: Any
    shape: Sequence[int]
    zero_data: bool = False
    random_data: bool = False
    input_data_file: Optional[str] = None


@dataclass
class ModelWarmup:
    """`count` requests of `batch_size` rows, that each instance answers before the model is ready."""

    name: str
    batch_size: int
    inputs: Dict[str, WarmupInput]
    count: int


@dataclass
class ModelConfig:
    batching: bool = True
    max_batch_size: int = 4
    batcher: Optional[DynamicBatcher] = field(default_factory=DynamicBatcher)
    response_cache: bool = False
    decoupled: bool = False
    model_warmup: Optional[List[ModelWarmup]] = None
