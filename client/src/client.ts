/// <reference lib="esnext.disposable" preserve="true" />
/** The client, the same over HTTP and gRPC: defaults, checks, retries and deadlines. A `Wire` has the protocol. */

import { Call } from './call.js'
import {
  check,
  checkMembers,
  CUDA,
  jsonOf,
  LOG_UPDATE,
  NAME,
  OBJECT,
  OPTIONS,
  OUTPUT,
  REGION,
  SEQUENCE,
  SYSTEM,
  TEXT,
  TRACE_UPDATE,
} from './check.js'
import { ClientError, invalid } from './errors.js'
import { readFiles, type ReadFile } from './files.js'
import { entriesOf, isComplete, prepare, type Input } from './inputs.js'
import { Metadata } from './metadata.js'
import { Retries } from './retry.js'
import { Sequence } from './sequence.js'
import { InferStream } from './stream.js'
import {
  embedBody,
  embeddingsOf,
  rankingOf,
  rerankBody,
  type EmbedOptions,
  type Embeddings,
  type Ranking,
  type RerankOptions,
} from './text.js'
import {
  modelsOf,
  type AnyModels,
  type InferName,
  type InputsOf,
  type ModelName,
  type OptionsOf,
  type ResultOf,
  type TypedModels,
} from './models.js'
import type {
  CallOptions,
  ConnectOptions,
  CudaRegion,
  IndexRow,
  InferOptions,
  Inputs,
  LoadOptions,
  LogSettings,
  ModelMetadata,
  ModelOptions,
  ModelStatistics,
  OutputRequest,
  ServerMetadata,
  SystemRegion,
  TraceSettings,
  TraceUpdate,
} from './types.js'
import type { InferRequest, Wire } from './wire.js'

/** Region of system shared memory; `region.registration` of `nereid/shm` has this form. */
export interface SystemRegistration {
  key: string
  offset?: number
  byte_size: number
}

/** Exported device memory of this process. */
export interface CudaRegistration {
  /** The 64 bytes of its handle. */
  raw_handle: Uint8Array
  device_id: number
  byte_size: number
}

/**
 * A client of one server. Calls may run at the same time; connections are kept between them.
 *
 * Every method rejects with `ClientError`. Arguments that are arrays must not change until the call is settled.
 */
export class Client<M = AnyModels> {
  readonly #wire: Wire
  readonly #readFile: ReadFile | null
  readonly #options: ConnectOptions
  readonly #retries: Retries | null
  readonly #metadata: Metadata | null
  /**
   * Models by name. `connect<Models>(url)` makes the compiler check them, with the types that `nereid gen ts` writes.
   *
   * ```ts
   * (await client.models.simple.infer({ INPUT0, INPUT1 })).output('OUTPUT0').data // Int32Array
   * ```
   */
  readonly models: TypedModels<M> = modelsOf<M>(this as unknown as Client)

  /** Called by `connect`. */
  constructor(wire: Wire, options: ConnectOptions, readFile: ReadFile | null = null) {
    this.#wire = wire
    this.#readFile = readFile
    this.#options = options
    this.#retries = options.retry === false ? null : new Retries(options.retry)
    this.#metadata =
      options.check === false ? null : new Metadata((call, model, version) => wire.modelMetadata(call, model, version))
  }

  /** The URL without user, password and query. */
  get url(): string {
    return this.#wire.url
  }

  /** Whether the server is live. Resolves with false if it says so; rejects without a connection. */
  live(options: CallOptions = {}): Promise<boolean> {
    return this.#call(options, (call) => this.#wire.live(call))
  }

  /** Whether the server accepts inferences. */
  ready(options: CallOptions = {}): Promise<boolean> {
    return this.#call(options, (call) => this.#wire.ready(call))
  }

  /** Whether the model is ready; false also for an unknown one. */
  modelReady(model: string, options: ModelOptions = {}): Promise<boolean> {
    return this.#ofModel(model, options, (call, version) => this.#wire.modelReady(call, model, version))
  }

