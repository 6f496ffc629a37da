// `nereid init` in this process: files that are no models, directories, and usage errors.
import { existsSync, readFileSync, readdirSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { addSub } from '../../scripts/models/graphs.mjs'
import { TYPE } from '../../scripts/models/onnx.mjs'
import * as init from '../../src/tools/init/index.js'
import { invocation } from '../../src/config/invocation.js'
import { files, runs } from './harness.js'
import { external, versioned } from './mistakes.js'

const MODEL = addSub(TYPE.FP32, ['batch', 4])
const POINTER =
  'version https://git-lfs.github.com/spec/v1\noid ' +
  'sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 97821345\n'

async function made(
  content: Record<string, string | Uint8Array>,
  source: string,
  args: string[] = [],
): Promise<{ code: number; out: string; err: string; directory: string }> {
  const directory = files(content)
  return {
    ...(await runs(init, [join(directory, source), `--out=${join(directory, 'out')}`, ...args], directory)),
    directory,
  }
}

describe('a file that is no model', () => {
  const cases: [string, string | Uint8Array, RegExp][] = [
    ['a pointer of Git LFS', POINTER, /m\.onnx is a pointer of Git LFS and not the file itself: run `git lfs pull`/],
    ['HTML', '<!DOCTYPE html><html></html>', /m\.onnx is a page of HTML or XML and not a model/],
    ['nothing', '', /m\.onnx is empty/],
    ['half a model', MODEL.subarray(0, -30), /m\.onnx is not an ONNX model: it ends in the middle of a field/],
    [
      'operators that are too new',
      versioned(9, 99),
      /m\.onnx has operators of opset 99, and ONNX Runtime has them up to \d+: export it with opset_version=\d+/,
    ],
    [
      'a format that is too new',
      versioned(99, 19),
      /m\.onnx has IR version 99, and ONNX Runtime reads up to \d+: export it with an older release of the package onnx/,
    ],
    ['a zip archive', 'PK\u0003\u0004rest', /m\.onnx is a zip archive.*torch\.onnx\.export/],
  ]
  test.each(cases)('%s', async (_, bytes, reported) => {
    const { code, out, err, directory } = await made({ 'm.onnx': bytes }, 'm.onnx')
    expect([code, out]).toEqual([1, ''])
    expect(err).toMatch(reported)
    expect(existsSync(join(directory, 'out'))).toBe(false)
  })

  test('weights that are a pointer of Git LFS', async () => {
    const { err } = await made({ 'm.onnx': external('m.data'), 'm.data': POINTER }, 'm.onnx')
    expect(err).toContain("the model keeps data in 'm.data', and that is a pointer of Git LFS")
  })

  const foreign: [string, string][] = [
    ['model.safetensors', 'optimum-cli export onnx'],
    ['model.keras', 'format="onnx"'],
    ['model.h5', '.export("'],
    ['model.graphdef', 'simple_save'],
    ['model.tflite', 'tf2onnx'],
    ['rank0.engine', 'all_models/llmapi'],
    ['model.pkl', 'model.save_model("'],
    ['model.joblib', 'skl2onnx'],
    ['model.cbm', 'CatBoost().load_model'],
    ['model.gguf', 'llama-server'],
  ]
  test.each(foreign)('%s, with the way to a model that is served', async (name, reported) => {
    const { code, err } = await made({ [name]: 'bytes' }, name)
    expect([code, err]).toEqual([1, expect.stringContaining(reported)])
    expect(err).toContain(`${name} `)
    // Likewise for a directory with nothing else in it.
    expect((await made({ [`d/${name}`]: 'bytes' }, 'd')).err).toContain(reported)
  })
})

test('the IR of OpenVINO becomes a repository with its weights', async () => {
  const content = { 'd/yolo.xml': '<net name="yolo"/>', 'd/yolo.bin': 'weights' }
  for (const source of ['d/yolo.xml', 'd']) {
    const { code, out, directory } = await made(content, source)
    expect([code, out]).toEqual([
      0,
      expect.stringContaining('./out/yolo/1/model.xml\n./out/yolo/1/model.bin\n./out/yolo/config.pbtxt\n'),
    ])
    expect(out).toContain('The model does not load yet: ')
    expect(readFileSync(join(directory, 'out/yolo/config.pbtxt'), 'utf8')).toContain('backend: "openvino"')
  }
  const { code, err } = await made({ 'm.xml': '<net/>', 'm.bin': POINTER }, 'm.xml')
  expect([code, err]).toEqual([1, expect.stringContaining('m.bin is a pointer of Git LFS')])
})

test.each(['bin', 'BIN'])('endings in capitals become those that OpenVINO reads; weights in NET.%s', async (end) => {
  const { out } = await made({ 'd/NET.XML': '<net/>', [`d/NET.${end}`]: 'weights' }, 'd/NET.XML')
  expect(out).toContain('./out/NET/1/model.xml\n./out/NET/1/model.bin\n./out/NET/config.pbtxt\n')
})

test('a SavedModel of TensorFlow becomes a repository with all its files', async () => {
  const content = {
    'resnet/1/saved_model.pb': 'graph',
    'resnet/1/variables/variables.index': 'v',
    'resnet/1/assets/words.txt': '',
  }
  for (const source of ['resnet/1', 'resnet/1/saved_model.pb']) {
    const { code, out, directory } = await made(content, source)
    expect([code, out]).toEqual([0, expect.stringContaining('./out/resnet/1/model.savedmodel/saved_model.pb\n')])
    expect(existsSync(join(directory, 'out/resnet/1/model.savedmodel/variables/variables.index'))).toBe(true)
    expect(existsSync(join(directory, 'out/resnet/1/model.savedmodel/assets/words.txt'))).toBe(true)
    expect(out).toContain('The model does not load yet: ')
    expect(readFileSync(join(directory, 'out/resnet/config.pbtxt'), 'utf8')).toContain('backend: "tensorflow"')
  }
})

describe('a model of PyTorch', () => {
  test.each([
    ['net.pt', 'model.pt'],
    ['net.pth', 'model.pt'],
    ['net.pt2', 'model.pt2'],
    ['net.PT2', 'model.pt2'],
  ])('%s is put into a repository, with a configuration to fill in', async (source, target) => {
    // No interpreter with torch is needed: a model that does not load yet is reported.
    const { code, out, err, directory } = await made({ [source]: 'garbage' }, source)
    expect([code, err]).toEqual([0, `reading ./${source}: torch may take up to a minute\n`])
    expect(out).toContain(`./out/net/1/${target}\n./out/net/config.pbtxt\n`)
    expect(out).toContain('The model does not load yet: ')
    const config = readFileSync(join(directory, 'out/net/config.pbtxt'), 'utf8')
    expect(config).toContain(
      'backend: "pytorch"\nmax_batch_size: 0\ninput [\n  { name: "INPUT__0" data_type: TYPE_FP32 dims: [ -1 ' +
        '] }\n]\noutput [\n  { name: "OUTPUT__0"',
    )
    expect(config).toContain('fill them in')
  })

  test('a file that was not fetched is refused', async () => {
    expect(await made({ 'm.pt': POINTER }, 'm.pt')).toMatchObject({
      code: 1,
      err: expect.stringContaining('m.pt is a pointer of Git LFS') as string,
    })
    expect((await made({ 'd/net.pt': 'garbage' }, 'd')).out).toContain('./out/net/1/model.pt')
  })
})

describe('trees', () => {
  const model = (name: string): Buffer =>
    readFileSync(new URL(`../../crates/trees/tests/models/${name}`, import.meta.url))
  const cases: [source: string, from: string, type: string, file: string, isClassifier: boolean][] = [
    ['xgboost.json', 'logistic.json', 'xgboost_json', 'xgboost.json', true],
    ['loan.json', 'squared.json', 'xgboost_json', 'xgboost.json', false],
    ['loan.ubj', 'softprob.ubj', 'xgboost_ubj', 'xgboost.ubj', true],
    ['loan.ubj', 'squared.ubj', 'xgboost_ubj', 'xgboost.ubj', false],
    ['model.txt', 'lgb_multiclass.txt', 'lightgbm', 'model.txt', true],
    ['loan.txt', 'lgb_regression.txt', 'lightgbm', 'model.txt', false],
    ['checkpoint.tl', 'tl_logistic.tl', 'treelite_checkpoint', 'checkpoint.tl', true],
    ['loan.tl', 'tl_doubles.tl', 'treelite_checkpoint', 'checkpoint.tl', false],
    ['loan.model', 'bin_logistic.model', 'xgboost', 'xgboost.model', true],
    // The content decides: XGBoost writes UBJSON into a file of any name.
    ['loan.model', 'logistic.ubj', 'xgboost_ubj', 'xgboost.ubj', true],
  ]
  test.each(cases)(
    '%s, which is %s, becomes a repository that answers',
    async (source, from, type, file, isClassifier) => {
      const { code, out, err, directory } = await made({ [`loan/${source}`]: model(from) }, `loan/${source}`)
      expect([code, err]).toEqual([0, ''])
      expect(out).toContain(`./out/loan/1/${file}\n./out/loan/config.pbtxt\n`)
      // A successful request is printed without a note.
      expect(out).toContain('/v2/models/loan/infer -d \'{"inputs":[{"name":"input__0","datatype":"FP32","shape":[1,')
      expect(out).not.toContain('Note: ')
      const config = readFileSync(join(directory, 'out/loan/config.pbtxt'), 'utf8')
      for (const [key, value] of Object.entries({ model_type: type, is_classifier: `${isClassifier}` }))
        expect(config).toContain(`\nparameters { key: "${key}" value { string_value: "${value}" } }\n`)
      expect(config).toContain('\nmax_batch_size: 4096\n')
    },
  )

  test('a directory with one file of trees is that model, and --batch sets its rows', async () => {
    const { code, out, directory } = await made(
      { 'd/xgboost.ubj': model('logistic.ubj'), 'd/notes.txt': 'notes' },
      'd',
      ['--batch=64'],
    )
    expect([code, out]).toEqual([0, expect.stringContaining('./out/d/1/xgboost.ubj')])
    expect(readFileSync(join(directory, 'out/d/config.pbtxt'), 'utf8')).toContain('\nmax_batch_size: 64\n')
  })

  test('unknown files and tree models that are not supported are rejected', async () => {
    const none =
      /is not a \.onnx, \.pt, \.pt2, \.xml or \.plan file, not trees .*, not JSON with .*, and not a directory with a model\.py/
    const refused: [string, string | Uint8Array, RegExp][] = [
      ['package.json', '{"name":"x"}', none],
      ['notes.txt', 'notes', none],
      ['loan.json', model('squared.json').subarray(0, 300), /loan/],
      ['loan.json', model('linear.json'), /gblinear/],
      ['loan.txt', POINTER, /is a pointer of Git LFS/],
    ]
    for (const [name, bytes, reported] of refused) {
      const { code, out, err, directory } = await made({ [name]: bytes }, name)
      expect([code, out, err]).toEqual([1, '', expect.stringMatching(reported)])
      expect(existsSync(join(directory, 'out'))).toBe(false)
    }
  })
})

describe('a directory', () => {
  test('as optimum-cli writes it is one model', async () => {
    const content = {
      'distilbert/model.onnx': external('model.onnx_data'),
      'distilbert/model.onnx_data': Buffer.from(Float32Array.of(2).buffer),
      'distilbert/tokenizer.json': '{}',
    }
    const { code, out, err, directory } = await made(content, 'distilbert')
    expect([code, err]).toEqual([0, ''])
    expect(out).toContain(
      './out/distilbert/1/model.onnx\n./out/distilbert/1/model.onnx_data\n./out/distilbert/config.pbtxt\n',
    )
    expect(out).toContain('tokenizer.json stays beside the model')
    expect(existsSync(join(directory, 'out/distilbert/1/tokenizer.json'))).toBe(false)
  })

  test('with the model in onnx, or with one of another name', async () => {
    const below = await made({ 'bge/onnx/model.onnx': MODEL, 'bge/config.json': '{}' }, 'bge')
    expect([below.code, below.out]).toEqual([0, expect.stringContaining('./out/bge/1/model.onnx')])
    const named = await made({ 'd/resnet.onnx': MODEL }, 'd')
    expect([named.code, named.out]).toEqual([0, expect.stringContaining('./out/resnet/1/model.onnx')])
  })

  test('with several models is refused, and they are named', async () => {
    const { code, err } = await made({ 'd/encoder.onnx': MODEL, 'd/decoder.onnx': MODEL }, 'd')
    expect([code, err]).toEqual([
      1,
      expect.stringContaining('has several models: decoder.onnx, encoder.onnx; name one of them'),
    ])
  })
})

test('a model or a repository in a cloud is refused, and the message says what to do', async () => {
  const { code, out, err } = await runs(init, ['gs://bucket/m.onnx'])
  expect([code, out]).toEqual([1, ''])
  expect(err).toMatch(/^error: gs:\/\/bucket\/m\.onnx is in a cloud, .* with 'gcloud storage rsync --recursive', and/)
  const written = await runs(init, [join(files({ 'm.onnx': MODEL }), 'm.onnx'), '--out=s3://bucket/models'])
  expect([written.code, written.out]).toEqual([1, ''])
  expect(written.err).toContain("'nereid init' writes only local files: name a directory, and then copy it there")
  expect(existsSync('s3:')).toBe(false)
  const page = readFileSync(new URL('../../docs/clouds.md', import.meta.url), 'utf8')
  for (const scheme of ['s3', 'gs', 'as']) {
    const { err: told } = await runs(init, [`${scheme}://bucket/models`])
    expect(page).toContain(`\`${/with '(.*)', and/.exec(told)?.[1]}\``)
  }
})

describe('output', () => {
  test('npx is added if a shell would not find the program', () => {
    const directory = files({
      'bin/nereid': '',
      'project/node_modules/.bin/nereid': '',
      'project/src/': '',
      'clone/docs/': '',
    })
    const npx = join(directory, 'project/node_modules/.bin')
    const project = join(directory, 'project/src')
    const script = join(directory, 'clone/dist/cli/main.js')
    expect(invocation('nereid', `${npx}:/usr/bin`, project, script)).toBe('npx nereid')
    expect(invocation('nereid', `${npx}:${directory}/bin:/usr/bin`, project, script)).toBe('nereid')
    expect(invocation('nereid', '', join(directory, 'clone/docs'), script)).toBe('npx nereid')
    expect(invocation('nereid', '', directory, script)).toBe(`node ${script}`)
    expect(invocation('nereid', '', directory, '/venv/bin/nereid')).toBe('/venv/bin/nereid')
    // Like npx in a clone: a link in its cache.
    const linked = files({ 'clone/dist/cli/main.js': '', 'cache/node_modules/.bin/': '' })
    symlinkSync(join(linked, 'clone'), join(linked, 'cache/node_modules/nereid'))
    symlinkSync('../nereid/dist/cli/main.js', join(linked, 'cache/node_modules/.bin/nereid'))
    expect(invocation('nereid', '', join(linked, 'clone'), join(linked, 'cache/node_modules/.bin/nereid'))).toBe(
      'npx nereid',
    )
  })
})

test('--example lists the tutorials, writes one, and replaces nothing', async () => {
  const listed = await runs(init, ['--example'])
  expect(listed.code).toBe(0)
  const names = [...listed.out.matchAll(/^ {2}(\S+) {2,}\S.*\.$/gm)].map(([, name]) => name)
  expect(names).toEqual(readdirSync('examples/tutorials').toSorted())
  const out = join(files({}), 'voice')
  const written = ['--example', 'voice', `--out=${out}`]
  expect((await runs(init, written)).code).toBe(0)
  expect(existsSync(join(out, 'models/voice/config.pbtxt'))).toBe(true)
  const again = await runs(init, written)
  expect([again.code, again.err]).toEqual([1, expect.stringContaining('exists: give --out=DIRECTORY, or --force')])
  expect((await runs(init, ['--example=nope'])).err).toContain("there is no example 'nope'; the examples are:")
})
