/**
 * Makes the `Core` of contract.ts out of the class the native module exports.
 *
 * The native class starts calls under a ticket and reports their ends through one callback; here tickets become promises, numbers
 * become error codes, and tagged values become plain ones. Nothing is decided here.
 */

import {
  type CustomFamily,
  type ControlCall,
  type Core,
  type CoreOptions,
  ERROR_CODES,
  type EmbeddedAnswer,
  type EmbeddedCall,
  type EmbeddedCallAnswer,
  type EmbeddedRequest,
  type ErrorCode,
  type GivenSocket,
  type GpuStatus,
  type GrpcOptions,
  type HttpOptions,
  type IssuerOptions,
  type Device,
  type DeviceList,
  type ControlOptions,
  type TlsOptions,
  type ListenOptions,
  type MetricsAddress,
  type BindFailure,
  type BoundPorts,
  type LogRecord,
  type MachineDevices,
  type NativeInferRequest,
  type NativeInferResponse,
  type NativeParameter,
  type NativeTensor,
  type Opened,
  type OpenSpec,
  type ProviderReport,
  type PublishSpec,
  type TakenTraces,
  type TraceCall,
  type TraceMode,
  type TraceRecord,
  type TraceSetting,
  type TraceTensor,
} from './contract.js'
import { replies } from './buffers.js'
import { ServerError } from './errors.js'

/** A parameter as it crosses: exactly one value is set. */
export interface RawParameter {
  key: string
  stringValue?: string
  intValue?: bigint
  doubleValue?: number
  boolValue?: boolean
}

export interface RawResponse {
  model: string
  version: string
  id: string
  parameters: RawParameter[]
  outputs: NativeTensor[]
}

export interface Settlement {
  ticket: number
  /** Index in `ERROR_CODES`, or -1. */
  errorCode: number
  message: string
  opened?: { handle: number; io?: NonNullable<Opened['io']>; completed?: string }
  count?: number
  response?: RawResponse
  responses?: RawResponse[]
  done?: boolean
  embedded?: RawEmbeddedAnswer
  embeddedCall?: Missing<EmbeddedCallAnswer> & Pick<EmbeddedCallAnswer, 'begun' | 'messages'>
}

/** An answer as it crosses. */
export type RawEmbeddedAnswer = { [K in keyof EmbeddedAnswer]?: NonNullable<EmbeddedAnswer[K]> } & {
  /** Instead of `body`, how long it is: `embedTake` has it. */
  large?: number
}

/** A record of a trace as it crosses. */
export interface RawTraceRecord extends Omit<TraceRecord, 'mode' | 'context' | 'calls'> {
  mode: string
  context?: NonNullable<TraceRecord['context']>
  calls: RawTraceCall[]
}

export interface RawTraceCall extends Omit<TraceCall, 'error' | 'tensors'> {
  /** `code` is an index in `ERROR_CODES`. */
  error?: { code: number; message: string }
  tensors: (Omit<TraceTensor, 'activity'> & { activity: string })[]
}

export interface RawTakenTraces extends Omit<TakenTraces, 'records'> {
  records: RawTraceRecord[]
}

/** What the native module exports. */
export interface RawModule {
  preloadOnnxruntime(library: string, settings: { key: string; value: string }[]): void
  awaitPreload(): void
  findProviders(library: string | undefined, settings: { key: string; value: string }[]): ProviderReport
  exitNow(code: number): void
  notify(socket: string, message: string): void
  describeSocket(fd: number): GivenSocket
  describeRoutes(): string
  checkKeys(text: string): void
  listDevices(): RawDeviceList
  listMachineDevices(visible?: string): RawMachineDevices
  NativeCore: new (
    options: object,
    onControl: (call: ControlCall) => void,
    onLog: (record: LogRecord) => void,
    onSettled: (settlement: Settlement) => void,
    onTraces: () => void,
    onDeviceFailure: (failure: string) => void,
  ) => RawCore
}

/** What is missing is left out as it crosses. */
type Missing<T> = { [K in keyof T]?: null extends T[K] ? Exclude<T[K], null> : T[K] }
type RawDevice = Missing<Device> & Pick<Device, 'ordinal' | 'name' | 'peers'>
export interface RawDeviceList extends Missing<Pick<DeviceList, 'unavailable' | 'cudaVersion'>> {
  devices: RawDevice[]
}
export interface RawMachineDevices extends Missing<Pick<MachineDevices, 'unavailable' | 'driverVersion' | 'ignored'>> {
  devices: { uuid: string; name: string; pciAddress?: string; instances: string[] }[]
}

