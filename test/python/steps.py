"""Models with sequences, ensembles and models with many responses, as a repository for the clients' own examples."""


def tensors(kind, rows):
    lines = ", ".join(f'{{ name: "{name}" data_type: {datatype} dims: [ {dims} ] }}' for name, datatype, dims in rows)
    return f"{kind} [ {lines} ]\n"


def control(name, kind, more="int32_false_true: [ 0, 1 ]"):
    return f'{{ name: "{name}" control [ {{ kind: CONTROL_SEQUENCE_{kind} {more} }} ] }}'


def sequences(strategy, controls):
    # A server that exits waits for sequences that were left in progress: not for longer than this.
    return f"sequence_batching {{ max_sequence_idle_microseconds: 10000000 {strategy} control_input [ {', '.join(controls)} ] }}\n"


FLAGS = [control(kind, kind) for kind in ("START", "END", "READY")]


def dyna(id_type):
    return sequences("oldest { max_candidate_sequences: 64 }", [*FLAGS, control("CORRID", "CORRID", f"data_type: {id_type}")])


def step(model, inputs, outputs):
    maps = [f'input_map {{ key: "{k}" value: "{v}" }}' for k, v in inputs.items()]
    maps += [f'output_map {{ key: "{k}" value: "{v}" }}' for k, v in outputs.items()]
    return f'{{ model_name: "{model}" model_version: -1 {" ".join(maps)} }}'


def ensemble(*steps):
    return f"ensemble_scheduling {{ step [ {', '.join(steps)} ] }}\n"


SUM = tensors("input", [("INPUT", "TYPE_INT32", 1)]) + tensors("output", [("OUTPUT", "TYPE_INT32", 1)])
REPEAT_IN = [("IN", "TYPE_INT32", -1), ("DELAY", "TYPE_UINT32", -1), ("WAIT", "TYPE_UINT32", 1)]
REPEAT_OUT = [("OUT", "TYPE_INT32", 1), ("IDX", "TYPE_UINT32", 1)]
REPEAT = tensors("input", REPEAT_IN) + tensors("output", REPEAT_OUT)

MODELS = {
    "simple_sequence": 'backend: "sequence"\nmax_batch_size: 64\n' + SUM + sequences("direct { }", [FLAGS[0], FLAGS[2]]),
    "simple_dyna_sequence": 'backend: "dyna_sequence"\nmax_batch_size: 64\n' + SUM + dyna("TYPE_UINT64"),
    "simple_string_dyna_sequence": 'backend: "dyna_sequence"\nmax_batch_size: 64\n' + SUM + dyna("TYPE_STRING"),
    "repeat": 'backend: "repeat"\nmax_batch_size: 0\nmodel_transaction_policy { decoupled: true }\n' + REPEAT,
    "same": 'backend: "identity"\nmax_batch_size: 0\n'
    + tensors("input", [("INPUT0", "TYPE_INT32", 1)]) + tensors("output", [("OUTPUT0", "TYPE_INT32", 1)]),
    # Ensembles of sequences, and one whose first step is decoupled.
    "ensemble_sequence": 'platform: "ensemble"\nmax_batch_size: 64\n' + SUM
    + ensemble(step("simple_sequence", {"INPUT": "INPUT"}, {"OUTPUT": "sum"}), step("simple_dyna_sequence", {"INPUT": "sum"}, {"OUTPUT": "OUTPUT"})),
    "ensemble_repeat": 'platform: "ensemble"\nmax_batch_size: 0\n' + REPEAT
    + ensemble(
        step("repeat", {name: name for name, *_ in REPEAT_IN}, {"OUT": "out", "IDX": "IDX"}),
        step("same", {"INPUT0": "out"}, {"OUTPUT0": "OUT"}),
    ),
}


def write(directory):
    for name, text in MODELS.items():
        (directory / name / "1").mkdir(parents=True)
        (directory / name / "config.pbtxt").write_text(text)
    return directory
