// `nereid check` of wrong repositories: each mistake is reported with its place and the reason, and a load agrees.
import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import { PYTHON } from '../../scripts/lib/venv.mjs'
import { TYPE, model, node, value } from '../../scripts/models/onnx.mjs'
import { parseArguments } from '../../src/cli/parse.js'
import { resolveSettings } from '../../src/cli/settings.js'
import * as check from '../../src/tools/check/index.js'
import { loadProblems } from '../../src/tools/check/load.js'
import { IR_VERSION_MAX, OPSET_MAX } from '../../src/repository/onnx_file.js'
import { ROOT, repositories } from '../server/harness.js'
import { files, runs } from './harness.js'
import { MISTAKES } from './mistakes.js'

const FLAGS = [`--backend-config=python,python-executable=${PYTHON}`]

test('there are forty mistakes and more', () => {
  expect(new Set(MISTAKES.map(({ name }) => name)).size).toBeGreaterThanOrEqual(40)
})

describe('a mistake', () => {
  test.each(MISTAKES)(
    '$name',
    async ({ files: content, reported, isWarning, needsLoad }) => {
      const directory = files(content)
      const { code, out } = await runs(check, [...FLAGS, ...(needsLoad === true ? ['--load'] : []), directory])
      const text = out.replaceAll(`${directory}/`, '')
      for (const part of reported) expect(text).toContain(part)
      expect(text).toMatch(
        isWarning === true ? /, 0 errors, [1-9]\d* warnings?\n$/ : /, [1-9]\d* errors?, \d+ warnings?\n$/,
      )
      expect(code).toBe(isWarning === true ? 0 : 1)
      // Without the texts of a load, which repeat three times that there is a mistake.
      expect(text).not.toMatch(/load failed for model|UNAVAILABLE state/)
      const loaded = await loadProblems(
        resolveSettings(parseArguments([...FLAGS, `--model-repository=${directory}`])).settings,
        [],
      )
      expect(loaded.length > 0, JSON.stringify(loaded)).toBe(isWarning !== true)
    },
    120_000,
  )
})

describe('correct deployments', () => {
  const generated = repositories()
  afterAll(() => generated.remove())

  test('models that load are not called wrong', async () => {
    // Repositories recorded with Triton are right and wrong in unexpected ways.
    const recorded = [
      ['golden', 'broken'],
      ['golden-steps', 'sequence_bad'],
    ].map(([name = '', repository = '']) => {
      const directory = join(files({}), name)
      execFileSync(PYTHON, [join(ROOT, 'test', name, 'models.py'), directory, repository])
      return join(directory, repository)
    })
    for (const directory of [generated.path('main'), generated.path('small'), ...recorded]) {
      const { out } = await runs(check, [...FLAGS, '--format=json', directory])
      const { problems, models } = JSON.parse(out) as {
        problems: { severity: string; model: string; message: string }[]
        models: number
      }
      expect(models).toBeGreaterThan(1)
      const wrong = problems.filter(({ severity }) => severity === 'error')
      if (wrong.length === 0) continue
      const loaded = await loadProblems(
        resolveSettings(parseArguments([...FLAGS, `--model-repository=${directory}`])).settings,
        [],
      )
      const failed = new Set(loaded.map((problem) => problem.model))
      expect(
        wrong.filter(({ model: name }) => !failed.has(name)),
        directory,
      ).toEqual([])
    }
  }, 300_000)

  test('a shape that ONNX Runtime infers is not missed in the file', async () => {
    // The file leaves the shape of OUT open, and then its last dimension; ONNX Runtime infers both.
    const graph = (shape: (number | string)[] | null): Buffer =>
      model({
        nodes: [node('Identity', ['IN'], ['OUT'])],
        inputs: [value('IN', TYPE.FP32, ['batch', 16])],
        outputs: [
          shape === null
            ? [value('OUT', TYPE.FP32, [])[0] as Buffer, Buffer.of(0x12, 4, 0x0a, 2, 8, 1)]
            : value('OUT', TYPE.FP32, shape),
        ],
      })
    const config =
      'backend: "onnxruntime"\nmax_batch_size: 4\ninput [ { name: "IN" data_type: TYPE_FP32 dims: [ 16 ] } ' +
      ']\noutput [ { name: "OUT" data_type: TYPE_FP32 dims: [ 16 ] } ]\n'
    for (const shape of [null, ['batch', 'found']]) {
      const directory = files({ 'm/1/model.onnx': graph(shape), 'm/config.pbtxt': config })
      expect(
        await loadProblems(resolveSettings(parseArguments([`--model-repository=${directory}`])).settings, []),
        JSON.stringify(shape),
      ).toEqual([])
      expect((await runs(check, [directory])).out).toBe('1 model, 0 errors, 0 warnings\n')
    }
  }, 60_000)
})