/** A request as it crosses. */
export type RawRequest = Omit<NativeInferRequest, 'parameters'> & { parameters: RawParameter[] }

export type RawEndpoint<T> = Omit<T, 'givenFd' | 'tls'> & { givenFd: number | undefined; tls: TlsOptions | undefined }

/** What became of them. */
export interface RawBoundPorts extends Omit<BoundPorts, 'failures'> {
  /** `code` is an index in `ERROR_CODES`. */
  failures: (Omit<BindFailure, 'service' | 'code'> & { service: string; code: number })[]
}

/** Front ends as they cross. */
export interface RawListenOptions extends Omit<ListenOptions, 'http' | 'grpc' | 'control'> {
  http: RawEndpoint<HttpOptions> | undefined
  grpc: RawEndpoint<GrpcOptions> | undefined
  control: (Omit<ControlOptions, 'tls'> & { tls: TlsOptions | undefined }) | undefined
}

type Raw = {
  [K in 'openModel' | 'publishModel' | 'updateModel' | 'retireModel' | 'askReady' | 'bind' | 'takeMetricsSocket' | 'listen' | 'drain' | 'close' | 'infer' | 'inferStream' | 'nextResponses' | 'openEmbedded' | 'embed' | 'embedCall' | 'setTraceSetting' | 'takeTraces']: never
}
/** A version to open as it crosses. */
export interface RawOpenSpec extends Omit<OpenSpec, 'codeDirectory'> {
  codeDirectory: string | undefined
}

/** The class the native module exports. test/native/contract.test.ts compares it with the generated declarations. */
export interface RawCore extends Omit<Core, keyof Raw | 'controlReply' | 'cancel' | 'openKeys'> {
  openModel(ticket: number, spec: RawOpenSpec): void
  publishModel(ticket: number, handle: number, spec: PublishSpec): void
  updateModel(ticket: number, name: string, version: number, config: Buffer, configJson: string): void
  retireModel(ticket: number, name: string, version: number, reason: string): void
  askReady(ticket: number, name: string, version: string): void
  bind(options: RawListenOptions, metrics?: MetricsAddress): RawBoundPorts
  takeMetricsSocket(): number | null
  listen(ticket: number): void
  drain(ticket: number, timeoutMs: number): void
  openKeys(file: string, issuer?: Omit<IssuerOptions, 'keysFile'> & { keysFile: string | undefined }): void
  setIssuerKeys(text: string): number
  needsKey(method: string, path: string): boolean
  missesIssuerKey(): boolean
  close(ticket: number, graceMs: number): void
  infer(ticket: number, request: RawRequest): void
  inferStream(ticket: number, request: RawRequest): void
  nextResponses(ticket: number, stream: number): void
  cancel(ticket: number): void
  openEmbedded(options: RawListenOptions): void
  embed(ticket: number, request: Missing<EmbeddedRequest> & Pick<EmbeddedRequest, 'method' | 'target' | 'fields'>): void
  embedCall(ticket: number, call: Missing<EmbeddedCall> & Pick<EmbeddedCall, 'path' | 'fields'>): void
  embedPiece(ticket: number, request: number, piece: Buffer | undefined, length: number | undefined, ends: boolean): void
  embedBody(ticket: number, request: number, body: Buffer[] | undefined, bytes: number): void
  embedTake(ticket: number, to?: Buffer): void
  embedNext(ticket: number, request: number): void
  embedGiveUp(request: number): void
  setTraceSetting(model: string, setting?: TraceSetting): void
  takeTraces(max: number, clockNs: bigint): RawTakenTraces
  controlReply(id: number, json: string | undefined, errorCode: number, message: string): void
}

/** napi reads optional fields as `undefined`; the contract writes them as `null`. */
const optional = <T>(value: T | null): T | undefined => (value === null ? undefined : value)
const endpoint = <T extends { givenFd: number | null; tls: TlsOptions | null }>(o: T | null): RawEndpoint<T> | undefined =>
  o === null ? undefined : { ...o, givenFd: optional(o.givenFd), tls: optional(o.tls) }

const listenOptions = (o: ListenOptions): RawListenOptions => ({
  ...o,
  http: endpoint(o.http),
  grpc: endpoint(o.grpc),
  control: optional(o.control && { ...o.control, tls: optional(o.control.tls) }),
})

/** Properties that are there; those that are null are left out. */
const given = <T extends object>(of: T): { [K in keyof T]?: NonNullable<T[K]> } =>
  Object.fromEntries(Object.entries(of).filter(([, value]) => value !== null)) as { [K in keyof T]?: NonNullable<T[K]> }

