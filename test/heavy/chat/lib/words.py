"""What the language models of these tests write. There are no weights: words come from a generator of random numbers, and calls of tools are as the prompt asks for them.

A conversation whose prompt names the function `get_current_weather` is answered with a call of it, in the form of TOOL_FORM; once its result, 98, is in the prompt, with that. A
schema is answered with a value that has it. Everything else is answered with words, which depend on the prompt, `temperature` and `seed` as those of a real model do.
"""
import hashlib
import json
import random

WORDS = "machine learning is a way to let computers find rules in data . , models train on examples and answer new questions with numbers".split()
ARGUMENTS = {"city": "Dallas", "state": "TX", "unit": "fahrenheit"}
#: Characters per piece of a call, so that names and numbers are cut.
PIECE = 5

FORMS = {
    "llama3": lambda call: json.dumps({"name": call["name"], "parameters": call["arguments"]}),
    "mistral": lambda call: "[TOOL_CALLS]" + json.dumps([call]),
    "hermes": lambda call: f"<tool_call>\n{json.dumps(call)}\n</tool_call>",
}


def pieces(prompt, *, max_tokens, temperature=1.0, seed=None, stop=(), schema=None, form="llama3"):
    """Pieces of a response, at most `max_tokens`. A response that `stop` ends leaves the stop string out."""
    if schema is not None:
        return cut(json.dumps(instance(json.loads(schema))))
    if "get_current_weather" in prompt and max_tokens > 16:
        if "98" in prompt:
            return ["It", " is", " 98", " degrees", "."]
        return cut(FORMS[form]({"name": "get_current_weather", "arguments": ARGUMENTS}))
    return list(until(stop, words(prompt, max_tokens, temperature, seed))) or [""]


def instance(schema, name=None):
    """A value that has this schema, with ARGUMENTS for properties of their names."""
    if "const" in schema or "enum" in schema:
        return schema.get("const", ARGUMENTS.get(name, schema.get("enum", [None])[0]))
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            return instance(schema[choice][0], name)
    kinds = {
        "object": lambda: {key: instance(one, key) for key, one in schema.get("properties", {}).items()},
        "array": lambda: [instance(schema.get("items", {}), name)],
        "integer": lambda: 5,
        "number": lambda: 5.5,
        "boolean": lambda: True,
    }
    return kinds.get(schema.get("type"), lambda: ARGUMENTS.get(name, "text"))()


def cut(text):
    return [text[start : start + PIECE] for start in range(0, len(text), PIECE)]


def words(prompt, count, temperature, seed):
    """Greedy for a temperature of 0; else drawn, the same for the same seed."""
    state = hashlib.sha256(prompt.encode()).hexdigest() if temperature == 0 else None if seed is None else f"{seed} {temperature}"
    draw = random.Random(state)
    # A mark at the beginning would be a text of `stop`, before which there is none.
    first = WORDS[:1] if temperature == 0 else [word for word in WORDS if word.isalpha()]
    for index in range(count):
        yield (" " if index else "") + draw.choice(WORDS if index else first)


def until(stop, tokens):
    text = ""
    for token in tokens:
        text += token
        places = [place for place in (text.find(one) for one in stop) if place >= 0]
        if places:
            rest = token[: len(token) - (len(text) - min(places))] if len(text) - min(places) <= len(token) else ""
            if rest:
                yield rest
            return
        yield token


def logprobs(token, count):
    """As vLLM's backend writes those of a token: by id, with the rank."""
    others = [token, *[f"x{rank}" for rank in range(2, count + 1)]]
    return {str(index): {"logprob": -0.5 * (index + 1), "rank": index + 1, "decoded_token": other} for index, other in enumerate(others[: max(count, 1)])}
