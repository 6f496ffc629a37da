// `nereid check` and `nereid doctor` over models of frameworks: devices, files and parameters.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { parseArguments } from '../../src/cli/parse.js'
import { resolveSettings } from '../../src/cli/settings.js'
import * as check from '../../src/tools/check/index.js'
import { loadProblems } from '../../src/tools/check/load.js'
import * as doctor from '../../src/tools/doctor/index.js'
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
        ),
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
      'r/vino/1/model.xml': '',
      'r/vino/config.pbtxt': config('KIND_GPU'),
      'r/forest/1/xgboost.json': '',
      'r/forest/config.pbtxt':
        'backend: "fil"\ninstance_group [ { kind: KIND_GPU } ]\nparameters { key: "model_type" value { ' +
        'string_value: "xgboost_json" } }\nparameters { key: "is_classifier" value { string_value: "true" } }\n',
      'r/net/1/model.pt': '',
      'r/net/config.pbtxt': 'backend: "pytorch"\ninstance_group [ { kind: KIND_GPU } ]\n',
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

describe('trees', () => {
  const model = (name: string): Buffer =>
    readFileSync(new URL(`../../crates/trees/tests/models/${name}`, import.meta.url))
  const config = (parameters: Record<string, string>, more = ''): string =>
    `backend: "fil"\n${more}${Object.entries(parameters)
      .map(([key, value]) => `parameters { key: "${key}" value { string_value: "${value}" } }\n`)
      .join('')}`
  const cases: [what: string, file: string, type: string, more: string, wanted: string, hint: string][] = [
    [
      'a file of another model_type',
      'xgboost.ubj',
      'xgboost_json',
      '',
      'xgboost.json',
      `there is 'xgboost.ubj': set the parameter 'model_type' to "xgboost_ubj"`,
    ],
    [
      'the default model_type',
      'model.txt',
      '',
      '',
      'xgboost.model',
      `there is 'model.txt': set the parameter 'model_type' to "lightgbm"`,
    ],
    [
      'another name',
      'booster.json',
      'xgboost_json',
      '',
      'xgboost.json',
      `there is 'booster.json': call it 'xgboost.json', or set default_model_filename: "booster.json"`,
    ],
    [
      'default_model_filename',
      'xgboost.json',
      'xgboost_json',
      'default_model_filename: "b.json"\n',
      'b.json',
      `there is 'xgboost.json': call it 'b.json', or set default_model_filename: "xgboost.json"`,
    ],
  ]
  test.each(cases)('a missing file, and a hint about %s', async (_, file, type, more, wanted, hint) => {
    const directory = files({
      [`r/m/1/${file}`]: model('squared.json'),
      'r/m/config.pbtxt': config({ model_type: type, is_classifier: 'false' }, more),
    })
    const reason = `unable to find '${directory}/r/m/1/${wanted}' for model 'm'; ${hint}`
    const { code, out } = await runs(check, [join(directory, 'r')])
    expect([code, out]).toEqual([1, expect.stringContaining(`error: ${reason}\n`)])
    // The place is that of the parameter that the hint names.
    expect(out.includes('config.pbtxt:2:19: error: ')).toBe(hint.includes('model_type'))
    expect(await reasonsOf(join(directory, 'r'))).toEqual([reason])
    expect((await runs(doctor, [join(directory, 'r')])).out).toContain("to change         model m: unable to find '")
  })

  const unserved: [what: string, from: string, parameters: Record<string, string>, place: string, text: string][] = [
    ['is_classifier is missing', 'squared.json', { is_classifier: '' }, '', 'Required parameter is_classifier'],
    ['output_class is wrong', 'squared.json', { output_class: 'yes' }, ':3:19', 'Bad input for parameter output_class'],
    ['threshold is no number', 'squared.json', { threshold: 'half' }, ':3:19', 'Bad input for parameter threshold'],
    ['cpu_nthread is too large', 'squared.json', { cpu_nthread: '1025' }, ':3:19', 'at most 1024 is supported'],
    ['the booster is linear', 'linear.json', {}, '', "the booster 'gblinear' has no trees"],
    ['leaves are linear', 'lgb_linear.txt', {}, '', 'linear_tree=false'],
  ]
  test.each(unserved)('an error if %s, in the words of a load', async (_, from, parameters, place, reported) => {
    const [type, file] = from.endsWith('.txt') ? ['lightgbm', 'model.txt'] : ['xgboost_json', 'xgboost.json']
    const directory = files({
      [`r/m/1/${file}`]: model(from),
      'r/m/config.pbtxt': config({
        model_type: type,
        ...parameters,
        ...('is_classifier' in parameters || 'output_class' in parameters ? {} : { is_classifier: 'false' }),
      }),
    })
    const { code, out } = await runs(check, [join(directory, 'r')], directory)
    expect([code, out]).toEqual([1, expect.stringContaining(reported)])
    expect(out).toContain(place === '' ? './r/m: error: ' : `./r/m/config.pbtxt${place}: error: `)
    const [reason = '?'] = await reasonsOf(join(directory, 'r'))
    expect(out.replaceAll(/\s+/g, ' ')).toContain(reason.replaceAll(/\s+/g, ' '))
    expect((await runs(doctor, [join(directory, 'r')], directory)).out).toContain('to change         model m: ')
  })

  test('an error if the configuration has other dims than the trees', async () => {
    const dims =
      'input [ { name: "input__0" data_type: TYPE_FP32 dims: [ 32 ] } ]\n' +
      'output [ { name: "output__0" data_type: TYPE_FP32 dims: [ 2 ] } ]\nmax_batch_size: 4\n'
    const directory = files({
      'r/m/1/xgboost.json': model('squared.json'),
      'r/m/config.pbtxt': config({ model_type: 'xgboost_json', is_classifier: 'false' }, dims),
    })
    const { code, out } = await runs(check, [join(directory, 'r')], directory)
    const [reason = '?'] = await reasonsOf(join(directory, 'r'))
    expect(reason).toContain("tensor 'input__0': the model expects 2 dimensions (shape [-1,5])")
    expect([code, out]).toEqual([1, expect.stringContaining(reason.trimEnd())])
    expect(out).toContain("tensor 'output__0': the model expects 2 dimensions (shape [-1,1])")
  })

  test('doctor takes an empty file for a placeholder', async () => {
    const directory = files({
      'r/m/1/xgboost.json': '',
      'r/m/config.pbtxt': config({ model_type: 'xgboost_json', is_classifier: 'false' }),
      'lone.pbtxt': config({ model_type: 'catboost', is_classifier: 'false' }),
    })
    expect((await runs(doctor, [join(directory, 'r')], directory)).out).toContain('model m: fil, version 1')
    const { out } = await runs(check, [join(directory, 'lone.pbtxt')], directory)
    expect(out).toContain('./lone.pbtxt:2:19: error: catboost not recognized as a valid serialization format')
  })

  test('a file that is a pointer of Git LFS', async () => {
    const pointer = 'version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 97821345\n'
    const directory = files({
      'r/m/1/xgboost.json': pointer,
      'r/m/config.pbtxt': config({ model_type: 'xgboost_json', is_classifier: 'false' }),
    })
    const { out } = await runs(check, [join(directory, 'r')], directory)
    expect(out).toContain("failed to load model 'm': './r/m/1/xgboost.json' is a pointer of Git LFS")
    const [reason] = await reasonsOf(join(directory, 'r'))
    expect(reason).toContain("xgboost.json' is a pointer of Git LFS and not the file itself")
  })
})