const embedded = ({ embedded: a }: Settlement, large: Buffer | null): EmbeddedAnswer => ({
  wanted: a?.wanted ?? null,
  status: a?.status ?? null,
  fields: a?.fields ?? null,
  body: large ?? a?.body ?? null,
  more: a?.more ?? null,
  sized: a?.sized ?? null,
})

export function createBridge(
  module: RawModule,
  options: CoreOptions,
  onControl: (call: ControlCall) => void,
  onLog: (record: LogRecord) => void,
  onTraces: () => void,
  onDeviceFailure: (failure: string) => void,
): Core {
  const waiting = new Map<number, { resolve: (s: Settlement) => void; reject: (e: ServerError) => void }>()
  let nextTicket = 1
  /** Tickets of the core by tickets of the caller, so that a caller may number its inferences as it likes. */
  const inferences = new Map<number, number>()
  /** Likewise, of those with any number of responses. */
  const streams = new Map<number, number>()

  const onSettled = (s: Settlement): void => {
    const call = waiting.get(s.ticket)
    waiting.delete(s.ticket)
    if (call === undefined) return
    if (s.errorCode >= 0) call.reject(new ServerError(ERROR_CODES[s.errorCode] ?? 'INTERNAL', s.message))
    else call.resolve(s)
  }
  const raw = new module.NativeCore(
    {
      ...options,
      onnxruntimeLibrary: optional(options.onnxruntimeLibrary),
      responseCacheBytes: optional(options.responseCacheBytes),
      responseCacheRedis: optional(
        options.responseCacheRedis && {
          ...options.responseCacheRedis,
          user: optional(options.responseCacheRedis.user),
          password: optional(options.responseCacheRedis.password),
        },
      ),
      pythonEnvironmentRoots: optional(options.pythonEnvironmentRoots),
      gpuMetricsIntervalMs: optional(options.gpuMetricsIntervalMs),
      rateLimit: optional(options.rateLimit && { resources: options.rateLimit.resources.map((r) => ({ ...r, device: optional(r.device) })) }),
    },
    onControl,
    onLog,
    onSettled,
    onTraces,
    onDeviceFailure,
  )

  const takeTicket = (): number => {
    const ticket = nextTicket
    nextTicket = nextTicket === 0xffffffff ? 1 : nextTicket + 1
    return ticket
  }
  const start = (call: (ticket: number) => void): Promise<Settlement> =>
    new Promise((resolve, reject) => {
      const ticket = takeTicket()
      waiting.set(ticket, { resolve, reject })
      try {
        call(ticket)
      } catch (error) {
        waiting.delete(ticket)
        reject(unwrap(error))
      }
    })
  /** The large body that a call was told of. */
  const taken = (ticket: number, bytes: number): Buffer => {
    try {
      const to = replies.take(bytes)
      raw.embedTake(ticket, to)
      return to
    } catch (error) {
      // There is no memory for it here: it is not to stay there.
      raw.embedTake(ticket)
      throw error
    }
  }
  const now = <T>(call: () => T): T => {
    try {
      return call()
    } catch (error) {
      throw unwrap(error)
    }
  }

  return {
    openModel: async (spec) => {
      const { opened } = await start((t) => raw.openModel(t, { ...spec, codeDirectory: optional(spec.codeDirectory) }))
      if (opened === undefined) throw new ServerError('INTERNAL', 'the core opened a model and did not say which')
      return { handle: opened.handle, io: opened.io ?? null, ...(opened.completed === undefined ? {} : { completed: opened.completed }) }
    },
    publishModel: async (handle, spec) => void (await start((t) => raw.publishModel(t, handle, spec))),
    updateModel: async (name, version, config, configJson) => (await start((t) => raw.updateModel(t, name, version, config, configJson))).count === 1,
    discardModel: (handle) => raw.discardModel(handle),
    setVersionState: (name, version, state, reason) => raw.setVersionState(name, version, state, reason),
    setModelKnown: (name, known) => raw.setModelKnown(name, known),
    retireModel: async (name, version, reason) => void (await start((t) => raw.retireModel(t, name, version, reason))),
    setServerState: (state) => raw.setServerState(state),
    isReady: () => raw.isReady(),
    askReady: async (name, version) => (await start((t) => raw.askReady(t, name, version))).count === 1,
    unready: () => raw.unready(),
    openLogs: (o) => now(() => raw.openLogs(o)),
    bind: (o, metrics) => {
      const { failures, ...ports } = now(() => raw.bind(listenOptions(o), optional(metrics)))
      return { ...ports, failures: failures.map(({ service, code, message }) => ({ service: service as BindFailure['service'], code: ERROR_CODES[code] ?? 'INTERNAL', message })) }
    },
    unbind: () => raw.unbind(),
    takeMetricsSocket: () => raw.takeMetricsSocket(),
    listen: async () => void (await start((t) => raw.listen(t))),
    reread: () => raw.reread(),
    handOver: () => raw.handOver(),
    openKeys: (file, issuer) => now(() => raw.openKeys(file, issuer === null ? undefined : { ...issuer, keysFile: optional(issuer.keysFile) })),
    setIssuerKeys: (text) => now(() => raw.setIssuerKeys(text)),
    needsKey: (method, path) => raw.needsKey(method, path),
    missesIssuerKey: () => raw.missesIssuerKey(),
    connections: () => raw.connections(),
    pulse: () => raw.pulse(),
    leave: () => raw.leave(),
    sequences: () => raw.sequences(),
    drain: async (timeoutMs) => (await start((t) => raw.drain(t, timeoutMs))).count ?? 0,
    close: async (graceMs) => void (await start((t) => raw.close(t, Math.round(graceMs)))),
    snapshot: () => {
      const s = raw.snapshot()
      // Absent fields become null, so that a missing property is always a mistake.
      const versions = s.versions.map((v) =>
        Object.assign(v, { firstResponse: v.firstResponse ?? null, summaries: v.summaries ?? null }),
      )
      const resources = s.resources.map((r) => ({ ...r, device: r.device ?? null }))
      const custom = s.custom.map((family) => ({
        ...family,
        kind: family.kind as CustomFamily['kind'],
        series: family.series.map((one) => ({ ...one, histogram: one.histogram ?? null })),
      }))
      return { ...s, versions, resources, custom, cache: s.cache ?? null, deviceMemory: s.deviceMemory ?? null, gpu: gpuStatus(s.gpu) }
    },
    controlReply: (id, json, errorCode, message) =>
      raw.controlReply(id, optional(json), errorCode === null ? -1 : ERROR_CODES.indexOf(errorCode), message),
    setVerboseLevel: (level) => raw.setVerboseLevel(level),
    setTraceSetting: (model, setting) => now(() => raw.setTraceSetting(model, optional(setting))),
    traceCountLeft: (model) => raw.traceCountLeft(model),
    takeTraces: (max) => {
      const { records, ...rest } = raw.takeTraces(max, process.hrtime.bigint())
      return { ...rest, records: records.map(traceFromRaw) }
    },
    closeTraces: () => raw.closeTraces(),
    infer: async (request, ticket) => {
      let mine = 0
      try {
        const s = await start((t) => {
          mine = t
          inferences.set(ticket, t)
          raw.infer(t, toRaw(request))
        })
        if (s.response === undefined) throw new ServerError('INTERNAL', 'the core answered without a response')
        return fromRaw(s.response)
      } finally {
        if (inferences.get(ticket) === mine) inferences.delete(ticket)
      }
    },
    inferStream: (request, ticket) => {
      const mine = takeTicket()
      now(() => raw.inferStream(mine, toRaw(request)))
      streams.set(ticket, mine)
    },
    nextResponses: async (ticket) => {
      const stream = streams.get(ticket)
      if (stream === undefined) throw new ServerError('CANCELLED', '')
      const s = await start((t) => raw.nextResponses(t, stream))
      return { responses: (s.responses ?? []).map(fromRaw), done: s.done ?? true }
    },
    cancel: (ticket) => {
      const stream = streams.get(ticket)
      if (stream !== undefined) {
        streams.delete(ticket)
        return raw.cancel(stream)
      }
      const mine = inferences.get(ticket)
      if (mine !== undefined) raw.cancel(mine)
    },
    openEmbedded: (o) => now(() => raw.openEmbedded(listenOptions(o))),
    embed: ({ peer, local, body, ...request }) => {
      let mine = 0
      const answered = async (call: (ticket: number) => void): Promise<EmbeddedAnswer> => {
        const settlement = await start(call)
        const bytes = settlement.embedded?.large
        return embedded(settlement, bytes === undefined ? null : taken(settlement.ticket, bytes))
      }
      return {
        answer: answered((t) => {
          mine = t
          raw.embed(t, { ...request, ...given({ peer, local, body }) })
        }),
        body: (body) => answered((t) => (typeof body === 'number' ? raw.embedBody(t, mine, undefined, body) : raw.embedBody(t, mine, body, 0))),
        next: () => answered((t) => raw.embedNext(t, mine)),
        giveUp: () => raw.embedGiveUp(mine),
      }
    },
    embedCall: ({ peer, local, message, ...call }) => {
      let mine = 0
      const answered = async (ask: (ticket: number) => void): Promise<EmbeddedCallAnswer> => {
        const { embeddedCall: answer } = await start(ask)
        return { begun: answer?.begun ?? false, messages: answer?.messages ?? [], end: answer?.end ?? null }
      }
      return {
        answer: answered((t) => {
          mine = t
          raw.embedCall(t, { ...call, ...given({ peer, local, message }) })
        }),
        piece: async (piece, length, ends) => void (await start((t) => raw.embedPiece(t, mine, optional(piece), optional(length), ends))),
        next: () => answered((t) => raw.embedNext(t, mine)),
        giveUp: () => raw.embedGiveUp(mine),
      }
    },
    serverMetadata: () => raw.serverMetadata(),
    modelMetadata: (name, version) => now(() => raw.modelMetadata(name, version)),
    modelConfig: (name, version) => now(() => raw.modelConfig(name, version)),
    modelStatistics: (name, version) => now(() => raw.modelStatistics(name, version)),
    modelReady: (name, version) => now(() => raw.modelReady(name, version)),
  }
}

