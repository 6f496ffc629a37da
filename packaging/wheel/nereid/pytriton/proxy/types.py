"""What a bound function gets: a list of `Request`."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any, ContextManager, Dict, Iterator, List, MutableMapping, Optional

import numpy as np


@dataclass
class Request(MutableMapping[str, np.ndarray]):
    """The inputs of a request by name, in the order of the model's inputs; those that the client left out are not there."""

    data: Dict[str, np.ndarray]
    #: Parameters of the request, and headers that `http_header_forward_pattern` lets through.
    parameters: Dict[str, Any] = field(default_factory=dict)
    #: Always None: requests have no spans of OpenTelemetry.
    span: Optional[Any] = None
    requested_output_names: Optional[List[str]] = None

    def __getitem__(self, name: str) -> np.ndarray:
        return self.data[name]

    def __setitem__(self, name: str, value: np.ndarray) -> None:
        self.data[name] = value

    def __delitem__(self, name: str) -> None:
        del self.data[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)

    def traced_span(self, span_name: str) -> ContextManager[None]:
        """Does nothing, as without OpenTelemetry."""
        return contextlib.nullcontext()


Requests = List[Request]
