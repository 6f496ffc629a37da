/**
 * `nereid init` of a folder of a text model, as a process: what it writes is served, the printed request is answered,
 * and each guess is in a comment, as `nereid check` prints it. A stand-in of Python runs in the place of the export,
 * which needs torch: `npm run test:heavy -- text`.
 */
import { chmodSync, existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import * as check from '../../src/tools/check/index.js'
import * as init from '../../src/tools/init/index.js'
import { repositoryHint, unversionedHint } from '../../src/config/index.js'
import { invocation } from '../../src/config/invocation.js'
import { Server } from '../../src/index.js'
import { TestServer } from '../server/harness.js'
import { WIDTH, textFolder } from '../models/text.mjs'
import { files, runs } from './harness.js'

type Folder = ReturnType<typeof textFolder>

const below = (path: string, folder: Folder): Folder =>
  Object.fromEntries(Object.entries(folder).map(([name, content]) => [join(path, name), content]))

async function made(content: Folder, args: string[] = []) {
  const directory = files(content)
  const out = join(directory, 'out')
  const result = await runs(init, [join(directory, 'hub'), `--out=${out}`, ...args], directory)
  const at = join(out, 'hub/config.pbtxt')
  return { ...result, directory, models: out, config: existsSync(at) ? readFileSync(at, 'utf8') : '' }
}

/** The answer to the request that was printed. */
async function answerOf(out: string, { httpPort }: TestServer): Promise<Record<string, unknown>> {
  const [, path = '', body = ''] = /localhost:8000(\S+) -d '([^']*)'/.exec(out) ?? []
  const answer = await fetch(`http://127.0.0.1:${httpPort}${path}`, { method: 'POST', body })
  expect(answer.status, body).toBe(200)
  return (await answer.json()) as Record<string, unknown>
}