/** Errors thrown at once carry the number of their class in front: `3: unexpected …`. */
export function unwrap(error: unknown): ServerError {
  const text = error instanceof Error ? error.message : String(error)
  const match = /^(\d): ([\s\S]*)$/.exec(text)
  const code: ErrorCode | undefined = match ? ERROR_CODES[Number(match[1])] : undefined
  return new ServerError(code ?? 'INTERNAL', code === undefined ? text : (match?.[2] ?? text), { cause: error })
}

function gpuStatus(status: GpuStatus | null | undefined): GpuStatus | null {
  if (status === null || status === undefined) return null
  const usage = status.usage.map((one) => ({
    uuid: one.uuid,
    utilization: one.utilization ?? null,
    memoryTotalBytes: one.memoryTotalBytes ?? null,
    memoryUsedBytes: one.memoryUsedBytes ?? null,
    powerWatts: one.powerWatts ?? null,
    powerLimitWatts: one.powerLimitWatts ?? null,
    energyJoules: one.energyJoules ?? null,
  }))
  return { unavailable: status.unavailable ?? null, usage, uuids: status.uuids }
}

export function deviceList({ unavailable, cudaVersion, devices }: RawDeviceList): DeviceList {
  const all = devices.map((one) => ({
    ...one,
    uuid: one.uuid ?? null,
    pciAddress: one.pciAddress ?? null,
    computeCapability: one.computeCapability ?? null,
    memoryBytes: one.memoryBytes ?? null,
  }))
  return { unavailable: unavailable ?? null, cudaVersion: cudaVersion ?? null, devices: all }
}

