"""Reads objects and events of responses with the types of OpenAI's client: python3 check.py FILE.

FILE is what `NEREID_RESPONSES=FILE cargo test -p nereid-chat --test responses` wrote.
"""

import json
import sys

import openai
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

events = TypeAdapter(ResponseStreamEvent)
counts = {}
with open(sys.argv[1], encoding="utf-8") as lines:
    for line in lines:
        ((kind, value),) = json.loads(line).items()
        if kind == "response":
            read = Response.model_validate(value, strict=True)
            assert all(item.type == of["type"] for item, of in zip(read.output, value["output"], strict=True))
            name = read.status
        else:
            read = events.validate_python(value, strict=True)
            # Without a discriminator, the union could read one event as another.
            name = type(read).__name__
            assert read.type == value["type"]
            of_type = value["type"].replace(".", "_").removeprefix("response_").replace("_", "")
            assert name.lower().removeprefix("response").removesuffix("event") in (of_type, of_type.replace("outputtext", "text")), name
        counts[name] = counts.get(name, 0) + 1
assert counts, "the file is empty"
print(f"openai {openai.__version__}: {counts}")