describe('a folder', () => {
  test('of sentence-transformers embeds: its files are copied without other weights', async () => {
    const more = { 'hub/README.md': 'A model.', 'hub/pytorch_model.bin': 'weights', 'hub/vocab.txt': '[PAD]' }
    const { code, out, err, models, config } = await made({ ...below('hub', textFolder()), ...more })
    expect([code, err]).toEqual([0, ''])
    const copied = [
      '1/model.onnx',
      '1/1_Pooling/config.json',
      '1/config.json',
      '1/config_sentence_transformers.json',
      '1/modules.json',
      '1/sentence_bert_config.json',
      '1/tokenizer.json',
      '1/tokenizer_config.json',
      'config.pbtxt',
    ]
    expect(out).toContain(`${copied.map((file) => `./out/hub/${file}`).join('\n')}\n\nServe it:`)
    for (const line of [
      'max_batch_size: 1024',
      '# pooling (1_Pooling/config.json: pooling_mode_mean_tokens):\n' +
        '# parameters { key: "pooling" value { string_value: "mean" } }',
      '# normalize (modules.json: a module Normalize):\n' +
        '# parameters { key: "normalize" value { string_value: "true" } }',
      '# max_length (sentence_bert_config.json: max_seq_length):\n' +
        '# parameters { key: "max_length" value { string_value: "64" } }',
      '# prompts (config_sentence_transformers.json: prompts): document, query',
    ])
      expect(config).toContain(`\n${line}\n`)
    const checked = await runs(check, [models])
    expect(checked.out).toContain('hub: pooling is mean (1_Pooling/config.json: pooling_mode_mean_tokens)\n')
    expect(checked.out).toContain('1 model, 0 errors, 0 warnings')
    const server = await TestServer.start(models)
    try {
      const { data } = (await answerOf(out, server)) as { data: { embedding: number[] }[] }
      expect(data.map(({ embedding }) => embedding.length)).toEqual([WIDTH])
    } finally {
      await server.stop()
    }
  })

  test('of a cross-encoder reranks, and one of a classifier has its labels', async () => {
    const rerank = await made(below('hub', textFolder({ labels: ['relevant'] })))
    expect([rerank.code, rerank.out]).toEqual([0, expect.stringContaining('/v1/rerank')])
    const classify = await made(below('hub', textFolder({ labels: ['bad', 'good'] })))
    expect([classify.code, classify.out]).toEqual([0, expect.stringContaining('/classify')])
    expect(classify.config).toContain('# labels (config.json: id2label): bad, good\n')
  })

  test('with several graphs has the one that --file names', async () => {
    const { 'model.onnx': graph = '', ...rest } = textFolder()
    const folder = { ...rest, 'onnx/model_a.onnx': graph, 'onnx/model_b.onnx': graph }
    const several = await made(below('hub', folder))
    expect([several.code, several.err]).toEqual([1, expect.stringContaining('model_a.onnx, model_b.onnx')])
    const { code, out, config } = await made(below('hub', folder), ['--file=onnx/model_b.onnx'])
    expect([code, out]).toEqual([0, expect.stringContaining('./out/hub/1/onnx/model_b.onnx\n')])
    expect(out).not.toContain('model_a.onnx')
    expect(config).toContain('\nparameters { key: "file" value { string_value: "onnx/model_b.onnx" } }\n')
  })

  test('that no text model has is refused with the reason, and leaves nothing', async () => {
    const folder = textFolder()
    const { code, err, models } = await made(below('hub', { ...folder, 'tokenizer.json': '{' }))
    expect([code, err]).toEqual([1, expect.stringMatching(/hub is not a text model: .*tokenizer\.json/)])
    expect(existsSync(models)).toBe(false)
  })

  test('whose files are pointers of Git LFS is refused: the text names the file', async () => {
    const pointer = 'version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 97821345\n'
    for (const name of ['model.onnx', 'tokenizer.json']) {
      const folder = { ...textFolder(), [name]: pointer }
      const { err } = await made(below('hub', folder))
      expect(err).toMatch(new RegExp(`hub.*${name}.* is a pointer of Git LFS`))
      const directory = files({ ...below('m/1', folder), 'm/config.pbtxt': 'backend: "text"' })
      const names = new RegExp(`${name}.* is a pointer of Git LFS`)
      expect((await runs(check, [directory])).out).toMatch(names)
      const options = { http: false, grpc: false, metrics: false, exitOnError: false, log: () => {} } as const
      const server = await Server.start({ modelRepository: directory, modelControlMode: 'explicit', ...options })
      await expect(server.load('m')).rejects.toThrow(names)
      await server.stop()
    }
  })
})

describe('a folder without a graph', () => {
  const { 'model.onnx': graph = '', ...rest } = textFolder()
  const folder = { ...below('hub', rest), 'hub/model.safetensors': 'weights' }
  /** A program in the place of Python: it writes the graph, or says why not. */
  const python = (text: string) => ({ ...folder, 'graph.onnx': graph, python: `#!/bin/sh\n${text}\n` })
  const exporting = async (content: Folder) => {
    const directory = files(content)
    chmodSync(join(directory, 'python'), 0o755)
    process.env['NEREID_PYTHON'] = join(directory, 'python')
    try {
      return await runs(init, [join(directory, 'hub'), `--out=${join(directory, 'out')}`, '--export'], directory)
    } finally {
      delete process.env['NEREID_PYTHON']
    }
  }

  test('is refused with the line that exports it', async () => {
    const { code, err } = await made(folder)
    expect([code, err]).toEqual([1, expect.stringMatching(/\n {2}python3 \S+nereid_text_export\.py \S+hub\n/)])
    expect(err).toMatch(/\n {2}.* init \S+hub --export\n$/)
  })

  test('is exported with --export, by the script of the package', async () => {
    const run = await exporting(python('mkdir "$2/onnx" && cp "$2/../graph.onnx" "$2/onnx/model.onnx"; echo "$1"'))
    expect([run.code, run.out]).toEqual([0, expect.stringContaining('./out/hub/1/onnx/model.onnx\n')])
    expect(run.err).toMatch(/backends\/text\/nereid_text_export\.py\n$/)
  })

  test('that cannot be exported is refused with the last words of the script', async () => {
    const run = await exporting(python('echo "a line" >&2; echo "it has no torch" >&2; exit 1'))
    expect([run.code, run.out]).toEqual([1, ''])
    expect(run.err).toMatch(/error: it has no torch\n$/)
  })

  test('is refused by the script without the packages that it needs', async () => {
    const run = await exporting(python('exec python3 -I -S "$@"'))
    expect([run.code, run.err]).toEqual([
      1,
      expect.stringMatching(/has no torch and no transformers.*: \S+ -m pip install torch transformers/),
    ])
  })
})

