/** On a machine with GPUs, each backend's instances are where docs/gpu.md says. The driver is a stand-in. */
import { afterAll, expect, test } from 'vitest'
import * as check from '../../src/tools/check/index.js'
import { backendRow } from '../../src/config/index.js'
import { ModelInstanceGroup_Kind as Kind } from '../../src/config/generated/model_config_pb.js'
import { resolveSettings } from '../../src/cli/settings.js'
import { parseArguments } from '../../src/cli/parse.js'
import { inspectRepositories } from '../../src/repository/index.js'
import { files, runs } from '../commands/harness.js'
import { Mocks } from './mocks.js'

const mocks = new Mocks()
// The native module looks for the driver once, when the first test needs it.
Object.assign(process.env, mocks.environment())
afterAll(() => mocks.remove())

const NAMES = new Map(Object.entries(Kind).map(([name, kind]) => [kind, name]))
const IO =
  'input [ { name: "X__0" data_type: TYPE_FP32 dims: [ 1 ] } ]\noutput [ { name: "Y__0" data_type: TYPE_FP32 ' +
  'dims: [ 1 ] } ]\n'

/** The kinds of a model's groups, or the errors of its load. */
async function placed(backend: string, groups: string, platform = ''): Promise<unknown> {
  const row = backendRow(backend)
  const [file = { name: Object.values(row?.chosen ?? {})[0] ?? '', kind: 'file' }] = row?.files ?? []
  const path = file.kind === 'directory' ? `r/m/1/${file.name}/saved_model.pb` : `r/m/1/${file.name}`
  const is_classifier = 'parameters { key: "is_classifier" value { string_value: "true" } }'
  const text = `backend: "${backend}"\n${platform}${IO}${groups}${backend === 'fil' ? is_classifier : ''}`
  // Trees are read; an empty file is a placeholder.
  const directory = files({ [path]: backend === 'fil' ? '' : 'bytes', 'r/m/config.pbtxt': text })
  const { settings } = resolveSettings(parseArguments([`--model-repository=${directory}/r`]))
  const [model] = await inspectRepositories(settings.repository, 'configuration')
  const errors = (model?.findings ?? []).filter(({ severity }) => severity === 'error')
  return errors[0]?.message ?? model?.completed?.instanceGroup.map(({ kind }) => NAMES.get(kind)).join()
}

const REFUSED = "unable to load model 'm', Triton OpenVINO backend supports only Kind CPU and AUTO"

test.each([
  ['pytorch', '', 'GPU'],
  ['tensorflow', '', 'GPU'],
  ['openvino', '', 'CPU'],
  ['javascript', '', 'CPU'],
  ['fil', '', 'CPU'],
  ['pytorch', 'instance_group [ { kind: KIND_MODEL } ]', 'MODEL'],
  ['fil', 'instance_group [ { kind: KIND_GPU } ]', 'CPU'],
  ['openvino', 'instance_group [ { kind: KIND_CPU } ]', 'CPU'],
  ['openvino', 'instance_group [ { kind: KIND_GPU } ]', REFUSED],
  ['openvino', 'instance_group [ { kind: KIND_MODEL } ]', REFUSED],
])('%s with the groups "%s": %s', async (backend, groups, expected) => {
  const platform = backend === 'tensorflow' ? 'platform: "tensorflow_savedmodel"\n' : ''
  expect(await placed(backend, groups, platform)).toBe(expected)
})

test('nereid check shows the kind that the load refuses', async () => {
  const directory = files({
    'r/m/1/model.xml': '<net/>',
    'r/m/config.pbtxt': 'backend: "openvino"\ninstance_group [ { kind: KIND_GPU } ]\n',
  })
  const { code, out } = await runs(check, [`${directory}/r`], directory)
  expect(code).toBe(1)
  expect(out).toContain(`./r/m/config.pbtxt:2:26: error: ${REFUSED}. Write kind: KIND_CPU, or leave the kind out.`)
})
