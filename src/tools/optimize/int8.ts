/** Writes an int8 graph with the user's `onnxruntime.quantization`. */

import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { CommandError, ownCode, runPython, userPython } from '../../internal.js'
import type { Request } from './inputs.js'

const SCRIPT = ownCode('onnxruntime', 'nereid_onnx_int8.py')
/** Calibration runs the model some times, and keeps the ranges of all its values. */
const MS_MAX = 3_600_000
/** Bytes of the requests that a calibration gets. */
const DATA_BYTES_MAX = 1 << 30

export interface Int8Options {
  method: string
  perTensor: boolean
  exclude: readonly string[]
}

/** The graph that the script made. */
export interface Int8 {
  method: 'dynamic' | 'static'
  /** Nodes by operator. */
  operators: Record<string, number>
  /** Nodes that were excluded. */
  excluded: number
  isReduced: boolean
}

/** Types of numpy by datatype; BYTES has none. */
const NUMPY: ReadonlyMap<string, string> = new Map([
  ['FP16', 'float16'],
  ['FP32', 'float32'],
  ['FP64', 'float64'],
  ['BOOL', 'bool'],
  ...['INT8', 'INT16', 'INT32', 'INT64', 'UINT8', 'UINT16', 'UINT32', 'UINT64'].map((name): [string, string] => [
    name,
    name.toLowerCase(),
  ]),
])

/**
 * Processors without dot products of int8 add pairs of products in 16 bits, which overflow: their weights get seven
 * bits.
 */
function needsReducedRange(): boolean {
  if (process.arch !== 'x64') return false
  try {
    return !/\bavx(?:512)?_vnni\b/.test(readFileSync('/proc/cpuinfo', 'utf8'))
  } catch {
    return false
  }
}

/**
 * @param work an empty directory for temporary files
 * @param calibration requests to the graph itself; none if it has other inputs
 * @throws {CommandError} with the reason of the script
 */
export async function writeInt8(
  source: string,
  target: string,
  work: string,
  calibration: readonly Request[],
  options: Int8Options,
  signal: AbortSignal,
): Promise<Int8> {
  const program = userPython()
  if (program === null)
    throw new CommandError('there is no Python here, whose onnxruntime makes int8; NEREID_PYTHON names one')
  const isReduced = needsReducedRange()
  const data = join(work, 'inputs.bin')
  const plan = join(work, 'plan.json')
  writeFileSync(
    plan,
    JSON.stringify({
      source,
      target,
      work,
      data,
      inputs: written(data, calibration),
      method: options.method,
      per_channel: !options.perTensor,
      reduce_range: isReduced,
      exclude: options.exclude,
    }),
  )
  // The package keeps copies of the graph in its temporary directory, which must not outlive this command.
  const { failure, stdout } = await runPython(program, [SCRIPT, plan], MS_MAX, { TMPDIR: work }, signal)
  if (failure !== null) throw new CommandError(`int8 was not made: ${failure}`)
  return { ...(JSON.parse(stdout.trim().split('\n').at(-1) ?? '') as Omit<Int8, 'isReduced'>), isReduced }
}

/** Writes the tensors of requests one after the other; returns where each is. */
function written(file: string, requests: readonly Request[]): unknown[] {
  const parts: Uint8Array[] = []
  let offset = 0
  const found: unknown[] = []
  for (const request of requests) {
    const tensors = Object.entries(request).map(([name, { data, shape, datatype }]) => {
      const kind = NUMPY.get(datatype)
      if (kind === undefined) return null
      const view = ArrayBuffer.isView(data) ? data : Uint8Array.from(data as readonly boolean[], Number)
      // Offsets of whole elements of any size.
      const bytes = Buffer.alloc(Math.ceil(view.byteLength / 8) * 8)
      bytes.set(new Uint8Array(view.buffer, view.byteOffset, view.byteLength))
      parts.push(bytes)
      offset += bytes.length
      return [name, kind, shape, offset - bytes.length]
    })
    if (tensors.includes(null) || offset > DATA_BYTES_MAX) break
    found.push(tensors)
  }
  writeFileSync(file, Buffer.concat(parts))
  return found
}
