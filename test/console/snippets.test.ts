/** Programs that the page offers to copy: each one runs, and its answer is that of the page. */
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { parseJson } from '../../client/src/json.js'
import type { Tensor } from '../../client/src/tensor.js'
import { DECOUPLED, REPEAT, config, writeModel } from '../../scripts/models/repository.mjs'
import { Api } from '../../src/console/api.js'
import {
  LANGUAGES,
  snippetOf,
  textSnippetOf,
  type Language,
  type Role,
  type Sample,
} from '../../src/console/snippets.js'
import { infer, requestOf } from '../../src/console/try/call.js'
import { NO_OPTIONS, fieldsOf, inputOf, type Field, type Options } from '../../src/console/try/fields.js'
import type { ModelMetadata } from '../../client/src/types.js'
import { writeTestRepositories } from '../models/generate.mjs'
import { textFolder, writeTextModel } from '../models/text.mjs'
import { ROOT, TestServer } from '../server/harness.js'

const PYTHON = process.env['NEREID_TEST_PYTHON'] ?? join(ROOT, '.venv/bin/python')
const directory = mkdtempSync(join(tmpdir(), 'nereid-console-'))
const repository = join(directory, 'main')
const PNG = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==',
  'base64',
)
let server: TestServer

const SEQUENCE = `sequence_batching { control_input [
  { name: "START" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] },
  { name: "READY" control [ { kind: CONTROL_SEQUENCE_READY int32_false_true: [ 0, 1 ] } ] } ] }\n`

beforeAll(async () => {
  writeTestRepositories(directory)
  const number = (name: string) => [[name, 'TYPE_INT32', [1]]]
  writeModel(repository, 'sums', { config: config('sequence', 2, number('INPUT'), number('OUTPUT'), SEQUENCE) })
  writeModel(repository, 'repeat', { config: config('repeat', 0, ...REPEAT, DECOUPLED) })
  writeTextModel(repository, 'embed', textFolder())
  writeTextModel(repository, 'rerank', textFolder({ labels: ['relevant'] }))
  writeTextModel(repository, 'labels', textFolder({ labels: ['bad', 'good', 'unknown'] }))
  writeFileSync(join(directory, "it's a picture.png"), PNG)
  server = await TestServer.start(repository)
})

afterAll(async () => {
  await server.stop()
  rmSync(directory, { recursive: true })
})

/** The page's `fetch` is of the server's origin. */
class HereApi extends Api {
  override send(path: string, init?: RequestInit): Promise<Response> {
    return super.send(`${server.url}${path}`, init)
  }
}

const api = new HereApi()

/** An answer as it is printed: names, datatypes, shapes and elements; BYTES as hexadecimal digits. */
type Printed = [name: string, datatype: string, shape: number[], elements: unknown[]][]

const RUNNERS: Readonly<Record<Language, (program: string) => Printed>> = {
  curl: (program) => {
    const text = run('sh', ['-c', program])
    const body = text === '' ? readFileSync(join(directory, 'response.bin')).toString('latin1') : text
    const answer = parseJson(text === '' ? body.slice(0, body.indexOf(']}') + 2) : body) as Answer
    return answer.outputs.map(({ name, datatype, shape, data }) => [
      name,
      datatype,
      shape,
      // Bytes of an answer with binary data follow its JSON.
      data === undefined
        ? [body.slice(body.indexOf(']}') + 2)]
        : datatype === 'BYTES'
          ? data.map((one) => Buffer.from(one as string).toString('hex'))
          : data,
    ])
  },
  Python: (program) => {
    const more = [
      '',
      'import json',
      'print("ANSWER", json.dumps([',
      '    [o["name"], o["datatype"], o["shape"],',
      '     [e.hex() if isinstance(e, bytes) else e for e in result.as_numpy(o["name"]).flatten().tolist()]]',
      '    for o in result.get_response()["outputs"]]))',
    ]
    return parseJson(lastLine(run(PYTHON, ['-c', program + more.join('\n')]))) as Printed
  },
  TypeScript: (program) => {
    const more = [
      'const list = (o) => o.datatype === "BYTES" ? o.data.map((e) => Buffer.from(e).toString("hex"))',
      '  : o.datatype === "BOOL" ? Array.from(o.data, (e) => e !== 0)',
      '  : Array.from(/F16|FP16/.test(o.datatype) ? o.floats() : o.data)',
      'const text = JSON.stringify(result.outputs.map((o) => [o.name, o.datatype, o.shape, list(o)]),',
      '  (_, e) => typeof e === "bigint" ? `${e}n` : e).replace(/"(-?\\d+)n"/g, "$1")',
      'console.log("ANSWER", text)',
    ]
    return parseJson(lastLine(script(program + more.join('\n')))) as Printed
  },
}

