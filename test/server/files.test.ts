/**
 * Files as requests, by curl, by forms of `fetch` and by JSON: what was sent comes back with its shape and datatype.
 * Bodies that Triton reads as JSON keep their meaning whatever their content type is.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { capture } from '../../scripts/lib/run.mjs'
import { config, writeModel } from '../../scripts/models/repository.mjs'
import { repositories, TestServer } from './harness.js'

interface Answer {
  outputs: { name: string; datatype: string; shape: number[]; data: (string | number)[] }[]
  error?: string
}

const models = repositories()
const work = mkdtempSync(join(tmpdir(), 'nereid-files-'))
const DOG = join(work, 'dog.png')
const BIG = join(work, 'big.bin')
let server: TestServer

beforeAll(async () => {
  writeFileSync(DOG, 'dog')
  writeFileSync(BIG, Buffer.alloc(3_000_000, 'ab'))
  const root = models.path('main')
  const echo = (batch: number, inputs: string[], type: string, dims: number[]): string =>
    config(
      'identity',
      batch,
      inputs.map((name) => [name, type, dims]),
      inputs.map((name) => [name.replace('INPUT', 'OUTPUT'), type, dims]),
    )
  writeModel(root, 'file', { config: echo(8, ['INPUT0'], 'TYPE_STRING', [1]) })
  writeModel(root, 'two_files', { config: echo(0, ['INPUT0', 'INPUT1'], 'TYPE_STRING', [1]) })
  writeModel(root, 'octets', { config: echo(8, ['INPUT0'], 'TYPE_UINT8', [-1]) })
  server = await TestServer.start(root, [])
})
afterAll(async () => {
  await server.stop()
  models.remove()
  rmSync(work, { recursive: true })
})

/** Runs curl with a path of a model behind its arguments. */
async function curl(path: string, ...args: string[]): Promise<Answer> {
  const url = `http://127.0.0.1:${server.httpPort}/v2/models/${path}`
  const { code, text } = await capture('curl', ['-sS', url, ...args], { quiet: true })
  expect(code, text).toBe(0)
  return JSON.parse(text) as Answer
}

const one = (answer: Answer) => answer.outputs.map(({ name, datatype, shape, data }) => [name, datatype, shape, data])

