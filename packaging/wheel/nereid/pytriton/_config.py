"""The `config.pbtxt` of a bound function. Errors have PyTriton's texts."""

from __future__ import annotations

from typing import Iterator, List, Sequence

from nereid._repository import config_text
from nereid._signature import Tensor as Spec
from nereid.pytriton._bound import TEXTS
from nereid.pytriton.exceptions import PyTritonBadParameterError
from nereid.pytriton.model_config.common import DynamicBatcher, QueuePolicy, Tensor
from nereid.pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig


def specs(tensors: Sequence[Tensor], prefix: str) -> List[TensorSpec]:
    return [TensorSpec(t.name or f"{prefix}_{i}", t.shape, t.dtype, bool(t.optional)) for i, t in enumerate(tensors, 1)]


def pbtxt(config: TritonModelConfig) -> str:
    """Raises PyTritonBadParameterError, and TypeError for a tensor that has no type of Triton."""
    if config.batching and config.max_batch_size < 1:
        raise PyTritonBadParameterError("The `max_batch_size` must be greater or equal to 1.")
    more = [f"instance_group [{{ count: {count} kind: {kind.value} }}]" for kind, count in config.instance_group.items()]
    if config.batching and config.batcher is not None:
        more.append(f"dynamic_batching {{ {' '.join(_batching(config.batcher))} }}")
    if config.decoupled:
        more.append("model_transaction_policy { decoupled: true }")
    if config.response_cache is not None:
        more.append(f"response_cache {{ enable: {_text(config.response_cache.enable)} }}")
    rows = config.max_batch_size if config.batching else 0
    return config_text(config.model_name, rows, _tensors(config.inputs), _tensors(config.outputs), True, more)


def _tensors(some: Sequence[TensorSpec]) -> List[Spec]:
    return [Spec(s.name, bytes if s.dtype in TEXTS else s.dtype, tuple(s.shape), "array", s.optional) for s in some]


def _batching(batcher: DynamicBatcher) -> Iterator[str]:
    yield f"max_queue_delay_microseconds: {int(batcher.max_queue_delay_microseconds)}"
    yield f"preferred_batch_size: {[int(size) for size in batcher.preferred_batch_size or ()]}"
    yield f"preserve_ordering: {_text(batcher.preserve_ordering)}"
    levels = batcher.priority_levels
    if levels:
        yield f"priority_levels: {levels}"
    if batcher.default_priority_level:
        if batcher.default_priority_level > levels:
            raise PyTritonBadParameterError(f"The `default_priority_level` must be between 1 and {levels}.")
        yield f"default_priority_level: {batcher.default_priority_level}"
    if batcher.default_queue_policy is not None:
        yield f"default_queue_policy {{ {_policy(batcher.default_queue_policy)} }}"
    if batcher.priority_queue_policy and not levels:
        raise PyTritonBadParameterError("Provide the `priority_levels` if you want to define `priority_queue_policy` for Dynamic Batching.")
    for priority, policy in (batcher.priority_queue_policy or {}).items():
        if priority < 0 or priority > levels:
            raise PyTritonBadParameterError(f"Invalid `priority`={priority} provided. The value must be between 1 and {levels}.")
        yield f"priority_queue_policy {{ key: {priority} value {{ {_policy(policy)} }} }}"


def _policy(policy: QueuePolicy) -> str:
    return (
        f"timeout_action: {policy.timeout_action.value} default_timeout_microseconds: {int(policy.default_timeout_microseconds)} "
        f"allow_timeout_override: {_text(policy.allow_timeout_override)} max_queue_size: {int(policy.max_queue_size)}"
    )


def _text(value: bool) -> str:
    return str(bool(value)).lower()
