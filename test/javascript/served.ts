/** Models of the backend `javascript` in repositories, and requests to the server that serves them. */
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { connect, type Client, type InferOptions } from '../../client/src/node.js'
import { TestServer } from '../server/harness.js'

/** Volumes of `npm test -- --nightly`. */
export const IS_NIGHTLY = process.env['NEREID_NIGHTLY'] !== undefined

const HEAD = "import { defineModel, InferenceResponse, Tensor, TritonError } from 'nereid/backend'\n"

const CODE_IO = `
  inputs: { CODE: { datatype: 'BYTES', dims: [1] } },
  outputs: { OUT: { datatype: 'BYTES', dims: [1] } },`

/** The first lines of models that run code: `text` makes a response of a value. `keep` lives as long as the worker. */
const RUNS_CODE = `import { createRequire } from 'node:module'
${HEAD}
const load = createRequire(import.meta.url)
const AsyncFunction = (async () => {}).constructor as FunctionConstructor
const keep: Record<string, unknown> = {}
const text = (value: unknown) =>
  new InferenceResponse([Tensor.fromStrings('OUT', [JSON.stringify(value) ?? 'null'], [1])])
const scope = { load, InferenceResponse, Tensor, TritonError, keep, text }
const names = Object.keys(scope)
`

/** A model that runs the code in its input and returns its value; code that begins with `=` is all of `execute`. */
export const RUNS = `${RUNS_CODE}
export default defineModel({
  ${CODE_IO}
  execute(requests, ctx) {
    const code = requests[0].input('CODE').strings()[0]
    const body = code.startsWith('=') ? code.slice(1) : 'return [text(await (async () => {' + code + '})())]'
    const run = new AsyncFunction('requests', 'request', 'ctx', ...names, body)
    return run(requests, requests[0], ctx, ...Object.values(scope))
  },
})
`

/** A decoupled model whose input is the body of a generator. */
export const STREAMS = `${RUNS_CODE}
const AsyncGenerator = (async function* () {}).constructor as FunctionConstructor
export default defineModel({
  ${CODE_IO}
  async *execute(request, ctx) {
    const run = new AsyncGenerator('request', 'ctx', ...names, request.input('CODE').strings()[0])
    yield* run(request, ctx, ...Object.values(scope))
  },
})
`

/** A model of one FP32 input and output; `body` is that of `execute`, where `answers` makes the responses. */
export const fp32 = (body: string, more = '') => `${HEAD}
const answers = (requests, act = (x) => x) => requests.map((r) => {
  const { data, shape } = r.input('IN')
  return new InferenceResponse([Tensor.from('OUT', data.map(act), shape)])
})
export default defineModel({
  inputs: { IN: { datatype: 'FP32', dims: [-1] } }, outputs: { OUT: { datatype: 'FP32', dims: [-1] } },
  ${more}
  execute(requests, ctx) { ${body} },
})
`

export const DATATYPES = [
  'BOOL',
  'INT8',
  'INT16',
  'INT32',
  'INT64',
  'UINT8',
  'UINT16',
  'UINT32',
  'UINT64',
  'FP16',
  'BF16',
  'FP32',
  'FP64',
  'BYTES',
] as const

/** A model that returns each input of any datatype: `IN_FP32` as `OUT_FP32`. */
export const EVERY_DATATYPE = `${HEAD}
const datatypes = ${JSON.stringify(DATATYPES)}
const named = (prefix, more = {}) =>
  Object.fromEntries(datatypes.map((datatype) => [prefix + datatype, { datatype, dims: [-1], ...more }]))
export default defineModel({
  inputs: named('IN_', { optional: true }),
  outputs: named('OUT_'),
  execute: (requests) => requests.map(({ inputs }) => new InferenceResponse([...inputs.values()].map((input) => {
    const name = input.name.replace('IN', 'OUT')
    return input.datatype === 'BYTES' ? Tensor.fromStrings(name, input.data, input.shape)
      : Tensor.from(name, input.data, input.shape, input.datatype)
  }))),
})
`

export const parameter = (key: string, value: string | number): string =>
  `parameters { key: "nereid.javascript.${key}" value { string_value: "${value}" } }\n`
/** Runs each instance in a process of its own. */
export const IN_PROCESS = parameter('isolation', 'process')

