"""What `Triton.bind` takes: tensors and the configuration of a model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Optional, Sequence


@dataclass
class Tensor:
    """`dtype`: a numpy type, or `bytes` for texts. `shape` has no batch. The default name is INPUT_1, OUTPUT_1 …"""

    shape: Sequence[int]
    dtype: Any
    name: Optional[str] = None
    optional: bool = False


@dataclass
class DynamicBatcher:
    max_queue_delay_microseconds: int = 0
    preferred_batch_size: Optional[Sequence[int]] = None
    preserve_ordering: bool = False


@dataclass
class ModelConfig:
    batching: bool = True
    max_batch_size: int = 4
    batcher: DynamicBatcher = field(default_factory=DynamicBatcher)
