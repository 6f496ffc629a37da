"""`ModelConfig` (B-PY-22): a configuration that a model's `auto_complete_config` reads and completes. Checks what
Triton checks, with its texts, and nothing else: the server validates the result."""
import json


class ModelConfig:
    def __init__(self, model_config):
        self._model_config = json.loads(model_config)

    def as_dict(self):
        """The configuration itself, not a copy."""
        return self._model_config

    def _where(self):
        return f"in auto-complete-config function for model '{self._model_config['name']}'"

    def set_max_batch_size(self, max_batch_size):
        present = self._model_config["max_batch_size"]
        if present > max_batch_size:
            raise ValueError(f"configuration specified max_batch_size {present}, but {self._where()} specified "
                f"max_batch_size {max_batch_size}")
        self._model_config["max_batch_size"] = max_batch_size

    def set_dynamic_batching(self):
        for scheduler in ("sequence_batching", "ensemble_scheduling"):
            if scheduler in self._model_config:
                raise ValueError(
                    f"Configuration specified scheduling_choice as '{scheduler}', but "
                    f"auto-complete-config function for model "
                    f"'{self._model_config['name']}' tries to set scheduling_choice as 'dynamic_batching'"
                )
        self._model_config.setdefault("dynamic_batching", {})

    def add_input(self, input):
        self._add("input", input, ("name", "data_type", "dims", "optional"), "'name', 'data_type', 'dims' and "
            "'optional'.")

    def add_output(self, output):
        self._add("output", output, ("name", "data_type", "dims"), "'name', 'data_type' and 'dims'.")

    def _add(self, kind, tensor, allowed, shown):
        for key in tensor:
            if key not in allowed:
                raise ValueError(f"{kind} '" + tensor["name"] + f"' {self._where()} contains property other than "
                    f"{shown}")
        if "name" not in tensor:
            raise ValueError(f"{kind} {self._where()} is missing 'name' property.")
        for key in ("data_type", "dims"):
            if key not in tensor:
                raise ValueError(f"{kind} '" + tensor["name"] + f"' {self._where()} is missing '{key}' property.")
        for present in self._model_config[kind]:
            if present["name"] == tensor["name"]:
                self._merge(kind, present, tensor)
                return
        self._model_config[kind].append(tensor)

    def _merge(self, kind, present, tensor):
        model, name = self._model_config["name"], tensor["name"]
        if present["data_type"] not in ("TYPE_INVALID", tensor["data_type"]):
            raise ValueError(
                f"unable to load model '{model}', configuration expects datatype "
                f"{present['data_type']} for {kind} '{name}', "
                f"model provides {tensor['data_type']}"
            )
        checks = [("dims", present.get("dims"))]
        if kind == "input" and "optional" in tensor and "optional" in present:
            checks.append(("optional", True))
        for key, counts in checks:
            if counts and present[key] != tensor[key]:
                raise ValueError(
                    f"model '{model}', tensor '{name}': the model expects {key} {tensor[key]} but "
                    f"the model configuration "
                    f"specifies {key} {present[key]}"
                )
        present.update(tensor)

    def set_model_transaction_policy(self, transaction_policy_dict):
        for key in transaction_policy_dict:
            if key != "decoupled":
                raise ValueError(
                    "model transaction property in auto-complete-config function for model "
                    f"'{self._model_config['name']}' contains property other than 'decoupled'."
                )
        policy = self._model_config.setdefault("model_transaction_policy", {})
        if "decoupled" in transaction_policy_dict.keys():
            if "decoupled" in policy and policy["decoupled"] != transaction_policy_dict["decoupled"]:
                raise ValueError(
                    f"trying to change decoupled property in auto-complete-config for model "
                    f"'{self._model_config['name']}', "
                    f"which is already set to '{policy['decoupled']}'."
                )
            policy["decoupled"] = transaction_policy_dict["decoupled"]
