/**
 * Adds to an error text of a load what its reader needs to correct the file: the place and the action. Selected by the
 * text, which is Triton's and stays unchanged.
 */

import { statIfAny } from '../config/index.js'
import type { Near } from './near.js'

export interface Explanation {
  advice?: string
  /** Place in the configuration; null if the configuration has none. */
  near?: Near | null
  /** The file in question, if it is not the configuration. */
  file?: string
  /** Line, from 1. */
  line?: number
}

type IsOwn = (file: string) => boolean

const CANNOT_BATCH: Explanation = {
  near: { field: 'max_batch_size' },
  advice:
    'Set max_batch_size: 0, with dims that have every dimension; or export the model with a first dimension of any ' +
    'size (dynamic_axes of torch.onnx.export).',
}

const atModel = ([, value = '']: RegExpExecArray): Explanation => ({ near: { field: 'model_name', value } })

const DIMENSIONS_DIFFER = new RegExp(
  "tensor '(.+?)': the model expects \\d+ dimensions \\(shape \\[(.*?)\\]\\) .* " +
    'specifies \\d+ dimensions \\((an initial batch)?.*shape \\[(.*?)\\]\\)',
)

const TEXTS: readonly (readonly [text: RegExp, explain: (found: RegExpExecArray, isOwn: IsOwn) => Explanation])[] = [
  [/for the model to support batching the shape|model does not support batching while non-zero/, () => CANNOT_BATCH],
  [
    DIMENSIONS_DIFFER,
    ([, value = '', graph = '', batches, configured = '']) => ({
      near: { field: 'name', value },
      advice: adviceOfBatch(graph, configured, batches !== undefined),
    }),
  ],
  [/configuration expects \d+ inputs, model provides/, () => ({ near: { field: 'input' } })],
  [/sequence control '(.+?)'/, ([, value = '']) => ({ near: { field: 'name', value } })],
  [
    /depends on '(.+?)' whose required version 0 /,
    (found) => ({ ...atModel(found), advice: 'The latest version is model_version: -1; left out, it is 0.' }),
  ],
  [/depends on '(.+?)' (?:whose|which)/, atModel],
  [/not available or ambiguous: (.+)$/, atModel],
  [/^circular dependency between ensembles/, () => ({ near: { field: 'model_name' } })],
  [
    /ensemble tensor (.+) is mapp(?:ing to|ed from) non-existing (?:input|output) (.+) in model (.+)$/,
    ([, tensor = '', value = '', model = '']) => {
      const beside = [
        { field: 'value', value: tensor },
        { field: 'model_name', value: model },
      ]
      return { near: { field: 'key', value, beside } }
    },
  ],
  [/ in model (.+) is not mapped to any ensemble tensors$/, atModel],
  [/it contains model (.+) which only allows maximum batch size /, atModel],
  // A tensor between two steps has no field `name`.
  [
    /ensemble tensor (.+): inconsistent .* is inferred from model (.+)$/,
    ([, value = '', model = '']) => ({
      near: { field: 'name', value, or: { field: 'value', value, beside: [{ field: 'model_name', value: model }] } },
    }),
  ],
  [/^(?:and )?(?:version )?\d+ (?:is specified|more versions)/, () => ({ near: { field: 'version_policy' } })],
  [
    /^ignore version directory '(.+)' which/,
    ([, name = '']) => {
      const number = /\d+/.exec(name)?.[0]
      const example = number === undefined ? '' : `: '${Number(number)}'`
      return { near: null, advice: `A version is called by its number${example}.` }
    },
  ],
  [
    /backend supports only Kind CPU and AUTO$/,
    () => ({
      near: { field: 'kind', value: 'KIND_MODEL', or: { field: 'kind', value: 'KIND_GPU' } },
      advice: 'Write kind: KIND_CPU, or leave the kind out.',
    }),
  ],
  [/^Bad input for parameter (\w+):/, ([, value = '']) => ({ near: { field: 'key', value } })],
  [/ not recognized as a valid serialization format/, () => ({ near: { field: 'key', value: 'model_type' } })],
  [/^Required parameter \w+ not found|^LightGBM model: /, () => ({ near: null })],
  [
    /^unable to find '.*' for model '.*'.*: set the parameter 'model_type'/,
    () => ({ near: { field: 'key', value: 'model_type' } }),
  ],
  [/^failed to stat file |^Python model file not found /, () => ({ near: null })],
  [/Load model from (.+?) failed:/s, ([, file = ''], isOwn) => (isOwn(file) ? { near: null, file } : { near: null })],
  [/\n\s*At:\s*\n(.*)/s, ([, frames = ''], isOwn) => innermost(frames, isOwn)],
]

/** Advice for dims that wrongly include, or wrongly leave out, the batch dimension. */
function adviceOfBatch(graph: string, configured: string, batches: boolean): string {
  const [dims, full] = [
    graph.split(',').slice(1).join(),
    configured
      .split(',')
      .slice(batches ? 2 : 0)
      .join(),
  ]
  if (dims === '' || dims !== full) return ''
  return batches
    ? 'With max_batch_size above 0, dims leave the batch dimension out.'
    : 'With max_batch_size: 0, dims have every dimension, that of the batch too.'
}

/** @param directories of the model, as they appear in the text: only files in them are reported as places */
export function explain(message: string, directories: readonly string[] = []): Explanation {
  const isOwn: IsOwn = (file) =>
    directories.some((directory) => file.startsWith(`${directory}/`)) && statIfAny(file)?.isFile() === true
  for (const [text, of] of TEXTS) {
    const found = text.exec(message)
    if (found !== null) return of(found, isOwn)
  }
  return {}
}

/** The first frame of a traceback that is in the model's code: `  path(line): function`. */
function innermost(frames: string, isOwn: IsOwn): Explanation {
  for (const [, file = '', line = ''] of frames.matchAll(/^\s*(\/.*)\((\d+)\): /gm)) {
    if (isOwn(file)) return { near: null, file, line: Number(line) }
  }
  return { near: null }
}