test('the newest formats that are named are those of ONNX Runtime', async () => {
  const graph = (ir: number, opset: number): Buffer => {
    const bytes = model({
      nodes: [node('Identity', ['IN'], ['OUT'])],
      inputs: [value('IN', TYPE.FP32, ['n'])],
      outputs: [value('OUT', TYPE.FP32, ['n'])],
    })
    bytes[1] = ir
    bytes[bytes.length - 1] = opset
    return bytes
  }
  const loads = async (ir: number, opset: number): Promise<boolean> => {
    const directory = files({ 'm/1/model.onnx': graph(ir, opset) })
    return (
      (await loadProblems(resolveSettings(parseArguments([`--model-repository=${directory}`])).settings, [])).length ===
      0
    )
  }
  expect(await loads(IR_VERSION_MAX, OPSET_MAX)).toBe(true)
  expect(await loads(IR_VERSION_MAX + 1, OPSET_MAX)).toBe(false)
  expect(await loads(IR_VERSION_MAX, OPSET_MAX + 1)).toBe(false)
}, 60_000)

test('a load reports the real type of a file after the text of ONNX Runtime', async () => {
  for (const [name, reported] of [
    ['a pointer of Git LFS', /failed:Protobuf parsing failed\.; the file is a pointer of Git LFS/],
    ['an empty file', /does not have a graph\.; the file is empty/],
  ] as const) {
    const directory = files(MISTAKES.find((mistake) => mistake.name === name)?.files ?? {})
    const [failed] = await loadProblems(
      resolveSettings(parseArguments([`--model-repository=${directory}`])).settings,
      [],
    )
    expect(failed?.reason).toMatch(reported)
  }
}, 60_000)

describe('--format=github', () => {
  test('each problem is a command, with its terminators escaped', async () => {
    const directory = files({
      'a,b:c/1/': '',
      'a,b:c/config.pbtxt': 'backend: "onnxruntime"\nmax_batchsize: 8\n',
      'm/v1/': '',
      'm/config.pbtxt': 'backend: "onnxruntime"\n',
    })
    const { code, out } = await runs(check, ['--format=github', directory], directory)
    expect(code).toBe(1)
    expect(out).toMatchInlineSnapshot(`
      "::error file=./a%2Cb%3Ac/config.pbtxt,line=2,col=1,endColumn=14,title=nereid check::Message type "inference.ModelConfig" has no field named "max_batchsize". Did you mean "max_batch_size"?
      ::warning file=./m,title=nereid check::ignore version directory 'v1' which fails to convert to integral number. A version is called by its number: '1'.
      ::error file=./m,title=nereid check::at least one version must be available under the version policy of model 'm'
      2 models, 2 errors, 1 warning
      "
    `)
  })

  test('a traceback is one command', async () => {
    const directory = files({
      'm/1/model.py': 'import nereid_no_such_module\nclass TritonPythonModel:\n    pass\n',
      'm/config.pbtxt': 'backend: "python"\n',
    })
    const { out } = await runs(check, ['--format=github', '--load', ...FLAGS, directory], directory)
    expect(out).toMatch(
      /^::error file=\.\/m\/1\/model\.py,line=1,col=1,endColumn=29,title=nereid check::ModuleNotFoundError: No module named 'nereid_no_such_module'%0A%0AAt:%0A.*\n1 model, 1 error, 0 warnings\n$/,
    )
  }, 60_000)

  test.each([
    ['--laod', "check has no option '--laod'; did you mean '--load'?"],
    ['--load=maybe', '--load takes no value'],
    ['--mdoel-repository=x', "unrecognized option '--mdoel-repository'; did you mean '--model-repository'?"],
  ])('%s is refused, with what was meant', async (option, text) => {
    const { code, err } = await runs(check, [option, '.'])
    expect([code, err]).toEqual([1, expect.stringContaining(text)])
  })

  test('other formats are refused', async () => {
    const { code, err } = await runs(check, ['--format=xml', '.'])
    expect([code, err]).toEqual([1, expect.stringContaining("--format is text or json or github; got 'xml'")])
  })
})