interface Answer {
  outputs: { name: string; datatype: string; shape: number[]; data?: unknown[] }[]
}

const lastLine = (text: string): string => /ANSWER (.*)$/m.exec(text)?.[1] ?? ''

function run(command: string, args: string[], env: NodeJS.ProcessEnv = {}): string {
  return execFileSync(command, args, { cwd: directory, encoding: 'utf8', env: { ...process.env, ...env } })
}

/** Runs as a module below the package, whose parts it imports by name. Files are in another place. */
const script = (program: string, env: NodeJS.ProcessEnv = {}): string =>
  execFileSync(
    process.execPath,
    ['--input-type=module', '-e', `process.chdir(${JSON.stringify(directory)})\n${program}`],
    { cwd: ROOT, encoding: 'utf8', env: { ...process.env, ...env } },
  )

const printed = (outputs: readonly Tensor[]): Printed =>
  outputs.map((tensor) => {
    const { name, datatype, shape } = tensor
    if (datatype === 'BYTES')
      return [name, datatype, shape, tensor.as('BYTES').map((one) => Buffer.from(one).toString('hex'))]
    if (datatype === 'BOOL') return [name, datatype, shape, Array.from(tensor.as('BOOL'), (one) => one !== 0)]
    const data = /F16|FP16/.test(datatype) ? tensor.floats() : (tensor.data as ArrayLike<number | bigint>)
    // As JSON has them: only integers beyond 2^53 are bigints.
    return [name, datatype, shape, Array.from(data, (one) => (Number.isSafeInteger(Number(one)) ? Number(one) : one))]
  })

async function sample(
  model: string,
  change: Readonly<Record<string, Partial<Field>>> = {},
  options: Partial<Options> = {},
): Promise<Sample> {
  const metadata = (await api.json(`/v2/models/${model}`)) as ModelMetadata
  const read = (await api.json(`/v2/models/${model}/config`)) as Parameters<typeof fieldsOf>[1]
  const fields = fieldsOf(metadata, read).map((field) => ({ ...field, ...change[field.tensor.name] }))
  const inputs = fields.filter(({ isSent }) => isSent).map(inputOf)
  const request = requestOf(model, '', inputs, { ...NO_OPTIONS, ...options })
  return { origin: server.url, request, isStream: false, hasKey: false }
}

/** Runs all programs of a call, and compares with what the page gets. */
async function check(made: Sample, languages = LANGUAGES): Promise<Printed> {
  const { result } = await infer(api, made.request, AbortSignal.timeout(20_000))
  const expected = printed(result.outputs)
  for (const language of languages)
    expect({ language, answer: RUNNERS[language](snippetOf(language, made)) }).toEqual({ language, answer: expected })
  return expected
}