describe('curl', () => {
  test.each(['image/png', 'audio/wav', 'video/mp4', 'application/octet-stream', 'application/pdf', 'text/plain'])(
    'a body of %s is the only input, and the answer is JSON',
    async (type) => {
      const answer = await curl('file/infer', '--data-binary', `@${DOG}`, '-H', `Content-Type: ${type}`)
      expect(one(answer)).toEqual([['OUTPUT0', 'BYTES', [1, 1], ['dog']]])
    },
  )

  test('fields of a form are rows of a batch', async () => {
    const answer = await curl('file/infer', '-F', `image=@${DOG}`, '-F', `INPUT0=@${DOG};type=image/png`)
    expect(one(answer)).toEqual([['OUTPUT0', 'BYTES', [2, 1], ['dog', 'dog']]])
  })

  test('fields are inputs by their names; texts are values', async () => {
    const answer = await curl('two_files/infer', '-F', 'INPUT1=a text', '-F', `INPUT0=@${DOG}`, '-F', 'top=3')
    expect(one(answer)).toEqual([
      ['OUTPUT0', 'BYTES', [1], ['dog']],
      ['OUTPUT1', 'BYTES', [1], ['a text']],
    ])
    expect(one(await curl('octets/infer', '-F', 'INPUT0=[1, 2, 255]'))).toEqual([
      ['OUTPUT0', 'UINT8', [1, 3], [1, 2, 255]],
    ])
    expect(one(await curl('octets/infer', '-F', `x=@${DOG}`))).toEqual([['OUTPUT0', 'UINT8', [1, 3], [100, 111, 103]]])
  })

  test('generate takes files too', async () => {
    expect(await curl('file/generate', '-F', `image=@${DOG}`)).toMatchObject({ OUTPUT0: 'dog', model_name: 'file' })
  })

  test('an answer is binary if that was asked for', async () => {
    for (const args of [
      ['-F', `image=@${BIG}`, '-H', 'Accept: application/octet-stream'],
      ['-F', `image=@${BIG}`, '-F', 'binary_data_output=true'],
      ['--data-binary', `@${BIG}`, '-H', 'Content-Type: image/png', '-H', 'Accept: application/octet-stream'],
    ]) {
      const out = join(work, 'out')
      const heads = join(work, 'heads')
      const url = `http://127.0.0.1:${server.httpPort}/v2/models/file/infer`
      const { code } = await capture('curl', ['-sS', url, '-o', out, '-D', heads, ...args], { quiet: true })
      expect(code).toBe(0)
      const head = Number(/inference-header-content-length: (\d+)/i.exec(readFileSync(heads, 'utf8'))?.[1])
      const body = readFileSync(out)
      expect(body.length - head).toBe(3_000_004)
      expect(body.subarray(head + 4).equals(readFileSync(BIG))).toBe(true)
    }
  })

  test('a file that has no input, and a wrong shape, are named', async () => {
    const send = ['--data-binary', `@${DOG}`, '-H', 'Content-Type: image/png']
    expect((await curl('two_files/infer', ...send)).error).toBe(
      "a file without the name of an input, for model 'two_files', which has the inputs 'INPUT0' (BYTES), 'INPUT1' " +
        "(BYTES): send a form with a field of that name (curl -F 'INPUT=@FILE')",
    )
    const twice = ['-F', `INPUT0=@${DOG}`, '-F', `INPUT0=@${DOG}`, '-F', `INPUT1=@${DOG}`]
    expect((await curl('two_files/infer', ...twice)).error).toBe(
      "input 'INPUT0' of model 'two_files' has the shape [1], which 2 files do not fill; the model does not batch: " +
        'send each file in a request of its own',
    )
    const batch = Array.from({ length: 9 }, () => ['-F', `a=@${DOG}`]).flat()
    expect((await curl('file/infer', ...batch)).error).toContain('inference request batch-size must be <= 8')
    expect((await curl('file/infer', ...send.slice(0, 2), '-H', 'Content-Type: multipart/form-data')).error).toContain(
      'needs a boundary',
    )
    // Without a content type a file is no JSON, as in Triton.
    expect((await curl('file/infer', ...send.slice(0, 2))).error).toBe(
      'failed to parse the request JSON buffer: Invalid value. at 0',
    )
  })

  test.each(['image/png', 'multipart/form-data; boundary=b', 'application/octet-stream', 'text/plain', 'audio/wav'])(
    'a body of JSON under %s keeps its meaning',
    async (type) => {
      const json = '\n {"inputs":[{"name":"INPUT0","datatype":"BYTES","shape":[1,1],"data":["a"]}]}'
      const answer = await curl('file/infer', '--data-binary', json, '-H', `Content-Type: ${type}`)
      expect(one(answer)).toEqual([['OUTPUT0', 'BYTES', [1, 1], ['a']]])
      const generate = await curl('file/generate', '--data-binary', '{"INPUT0":"a"}', '-H', `Content-Type: ${type}`)
      expect(generate).toMatchObject({ OUTPUT0: 'a' })
    },
  )
})

describe('fetch', () => {
  const post = async (path: string, body: FormData | Blob | string): Promise<Answer> => {
    const url = `http://127.0.0.1:${server.httpPort}/v2/models/${path}`
    return (await (await fetch(url, { method: 'POST', body })).json()) as Answer
  }

  test('a FormData of files and a Blob', async () => {
    const form = new FormData()
    form.append('INPUT0', new File(['\x00\r\n'], 'a"b\r\n.bin'))
    form.append('any', new Blob(['second']))
    expect(one(await post('file/infer', form))).toEqual([['OUTPUT0', 'BYTES', [2, 1], ['\x00\r\n', 'second']]])
    expect(one(await post('file/infer', new Blob(['b'], { type: 'image/webp' })))).toEqual([
      ['OUTPUT0', 'BYTES', [1, 1], ['b']],
    ])
  })

  test('base64 in JSON, by a parameter of the input', async () => {
    const body = (data: string[], parameters: object, datatype = 'BYTES'): string =>
      JSON.stringify({ inputs: [{ name: 'INPUT0', datatype, shape: [data.length, 1], parameters, data }] })
    const base64 = { content_encoding: 'base64' }
    expect(one(await post('file/infer', body(['AGE=', ''], base64)))).toEqual([
      ['OUTPUT0', 'BYTES', [2, 1], ['\x00a', '']],
    ])
    expect((await post('file/infer', body(['AGE=', 'A GE'], base64))).error).toBe(
      "element 1 of input 'INPUT0' is not base64, which 'content_encoding' requires: Invalid symbol 32, offset 1.",
    )
    expect((await post('file/infer', body(['a'], { content_encoding: 'gzip' }))).error).toBe(
      "'content_encoding' of input 'INPUT0' must be 'base64', for datatype BYTES; got 'gzip' for BYTES",
    )
    // Triton ignores parameters of inputs that it does not know.
    expect(one(await post('file/infer', body(['AGE='], { content_type: 'base64' })))).toEqual([
      ['OUTPUT0', 'BYTES', [1, 1], ['AGE=']],
    ])
  })
})