  serverMetadata(options: CallOptions = {}): Promise<ServerMetadata> {
    return this.#call(options, (call) => this.#wire.serverMetadata(call))
  }

  modelMetadata(model: string, options: ModelOptions = {}): Promise<ModelMetadata> {
    return this.#ofModel(model, options, (call, version) => this.#wire.modelMetadata(call, model, version))
  }

  /** The configuration with its defaults, in the protocol's JSON form. */
  modelConfig(model: string, options: ModelOptions = {}): Promise<Record<string, unknown>> {
    return this.#ofModel(model, options, (call, version) => this.#wire.modelConfig(call, model, version))
  }

  /** Statistics of one model, or of all. */
  statistics(model = '', options: ModelOptions = {}): Promise<ModelStatistics[]> {
    return this.#call(options, (call) => {
      check('model', model, TEXT)
      return this.#wire.statistics(call, model, versionOf(options))
    })
  }

  /** The contents of the repository; `ready` selects the models that are served. */
  index(options: CallOptions & { ready?: boolean } = {}): Promise<IndexRow[]> {
    return this.#call(options, (call) => this.#wire.index(call, options.ready === true))
  }

  /** Resolves when the model is loaded. Servers allow it with `--model-control-mode=explicit`. */
  async load(model: string, options: LoadOptions = {}): Promise<void> {
    await this.#ofModel(model, options, async (call) => {
      const { config, files = {} } = options
      const text = config === undefined || typeof config === 'string' ? (config ?? null) : jsonOf('config', config)
      if (text === null && Object.keys(files).length > 0) throw invalid(`load of model '${model}': files need a config`)
      await this.#wire.load(call, model, text, Object.entries(files))
    })
    this.#metadata?.forget(model)
  }

  /** Unloads a model; `dependents` includes models that were loaded only for this ensemble. */
  async unload(model: string, options: CallOptions & { dependents?: boolean } = {}): Promise<void> {
    await this.#ofModel(model, options, (call) => this.#wire.unload(call, model, options.dependents === true))
    this.#metadata?.forget(model)
  }

  /** Trace settings of one model, or of all, after an optional `update`. */
  traceSettings(options: CallOptions & { model?: string; update?: TraceUpdate } = {}): Promise<TraceSettings> {
    return this.#call(options, (call) => {
      const { model = '', update = null } = options
      if (update !== null) check('update', update, TRACE_UPDATE)
      return this.#wire.trace(call, model, update)
    })
  }

  logSettings(options: CallOptions & { update?: Partial<LogSettings> } = {}): Promise<LogSettings> {
    return this.#call(options, (call) => {
      const { update = null } = options
      if (update !== null) check('update', update, LOG_UPDATE)
      return this.#wire.log(call, update)
    })
  }

  /** Registers, unregisters and lists regions of system shared memory; without a name, all of them. */
  readonly systemSharedMemory = {
    status: (name = '', options: CallOptions = {}): Promise<SystemRegion[]> =>
      this.#ofRegion(name, options, (call) => this.#wire.systemStatus(call, name)),
    register: (name: string, registration: SystemRegistration, options: CallOptions = {}): Promise<void> =>
      this.#ofRegion(name, options, (call) => {
        checkMembers('registration', registration, SYSTEM, ['key', 'byte_size'])
        const { key, offset = 0, byte_size } = registration
        return this.#wire.systemRegister(call, { name, key, offset, byte_size })
      }),
    unregister: (name = '', options: CallOptions = {}): Promise<void> =>
      this.#ofRegion(name, options, (call) => this.#wire.systemUnregister(call, name)),
  }

  /** Registers, unregisters and lists regions of device memory; without a name, all of them. */
  readonly cudaSharedMemory = {
    status: (name = '', options: CallOptions = {}): Promise<CudaRegion[]> =>
      this.#ofRegion(name, options, (call) => this.#wire.cudaStatus(call, name)),
    register: (name: string, registration: CudaRegistration, options: CallOptions = {}): Promise<void> =>
      this.#ofRegion(name, options, (call) => {
        checkMembers('registration', registration, CUDA, ['raw_handle', 'device_id', 'byte_size'])
        const { raw_handle, device_id, byte_size } = registration
        return this.#wire.cudaRegister(call, { name, device_id, byte_size }, raw_handle)
      }),
    unregister: (name = '', options: CallOptions = {}): Promise<void> =>
      this.#ofRegion(name, options, (call) => this.#wire.cudaUnregister(call, name)),
  }

  /**
   * Sends one request that has one response. The compiler checks the name, inputs and outputs of known models.
   *
   * ```ts
   * const result = await client.infer('simple', { INPUT0: new Int32Array(16), INPUT1: new Int32Array(16) })
   * result.output('OUTPUT0').as('INT32')
   * ```
   */
  infer<N extends InferName<M>>(model: N, inputs: InputsOf<M, N>, options?: OptionsOf<M, N>): Promise<ResultOf<M, N>>
  infer(model: string, inputs: unknown, options: InferOptions = {}): Promise<unknown> {
    return this.#call(options, async (call) =>
      this.#wire.infer(call, await this.#request(call, model, inputs as Inputs, options)),
    )
  }

  /** A sequence of requests; sets their id, START and END. */
  sequence<N extends InferName<M>>(
    model: N,
    options: { id?: number | bigint | string; version?: string | number } = {},
  ): Sequence<M, N> {
    return new Sequence<M, N>(this, model, options)
  }

  /**
   * A stream of requests for any models, with any number of responses each. gRPC only.
   *
   * @throws {ClientError} `UNSUPPORTED` over HTTP
   */
  stream(options: CallOptions = {}): InferStream<M> {
    const call = this.#start(options)
    return new InferStream<M>(
      call,
      this.#attempts(call, () => this.#wire.stream(call)),
      async (model, inputs, more) => {
        checkMembers('options', more, OPTIONS)
        return await this.#request(call, model, inputs, more)
      },
    )
  }

  /** Sends one request to a decoupled model and yields its responses. gRPC only. Leaving the loop cancels it. */
  inferStream<N extends ModelName<M>>(
    model: N,
    inputs: InputsOf<M, N>,
    options?: OptionsOf<M, N>,
  ): AsyncGenerator<ResultOf<M, N>, void, undefined>
  async *inferStream(
    model: string,
    inputs: unknown,
    options: InferOptions = {},
  ): AsyncGenerator<unknown, void, undefined> {
    const stream = this.stream(options) as unknown as InferStream
    try {
      await stream.send(model, inputs as Inputs, options)
      stream.end()
      for await (const { result, error } of stream) {
        if (error !== null) throw error
        yield result
      }
    } finally {
      stream.cancel()
    }
  }

  /** Returns one response of a model as JSON. HTTP only. Members of `body` are inputs by name, and parameters. */
  generate(model: ModelName<M>, body: object, options: ModelOptions = {}): Promise<Record<string, unknown>> {
    return this.#ofModel(model, options, (call, version) => {
      check('body', body, OBJECT)
      return this.#wire.generate(call, model, version, body)
    })
  }

  /** Yields each response as it arrives. HTTP only. Leaving the loop cancels the request. */
  async *generateStream(
    model: ModelName<M>,
    body: object,
    options: ModelOptions = {},
  ): AsyncGenerator<Record<string, unknown>, void, undefined> {
    const call = this.#start(options)
    check('model', model, NAME)
    check('body', body, OBJECT)
    yield* this.#wire.generateStream(call, model, versionOf(options), body)
  }

  /**
   * Vectors of texts. HTTP only.
   *
   * ```ts
   * const { vectors, tokens } = await client.embed(['a text', 'another one'], { model: 'minilm' })
   * ```
   */
  embed(texts: string | readonly string[], options: EmbedOptions = {}): Promise<Embeddings> {
    return this.#call(options, async (call) =>
      embeddingsOf(call, await this.#wire.text(call, '/v1/embeddings', embedBody(texts, options))),
    )
  }

  /** Texts in the order in which they answer the query. HTTP only. */
  rerank(query: string, texts: readonly string[], options: RerankOptions = {}): Promise<Ranking> {
    return this.#call(options, async (call) => {
      check('query', query, TEXT)
      return rankingOf(call, await this.#wire.text(call, '/v1/rerank', rerankBody(query, texts, options)))
    })
  }

  /** Closes the connections. Pending calls fail. */
  close(): void {
    this.#wire.close()
  }

  [Symbol.dispose](): void {
    this.close()
  }

  async #request(call: Call, model: string, inputs: Inputs, options: InferOptions): Promise<InferRequest> {
    check('model', model, NAME)
    const { id = '', outputs = [], parameters = {}, sequence = null, priority = null, binaryInputs = true } = options
    if (sequence !== null) checkMembers('sequence', sequence, SEQUENCE, ['id'])
    const version = versionOf(options)
    const requested = outputs.map(outputOf)
    return {
      model,
      version,
      id,
      inputs: await this.#inputs(call, model, version, inputs),
      outputs: requested,
      binaryInputs,
      parameters: Object.entries(parameters),
      sequence,
      priority,
      timeoutUs:
        options.timeoutUs ?? (call.remainingMs === Infinity ? null : Math.max(1, Math.round(call.remainingMs * 1000))),
      compress: options.compress ?? this.#options.compress ?? null,
    }
  }

  /** A reloaded model may have other inputs than the cached ones. */
  async #inputs(call: Call, model: string, version: string, inputs: Inputs): Promise<Input[]> {
    const read = readFiles(entriesOf(inputs), this.#readFile)
    const entries = read instanceof Promise ? await read : read
    if (this.#metadata === null) return prepare(model, entries, null)
    const { metadata, isFresh } =
      this.#metadata.known(model, version) ?? (await this.#metadata.ask(call, model, version, isComplete(entries)))
    try {
      return prepare(model, entries, metadata)
    } catch (error) {
      if (isFresh) throw error
      return prepare(model, entries, (await this.#metadata.ask(call, model, version, false)).metadata)
    }
  }

  /** @throws {ClientError} `INVALID_ARG` for an invalid option */
  #start(options: CallOptions): Call {
    checkMembers('options', options, OPTIONS)
    return new Call(options, { deadlineMs: this.#options.deadlineMs, requestId: (options as InferOptions).id ?? '' })
  }

  async #call<T>(options: CallOptions, make: (call: Call) => Promise<T>): Promise<T> {
    const call = this.#start(options)
    return await this.#attempts(call, () => make(call))
  }

  #ofModel<T>(model: string, options: ModelOptions, make: (call: Call, version: string) => Promise<T>): Promise<T> {
    return this.#call(options, (call) => {
      check('model', model, NAME)
      return make(call, versionOf(options))
    })
  }

  #ofRegion<T>(name: string, options: CallOptions, make: (call: Call) => Promise<T>): Promise<T> {
    return this.#call(options, (call) => {
      check('name', name, TEXT)
      return make(call)
    })
  }

  async #attempts<T>(call: Call, make: () => Promise<T>): Promise<T> {
    for (let attempt = 1; ; attempt += 1) {
      const ended = call.ended(false)
      if (ended !== null) throw ended
      try {
        const value = await make()
        this.#retries?.save()
        return value
      } catch (error) {
        // Other errors are bugs of this package, and stay distinct from failures.
        if (!(error instanceof ClientError)) throw error
        const wait = this.#retries?.next(attempt, error, call.remainingMs) ?? null
        if (wait === null) throw error
        await call.wait(wait)
      }
    }
  }
}

const versionOf = ({ version = '' }: { version?: string | number }): string => String(version)

function outputOf(output: string | OutputRequest, i: number): OutputRequest {
  const place = `outputs[${i}]`
  if (typeof output === 'string') return { name: output }
  checkMembers(place, output, OUTPUT, ['name'])
  if (output.parameters !== undefined)
    checkMembers(`${place}.parameters`, output.parameters, REGION, ['shared_memory_region', 'shared_memory_byte_size'])
  return output
}