describe('curl, Python and TypeScript give the answer of the page', () => {
  test('for numbers with their shapes', async () => {
    const made = await sample('simple', { INPUT0: { text: '1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16' } })
    expect((await check(made))[0]).toEqual(['OUTPUT0', 'INT32', [1, 16], Array.from({ length: 16 }, (_, i) => i + 2)])
  })

  test('for integers beyond 2^53', async () => {
    const made = await sample('id_int64', { INPUT0: { text: '9007199254740993, -9223372036854775808' } })
    expect((await check(made))[0]?.[3]).toEqual([9007199254740993n, -(2n ** 63n)])
    const unsigned = await sample('id_uint64', { INPUT0: { text: '[[18446744073709551615]]' } })
    expect((await check(unsigned))[0]?.slice(2)).toEqual([[1, 1], [2n ** 64n - 1n]])
  })

  test('for texts with quotes, escapes and lines', async () => {
    const text = 'it\'s "quoted" $HOME `id` \\ \\n é 你好 😀\n<script>alert(1)</script>\n%s %d'
    const made = await sample('id_string', { INPUT0: { source: 'lines', text, dims: ['1', ''] } })
    expect((await check(made))[0]?.[2]).toEqual([1, 3])
    await check(await sample('id_string', { INPUT0: { source: 'text', text } }))
  })

  test('for files, as BYTES and as raw elements', async () => {
    const file = { name: "it's a picture.png", bytes: new Uint8Array(PNG) }
    // JSON of an answer has no bytes, so curl is given a model that returns numbers.
    const made = await sample('id_string', { INPUT0: { source: 'file', file } })
    expect((await check(made, ['Python', 'TypeScript']))[0]?.[3]).toEqual([PNG.toString('hex')])
    const raw = await sample('echo_bytes', { INPUT0: { source: 'file', file } })
    expect((await check(raw))[0]?.[2]).toEqual([PNG.length])
    const text = { name: 'text.txt', bytes: new Uint8Array(Buffer.from('a\nb é')) }
    writeFileSync(join(directory, text.name), text.bytes)
    await check(await sample('id_string', { INPUT0: { source: 'file', file: text } }))
  })

  test('for one file as the only input: a form, a path', async () => {
    const bytes = new Uint8Array(Buffer.from('a\nb é'))
    const form = async (name: string, options: Partial<Options> = {}): Promise<string> => {
      writeFileSync(join(directory, name), bytes)
      const made = await sample('id_string', { INPUT0: { source: 'file', file: { name, bytes } } }, options)
      expect((await check(made))[0]?.[3]).toEqual([Buffer.from(bytes).toString('hex')])
      return snippetOf('curl', made)
    }
    expect(await form('a.txt')).toMatch(/^curl -s 'http.*\/infer' \\\n {2}-F INPUT0=@a\.txt\n$/)
    expect(await form('it\'s; "a", \\b.txt')).toContain('-F \'INPUT0=@"it')
    const parameters = "threshold=0.5\ntext=@a.txt; it's"
    const options = { id: 'a b', priority: '0', timeout: '5000000', parameters }
    expect((await form('a.txt', options)).split(' \\\n  ').slice(2)).toEqual([
      "--form-string 'id=a b'",
      '-F threshold=0.5',
      "--form-string 'text=@a.txt; it'\\''s'",
      '-F priority=0',
      '-F timeout=5000000\n',
    ])
    // A field of these names would have another meaning.
    for (const name of ['id', 'INPUT0', "it's"])
      expect(await form('a.txt', { parameters: `${name}=1` })).not.toContain('-F')
    const typescript = snippetOf(
      'TypeScript',
      await sample('id_string', { INPUT0: { source: 'file', file: { name: 'a.txt', bytes } } }),
    )
    expect(typescript).toContain('client.infer("id_string", { INPUT0: { path: "a.txt" } })')
  })

  test('for filled tensors, which are not written out', async () => {
    for (const source of ['zeros', 'ones'] as const) {
      const made = await sample('classifier', { image: { source } })
      await check(made)
      for (const language of LANGUAGES) expect(snippetOf(language, made).length).toBeLessThan(1000)
    }
    const random = await sample('echo', { INPUT0: { source: 'random', dims: ['2000'] } })
    for (const language of LANGUAGES) {
      const [row] = RUNNERS[language](snippetOf(language, random))
      expect([row?.[1], row?.[2], row?.[3].length]).toEqual(['FP32', [2000], 2000])
      expect(row?.[3].every((one) => (one as number) >= 0 && (one as number) < 1)).toBe(true)
    }
  })

  test('for every datatype, no inputs, no dimensions, and an optional input', async () => {
    for (const type of ['bool', 'uint32', 'int8', 'fp64'])
      await check(await sample(`id_${type}`, { INPUT0: { text: '[[1, 0, 1], [0, 1, 1]]' } }))
    for (const model of ['constant', 'scalar', 'optional']) await check(await sample(model))
  })

  test('for FP16 and BF16, of which JSON has no form: curl gets a file', async () => {
    for (const [model, hex] of [
      ['id_fp16', '003800c0'],
      ['id_bf16', '003f00c0'],
    ] as const) {
      const made = await sample(model, { INPUT0: { text: '0.5, -2' } })
      await check(made, ['Python', 'TypeScript'])
      const [[name, , shape, bytes] = []] = RUNNERS.curl(snippetOf('curl', made))
      expect([name, shape, Buffer.from(String(bytes?.[0]), 'latin1').toString('hex')]).toEqual(['OUTPUT0', [1, 2], hex])
    }
  })

  test('for options and sequences', async () => {
    const options = { id: 'a "b"', priority: '0', timeout: '5000000', parameters: "it's=1\nx=text" }
    await check(await sample('simple', {}, options))
    const sequence = { id: '18446744073709551615', isStart: true, isEnd: true }
    expect((await check(await sample('sums', { INPUT: { text: '5' } }, { sequence })))[0]?.[3]).toEqual([5])
  })
})

