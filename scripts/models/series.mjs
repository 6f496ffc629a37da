/**
 * Completes the folder `examples/ensemble-ts`: its network, and the version directory of its ensemble. `node
 * scripts/models/series.mjs [DIR]`.
 */
import { cpSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { TYPE, initializer, model, node, raw, value } from './onnx.mjs'
import { writeModel } from './repository.mjs'

const EXAMPLE = fileURLToPath(new URL('../../examples/ensemble-ts', import.meta.url))
/** Samples of a moving average, around its own. */
const WINDOW = 9
const HALF = (WINDOW - 1) / 2

/** The distance of each sample from the mean of its neighbours. At the ends there are fewer. */
function residual() {
  return model({
    nodes: [
      node('Unsqueeze', ['series', 'outer'], ['row']),
      node('AveragePool', ['row'], ['means'], { kernel_shape: [WINDOW], pads: [HALF, HALF], count_include_pad: 0 }),
      node('Squeeze', ['means', 'outer'], ['mean']),
      node('Sub', ['series', 'mean'], ['residual']),
    ],
    inputs: [value('series', TYPE.FP32, ['samples'])],
    outputs: [value('residual', TYPE.FP32, ['samples'])],
    initializers: [initializer('outer', TYPE.INT64, [2], raw(BigInt64Array.of(0n, 1n)))],
  })
}

/** Completes the folder below a directory; it is copied there from examples unless it is that. */
export function writeSeries(root = join(EXAMPLE, '..')) {
  const folder = join(root, 'ensemble-ts')
  if (folder !== EXAMPLE) cpSync(EXAMPLE, folder, { recursive: true })
  writeModel(folder, 'smooth', { versions: { 1: residual() } })
  // A version directory is required, and git keeps no empty one.
  writeModel(folder, 'alarms', {})
}

if (process.argv[1] === fileURLToPath(import.meta.url)) writeSeries(process.argv[2])
