/** The servers that rows attack: described here, started by the runner when the first row wants one. */
import { config, writeModel } from '../../../scripts/models/repository.mjs'
import { addSub } from '../../../scripts/models/graphs.mjs'

const row = (name, type, dims) => [name, type, dims]

/** The models of every attacked server. */
export function standardModels(root) {
  const pair = (names) => names.map((name) => row(name, 'TYPE_INT32', [16]))
  writeModel(root, 'simple', {
    config: config('onnxruntime', 8, pair(['INPUT0', 'INPUT1']), pair(['OUTPUT0', 'OUTPUT1'])),
    versions: { 1: addSub() },
  })
  for (const [name, type] of [
    ['identity_fp32', 'TYPE_FP32'],
    ['identity_bytes', 'TYPE_STRING'],
    ['identity_uint8', 'TYPE_UINT8'],
  ]) {
    writeModel(root, name, { config: config('identity', 0, [row('INPUT0', type, [-1])], [row('OUTPUT0', type, [-1])]) })
  }
}

/**
 * A server for rows to share.
 *
 * @param name told in the output
 * @param flags further flags of the command line
 * @param models writes models of its own into a repository directory, beside the standard ones
 * @param env further environment
 * @param descriptors `ulimit -n` of the process, null = as it is
 * @param containerMiB memory of a container that the process runs in, null = none; see container.mjs
 * @param program what takes the flags instead of `nereid`, and its words in front of them
 * @param standard false: the repository has only what `models` writes, and the runner does not ask `simple` after each
 * row
 */
export function server(
  name,
  {
    flags = [],
    models = () => {},
    env = {},
    descriptors = null,
    containerMiB = null,
    program,
    standard: hasStandard = true,
  } = {},
) {
  return { name, flags, models, env, descriptors, containerMiB, program, standard: hasStandard, fresh: false }
}

export const standard = server('standard')

/** A process of its own for one row. */
export const fresh = (of) => ({ ...of, fresh: true })