test('programs of a stream print its responses', async () => {
  const change = { IN: { text: '7 8' }, DELAY: { text: '0 0' }, WAIT: { text: '0' } }
  const made = { ...(await sample('repeat', change)), isStream: true, grpcPort: server.grpcPort }
  const events = run('sh', ['-c', snippetOf('curl', made)]).matchAll(/^data: (.*)$/gm)
  const data = [...events].map(([, one]) => JSON.parse(one ?? '') as { OUT: number; IDX: number })
  expect(data.map(({ OUT, IDX }) => [OUT, IDX])).toEqual([
    [7, 0],
    [8, 1],
  ])
  const python = snippetOf('Python', made)
  expect(snippetOf('Python', { ...made, grpcPort: undefined })).toContain('127.0.0.1:8001')
  expect(() => snippetOf('Python', { ...made, grpcPort: 0 })).toThrow(/runs without it/)
  const lines = run(PYTHON, ['-c', python]).trim().split('\n')
  expect(lines.toSorted()).toEqual(['IDX [0]', 'IDX [1]', 'OUT [7]', 'OUT [8]'])
  expect([...script(snippetOf('TypeScript', made)).matchAll(/OUT: (\d)/g)].map(([, out]) => out)).toEqual(['7', '8'])
})

test('programs of text models give vectors, scores and classes', async () => {
  const [text, lines] = ['the cat\'s "house"', ['a dog', 'paris']]
  const of = (role: Role, language: Language) =>
    textSnippetOf(language, {
      origin: server.url,
      role,
      model: role === 'classify' ? 'labels' : role,
      text,
      lines,
      hasKey: false,
    })
  const runAll = (role: Role): [Record<string, unknown>[], string] => [
    [
      JSON.parse(run('sh', ['-c', of(role, 'curl')])),
      JSON.parse(run(PYTHON, ['-c', of(role, 'Python').replace(/json\.load\(\w+\)/, 'json.dumps($&)')])),
    ] as Record<string, unknown>[],
    script(of(role, 'TypeScript')),
  ]
  const input = [text, ...lines]
  const { data } = (await api.post('/v1/embeddings', { model: 'embed', input })) as { data: unknown[] }
  const [embedded, vectors] = runAll('embed')
  for (const answer of embedded) expect(answer['data']).toEqual(data)
  expect(vectors.match(/Float32Array\(32\)/g)?.length).toBe(3)
  const { results } = (await api.post('/v1/rerank', { model: 'rerank', query: text, documents: lines })) as {
    results: { index: number; relevance_score: number }[]
  }
  const [ranked, ranking] = runAll('rerank')
  for (const answer of ranked) expect(answer['results']).toEqual(results)
  const order = [...ranking.matchAll(/index: (\d)/g)].map(([, index]) => Number(index))
  expect(order).toEqual(results.map(({ index }) => index))
  const { data: classes } = (await api.post('/v1/classify', { model: 'labels', input: text })) as { data: unknown[] }
  const [classified, named] = runAll('classify')
  for (const answer of [...classified, JSON.parse(named)]) expect(answer['data']).toEqual(classes)
})

test('a program has no key: it reads NEREID_KEY', async () => {
  const secret = 'secret-of-this-test-0123456789'
  const keys = join(directory, 'keys.json')
  const hash = createHash('sha256').update(secret).digest('hex')
  writeFileSync(keys, JSON.stringify({ keys: [{ name: 'a', sha256: hash, scopes: [{ verbs: ['all'] }] }] }))
  const guarded = await TestServer.start(repository, [`--keys-file=${keys}`])
  try {
    const made = { ...(await sample('simple')), origin: guarded.url, hasKey: true }
    const env = { NEREID_KEY: secret }
    for (const language of LANGUAGES) {
      const program = snippetOf(language, made)
      expect(program).not.toContain('secret')
      const text =
        language === 'curl'
          ? run('sh', ['-c', program], env)
          : language === 'Python'
            ? run(PYTHON, ['-c', program], env)
            : script(program, env)
      expect(text).toMatch(/OUTPUT0/)
      expect(text).not.toMatch(/error/i)
    }
  } finally {
    await guarded.stop()
  }
})

test('too many values are not written', async () => {
  const made = await sample('echo', { INPUT0: { text: Array(30_000).fill('1').join(' ') } })
  for (const language of LANGUAGES) expect(() => snippetOf(language, made)).toThrow(/too many values/)
})
