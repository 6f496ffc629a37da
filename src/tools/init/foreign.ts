/** Recognises models of other frameworks by file name, and names the commands that convert them. Pure. */

import { basename, dirname } from 'node:path'
import { BACKENDS, GRAPHDEF, KERAS, absentBackend, shellWord } from '../../internal.js'

const FOREIGN: readonly (readonly [ends: RegExp, what: string, command: (file: string, onnx: string) => string])[] = [
  [
    /\.safetensors$|^pytorch_model\.bin$/i,
    'has weights and no graph: export the model of its directory to ONNX and name the written file',
    (file) => `optimum-cli export onnx --model ${shellWord(dirname(file))} onnx`,
  ],
  [
    KERAS.ends,
    'is a model of Keras: export it to ONNX, or to a SavedModel that TensorFlow runs, and name the result',
    (file, onnx) =>
      `python -c ${shellWord(`import keras; keras.saving.load_model("${file}").export("${onnx}", format="onnx")`)}`,
  ],
  [
    /\.tflite$/i,
    'is a model of TensorFlow Lite: convert it to ONNX and name that file',
    (file, onnx) => `python -m tf2onnx.convert --opset 18 --tflite ${shellWord(file)} --output ${shellWord(onnx)}`,
  ],
  [
    GRAPHDEF.ends,
    'is a GraphDef of TensorFlow: make a SavedModel of it, with the names of its inputs and outputs, and ' +
      'name that directory',
    () => '',
  ],
  [/^rank\d+\.engine$/i, `is an engine of TensorRT-LLM: ${absentBackend('tensorrtllm') ?? ''}`, () => ''],
  [
    /\.(?:pkl|pickle|joblib)$/i,
    'is a pickle of Python: save the model in a form of its framework and name that file, or load it in a model.py',
    (file, onnx) => {
      const stem = file.replace(/\.[^./]*$/, '')
      return [
        `model.save_model("${stem}.json")              # XGBoost`,
        `model.booster_.save_model("${stem}.txt")      # LightGBM`,
        `model.save_model("${onnx}", format="onnx")    # CatBoost`,
        `open("${onnx}", "wb").write(skl2onnx.to_onnx(model, X[:1]).SerializeToString())    # scikit-learn`,
      ].join('\n')
    },
  ],
  [
    /\.cbm$/i,
    'is a model of CatBoost: save it as ONNX and name that file',
    (file, onnx) => `model = CatBoost().load_model("${file}"); model.save_model("${onnx}", format="onnx")`,
  ],
  [
    /\.gg(?:uf|ml)$/i,
    'has weights for llama.cpp, whose llama-server (or Ollama) runs it. Here the backend vllm runs the model from ' +
      'its safetensors: name a model.json with {"model": "DIRECTORY"}',
    () => '',
  ],
]

/** A sentence that continues the file's name, with a command; null for any other file. */
export function exportHint(path: string): string | null {
  const name = basename(path)
  const row = FOREIGN.find(([ends]) => ends.test(name))
  if (row === undefined) return null
  const stem = path.replace(/\.[^./]*$/, '')
  const other = BACKENDS.flatMap(({ foreign = [] }) => foreign).find(({ ends }) => ends.test(name))
  const made =
    other === undefined ? '' : `python -c ${shellWord(other.code(path, `${stem}.savedmodel`, ['INPUT'], ['OUTPUT']))}`
  const command = [row[2](path, `${stem}.onnx`), made].filter((one) => one !== '').join('\n')
  return command === '' ? row[1] : `${row[1]}:\n${command.replace(/^/gm, '  ')}`
}
