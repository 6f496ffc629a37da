"""Writes what vLLM's own `LLM` says, in one process and without a server: `python vllm_expected.py ASKS ANSWERS`, two files of JSON.

ASKS: `engine` (arguments of `LLM`), `lora` (directory or null), and `asks`, each of which has `messages` or `prompt`, `sampling` (arguments of `SamplingParams`) and `lora` (true or
false). A prompt of messages is made by `LLM.chat`, or with `as_text`, as Triton does it, by the tokenizer's template and `LLM.generate`. ANSWERS has for each the text, the reason
of its end, its tokens, those of the prompt, and per token the log probabilities: the drawn token first, `[id, logprob, rank]`."""
import json
import sys


def main(asks, answers):
    from vllm import LLM, SamplingParams
    from vllm.lora.request import LoRARequest

    with open(asks) as file:
        given = json.load(file)
    model = LLM(**given["engine"])
    said = []
    for ask in given["asks"]:
        sampling = SamplingParams(**ask["sampling"])
        options = {"use_tqdm": False, "lora_request": LoRARequest("one", 1, given["lora"]) if ask.get("lora") else None}
        if "prompt" in ask:
            (output,) = model.generate(ask["prompt"], sampling, **options)
        elif ask.get("as_text"):
            text = model.get_tokenizer().apply_chat_template(ask["messages"], tokenize=False, add_generation_prompt=True)
            (output,) = model.generate(text, sampling, **options)
        else:
            (output,) = model.chat(ask["messages"], sampling, tools=ask.get("tools"), **options)
        one = output.outputs[0]
        steps = [[[token, at.logprob, at.rank] for token, at in step.items()] for step in one.logprobs or []]
        said.append({"text": one.text, "reason": one.finish_reason, "tokens": list(one.token_ids), "prompt_tokens": list(output.prompt_token_ids), "logprobs": steps})
    with open(answers, "w") as file:
        json.dump(said, file)


# vLLM may start processes that import this file.
if __name__ == "__main__":
    main(*sys.argv[1:])
