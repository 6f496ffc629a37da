/**
 * Inputs and outputs of an ONNX file as ONNX Runtime would report them, as far as the file alone determines them:
 * ONNX Runtime also infers shapes of outputs and may find sizes that the file leaves open. Anything left open matches
 * the configuration, so nothing that a load accepts is reported as an error; only ONNX Runtime decides about it.
 */

import { join } from 'node:path'
import { isComplete, statIfAny, type ModelConfig, type ModelIo } from '../config/index.js'
import { datatypeOfOnnx } from '../native/datatypes.js'
import type { GraphValue, OnnxFile } from './onnx_file.js'

/** From this IR version on, a request may give inputs that have a default value. */
const OVERRIDABLE_IR_VERSION = 4

/** The file that ONNX Runtime opens: `model.onnx` if the configured name is a directory. */
export function onnxPath(config: ModelConfig, versionDirectory: string): string {
  const path = join(versionDirectory, config.defaultModelFilename)
  return statIfAny(path)?.isDirectory() === true ? join(path, 'model.onnx') : path
}

/** `io` is null when the file does not determine what `config` needs, and not whole when it leaves something open. */
export function graphIo(file: OnnxFile, config: ModelConfig): { io: ModelIo | null; isWhole: boolean } {
  const none = { io: null, isWhole: false }
  const isConstant = ({ name }: GraphValue): boolean => file.initializers.has(name)
  const inputs = file.inputs.filter((value) => !isConstant(value) || file.irVersion >= OVERRIDABLE_IR_VERSION)
  const values = [...inputs, ...file.outputs]
  // Types without a Triton datatype: sequences, maps, FP8.
  if (values.some(({ type }) => datatypeOfOnnx(type) === undefined)) return none
  if (!isComplete(config) && values.some(({ shape }) => shape === null)) return none
  // A size that an input leaves open is also open in an output that uses the same symbol.
  const open = new Set(
    inputs.flatMap(({ shape }) => shape ?? []).filter((dim) => typeof dim === 'string' && dim !== ''),
  )
  const dimsOf = (name: string): number[] => {
    const io = [...config.input, ...config.output].find((one) => one.name === name)
    const dims = (io?.reshape?.shape ?? io?.dims ?? []).map(Number)
    return config.maxBatchSize > 0 ? [-1, ...dims] : dims
  }
  let isWhole = values.every(({ shape }) => shape !== null)
  const tensor = (value: GraphValue, isOutput: boolean) => {
    const wanted = dimsOf(value.name)
    const isSure = (dim: number | string): boolean =>
      typeof dim === 'number' ? dim > 0 && Number.isSafeInteger(dim) : !isOutput || open.has(dim)
    isWhole &&= !isOutput || value.shape?.every(isSure) === true
    const shape =
      value.shape?.map((dim, i) => (isSure(dim) ? (typeof dim === 'number' ? dim : -1) : (wanted[i] ?? -1))) ?? wanted
    return { name: value.name, datatype: datatypeOfOnnx(value.type)?.number ?? 0, shape, optional: isConstant(value) }
  }
  const io = {
    inputs: inputs.map((value) => tensor(value, false)),
    outputs: file.outputs.map((value) => tensor(value, true)),
  }
  return { io, isWhole }
}