export function machineDevices({ unavailable, driverVersion, devices, ignored }: RawMachineDevices): MachineDevices {
  const all = devices.map((one) => ({ ...one, pciAddress: one.pciAddress ?? null }))
  return { unavailable: unavailable ?? null, driverVersion: driverVersion ?? null, devices: all, ignored: ignored ?? null }
}

function toRaw(request: NativeInferRequest): RawRequest {
  return { ...request, parameters: request.parameters.map(parameterToRaw) }
}

function parameterToRaw({ key, value }: NativeParameter): RawParameter {
  switch (typeof value) {
    case 'string':
      return { key, stringValue: value }
    case 'bigint':
      return { key, intValue: value }
    case 'boolean':
      return { key, boolValue: value }
    default:
      return Number.isSafeInteger(value) ? { key, intValue: BigInt(value) } : { key, doubleValue: value }
  }
}

function traceFromRaw({ mode, context, calls, ...record }: RawTraceRecord): TraceRecord {
  return {
    ...record,
    mode: mode as TraceMode,
    context: context ?? null,
    calls: calls.map(({ error, tensors, ...call }) => ({
      ...call,
      tensors: tensors as TraceTensor[],
      error: error === undefined ? null : { code: ERROR_CODES[error.code] ?? 'UNKNOWN', message: error.message },
    })),
  }
}

function fromRaw(response: RawResponse): NativeInferResponse {
  const parameters = response.parameters.map((p) => {
    const value = p.stringValue ?? p.intValue ?? p.doubleValue ?? p.boolValue ?? ''
    return { key: p.key, value }
  })
  return { ...response, parameters }
}