/** A directory with a repository of models. */
export class Repository {
  readonly root = realpathSync(mkdtempSync(join(tmpdir(), 'nereid-javascript-')))
  readonly path = join(this.root, 'models')

  /** Writes a file below the root. */
  write(path: string, text: string): string {
    const file = join(this.root, path)
    mkdirSync(dirname(file), { recursive: true })
    writeFileSync(file, text)
    return file
  }

  /** Writes a model; returns the path of its file. `config` is added to the name of the backend. */
  model(name: string, code: string, config = '', file = 'model.ts'): string {
    if (config !== '') this.write(`models/${name}/config.pbtxt`, `backend: "javascript"\n${config}`)
    return this.write(`models/${name}/1/${file}`, code)
  }

  remove(): void {
    rmSync(this.root, { recursive: true, force: true })
  }
}

/** Inputs of one element. */
const code = (text: string) => ({ CODE: { data: [text], shape: [1], datatype: 'BYTES' as const } })
export const numbers = (...values: number[]) => ({
  IN: { data: new Float32Array(values), shape: [values.length], datatype: 'FP32' as const },
})

/** A server with clients over both protocols. */
export class Served {
  readonly server: TestServer
  readonly http: Client
  readonly grpc: Client

  private constructor(server: TestServer) {
    this.server = server
    // The inputs are whole: no metadata is fetched, which a model that is down has not.
    const options = { check: false, retry: false } as const
    this.http = connect(server.url, options)
    this.grpc = connect(`grpc://127.0.0.1:${server.grpcPort}`, options)
  }

  static async start(repository: Repository, flags: string[] = [], env = process.env, command = ''): Promise<Served> {
    return new Served(await TestServer.start(repository.path, flags, { env, command }))
  }

  /** Ends the server, which exits with 0. */
  async stop(): Promise<void> {
    this.http.close()
    this.grpc.close()
    const status = await this.server.stop()
    if (status !== 0) throw new Error(`the server ended with ${status}:\n${this.server.output().slice(-4000)}`)
  }

  /** Runs code in a model and returns its value. */
  async run(text: string, model = 'runs', options: InferOptions = {}): Promise<unknown> {
    const result = await this.http.infer(model, code(text), options)
    return JSON.parse(result.output('OUT').strings()[0] ?? '')
  }

  /** Code and text of the error of code that fails in a model. */
  async failure(text: string, model = 'runs', options: InferOptions = {}): Promise<string> {
    return failureOf(this.run(text, model, options))
  }

  /** Runs a generator; its values as they come. */
  async *stream(text: string, model = 'streams'): AsyncGenerator<unknown, void, undefined> {
    for await (const result of this.grpc.inferStream(model, code(text)))
      if (result.has('OUT')) yield JSON.parse(result.output('OUT').strings()[0] ?? '')
  }

  async load(name: string): Promise<void> {
    await this.http.load(name)
  }

  async metrics(): Promise<string[]> {
    return (await (await fetch(`http://127.0.0.1:${this.server.metricsPort}/metrics`)).text()).split('\n')
  }

  /** Requests that wait for an instance of a model. */
  async pending(model: string): Promise<number> {
    const name = `nv_inference_pending_request_count{model="${model}"`
    return Number(/ (\d+)$/.exec((await this.metrics()).find((line) => line.startsWith(name)) ?? '')?.[1])
  }

  threads(): number {
    return readdirSync(`/proc/${this.server.process.pid}/task`).length
  }

  descriptors(): number {
    return readdirSync(`/proc/${this.server.process.pid}/fd`).length
  }

  residentMiB(): number {
    const text = readFileSync(`/proc/${this.server.process.pid}/status`, 'utf8')
    return Number(/VmRSS:\s+(\d+)/.exec(text)?.[1]) / 1024
  }
}

export async function failureOf(asked: Promise<unknown>): Promise<string> {
  try {
    return `no error: ${JSON.stringify(await asked)}`
  } catch (error) {
    const { code = '', message } = error as Error & { code?: string }
    return `${code}: ${message}`
  }
}

/** Waits for an asynchronous effect. */
export async function until(what: string, isSo: () => boolean | Promise<boolean>, ms = 20_000): Promise<void> {
  const end = Date.now() + ms
  while (!(await isSo())) {
    if (Date.now() > end) throw new Error(`never: ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
}