test('a folder in the place of a repository or of a model is named', () => {
  const hub = join(files(below('hub', textFolder())), 'hub')
  expect(repositoryHint(hub, new Map(), true)).toContain(
    ` is the folder of a text model: ${invocation('nereid')} init ${hub} makes a repository of it, ` +
      'for --model-repository=models',
  )
  expect(unversionedHint(hub, 'hub')).toMatch(new RegExp(` init ${hub} --out=\\S+ makes one$`))
})

describe('check', () => {
  const named = (name: string, ...parameters: [string, string][]) => ({
    ...below(`${name}/1`, textFolder()),
    [`${name}/config.pbtxt`]: [
      'backend: "text"',
      ...parameters.map(([key, value]) => `parameters { key: "${key}" value { string_value: "${value}" } }`),
    ].join('\n'),
  })

  test('warns of an alias that leads to another model', async () => {
    const alias = ['nereid.alias', 'small'] as [string, string]
    const { code, out } = await runs(check, [files({ ...named('a', alias), ...named('b', alias) })])
    expect(code).toBe(0)
    expect(out).toContain("warning: alias 'small' of model 'b' is also an alias of model 'a', which takes precedence")
    expect(out).toContain('2 models, 0 errors, 1 warning')
  })

  test('warns of a parameter that is misspelt', async () => {
    const { out } = await runs(check, [files(named('a', ['normalise', 'false'], ['intra_op_thread_count', '1']))])
    expect(out).toContain("warning: parameter 'normalise' has no effect. Did you mean 'normalize'?")
    expect(out).toContain('1 model, 0 errors, 1 warning')
    const ours = await runs(check, [
      files(named('a', ['nereid.chat.tool_parsers', 'llama3'], ['nereid.other', '1'], ['nereid.python.x', '1'])),
    ])
    expect(ours.out).toContain(
      "warning: parameter 'nereid.chat.tool_parsers' has no effect. Did you mean 'nereid.chat.tool_parser'?",
    )
    expect(ours.out).toContain("warning: parameter 'nereid.other' has no effect")
    expect(ours.out).toContain('1 model, 0 errors, 2 warnings')
  })

  const wrong: [string, string, RegExp][] = [
    ['pooling', 'average', /'pooling'.*'average', expected one of mean, cls, last, max/],
    ['normalize', 'yes', /'normalize'.*'yes', expected one of true, false/],
    ['max_length', '0', /'max_length'.*'0', expected a number of tokens above 0/],
    ['dimensions', '12,x', /'dimensions'.*'12,x', expected `any`, `fixed`, or numbers above 0 with commas/],
    ['file', '../model.onnx', /'file'.*'\.\.\/model\.onnx', expected the path of a file below the version's directory/],
    ['file', 'other.onnx', /other\.onnx is missing/],
    ['prompt', 'passage', /no prompt "passage", it has document, query/],
    ['max_batch_tokens', 'many', /'max_batch_tokens' is 'many': it is a number from 1 to 1048576/],
    ['nereid.text', 'embeddings', /'nereid\.text'.* is 'embeddings', and may be embed, rerank, classify/],
  ]
  test.each(wrong)('refuses %s = %s, as a load does, and says what is possible', async (key, value, text) => {
    const directory = files(named('a', [key, value]))
    const { code, out } = await runs(check, [directory])
    expect([code, out]).toEqual([1, expect.stringMatching(text)])
    expect(out).toContain('1 error')
    const loaded = await runs(check, ['--load', directory])
    expect(loaded.out.replace(/:\d+:\d+/g, '')).toMatch(text)
  })
})
