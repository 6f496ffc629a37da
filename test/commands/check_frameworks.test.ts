// `nereid check` and `nereid doctor` over models of frameworks: devices, files and parameters.
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { parseArguments } from '../../src/cli/parse.js'
import { resolveSettings } from '../../src/cli/settings.js'
import * as check from '../../src/commands/check/index.js'
import { loadProblems } from '../../src/commands/check/load.js'
import * as doctor from '../../src/commands/doctor/index.js'
import { files, runs } from './harness.js'

/** Reasons of the failed loads of a repository. */
async function reasonsOf(repository: string): Promise<string[]> {
  const { settings } = resolveSettings(parseArguments([`--model-repository=${repository}`]))
  return (await loadProblems(settings, [])).map(({ reason }) => reason)
}

describe('kinds of instance groups of a backend that runs on the CPU only', () => {
  const config = (kind: string): string => `backend: "openvino"\ninstance_group [ { kind: ${kind} } ]\n`
  const refused = "unable to load model 'm', Triton OpenVINO backend supports only Kind CPU and AUTO"

  test('KIND_MODEL is an error of check, in the words of a load, with the place', async () => {
    const directory = files({ 'r/m/1/model.xml': '<net/>', 'r/m/config.pbtxt': config('KIND_MODEL') })
    for (const target of ['r', 'r/m/config.pbtxt']) {
      const { code, out } = await runs(check, [join(directory, target)], directory)
      expect([code, out]).toEqual([
        1,
        expect.stringContaining(
          `./r/m/config.pbtxt:2:26: error: ${refused}. Write kind: KIND_CPU, or leave the kind out.`,
        )
      ])
    }
    expect(await reasonsOf(join(directory, 'r'))).toEqual([refused])
    const alone = files({ 'm/config.pbtxt': config('KIND_MODEL') })
    expect((await runs(check, [join(alone, 'm/config.pbtxt')])).out).toContain(refused)
    const fine = files({ 'm/config.pbtxt': config('KIND_CPU') })
    expect((await runs(check, [join(fine, 'm/config.pbtxt')])).code).toBe(0)
  })

  test('doctor says what to change, and where other backends run', async () => {
    const directory = files({
      'r/vino/1/model.xml': '', 'r/vino/config.pbtxt': config('KIND_GPU'),
      'r/forest/1/xgboost.json': '',
      'r/forest/config.pbtxt':
        'backend: "fil"\ninstance_group [ { kind: KIND_GPU } ]\nparameters { key: "model_type" value { ' +
        'string_value: "xgboost_json" } }\nparameters { key: "is_classifier" value { string_value: "true" } }\n',
      'r/net/1/model.pt': '', 'r/net/config.pbtxt': 'backend: "pytorch"\ninstance_group [ { kind: KIND_GPU } ]\n',
    })
    const { out } = await runs(doctor, [join(directory, 'r')], directory)
    const line = (model: string): string =>
      out.split('\n').find((one) => one.includes(`model ${model}: instance_group`)) ?? out
    expect(line('vino')).toMatch(/to change .*runs on the CPU only.*write kind: KIND_CPU/)
    expect(line('forest')).toMatch(/differs .*runs on the CPU, with a warning;.*Models of trees, `KIND_GPU`/)
    expect(line('net')).toMatch(/differs .*runs there if its code or its Python package can use a GPU/)
    expect(out).not.toContain('ONNX Runtime’s CUDA provider')
  })
})
