/** Trace files: when they are written, their contents, and failed writes. */
import { execFileSync } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, expect, test } from 'vitest'
import { TRACE_DEFAULTS, type TraceFields } from '../../src/trace/settings.js'
import type { TraceRecord, TraceTensor } from '../../src/native/contract.js'
import type { TraceExporter } from '../../src/trace/exporter.js'
import { TRACES_KEPT_MAX, tritonExporter } from '../../src/trace/triton.js'

const directories: string[] = []
afterEach(() => directories.splice(0).forEach((directory) => rmSync(directory, { recursive: true, force: true })))

interface Files {
  exporter: TraceExporter
  path: string
  /** Ids of the client's calls by file name, in order; an unfinished file as text. */
  found(): Record<string, number[] | string>
  problems: string[]
}

function files(name = 'trace.json'): Files {
  const directory = mkdtempSync(join(tmpdir(), 'nereid-trace-'))
  directories.push(directory)
  const path = join(directory, name)
  const problems: string[] = []
  const exporter = tritonExporter({ ...TRACE_DEFAULTS, file: path }, (_, message) => problems.push(message))
  const idsOf = (file: string): number[] | string => {
    const text = readFileSync(join(directory, file), 'utf8')
    try {
      return (JSON.parse(text) as { id: number; model_name?: string; parent_id?: number }[])
        .filter((o) => o.model_name !== undefined && o.parent_id === undefined)
        .map((o) => o.id)
    } catch {
      return text.slice(0, 1)
    }
  }
  const found = (): Record<string, number[] | string> =>
    Object.fromEntries(
      readdirSync(directory)
        .toSorted()
        .map((file) => [file, idsOf(file)]),
    )
  return { exporter, path, found, problems }
}

const fields = (over: Partial<TraceFields>): TraceFields => ({
  levels: ['TIMESTAMPS'],
  rate: 1,
  count: -1,
  logFrequency: 0,
  ...over,
})

function record(id: number, setting = 1, over: Partial<TraceRecord> = {}): TraceRecord {
  const activities = ['REQUEST_START', 'QUEUE_START', 'REQUEST_END'].map((name, i) => ({ name, ns: BigInt(10 + i) }))
  const call = {
    id,
    parentId: 0,
    model: 'm',
    version: 1,
    requestId: '',
    spanId: '',
    activities,
    tensors: [],
    error: null,
  }
  return { mode: 'triton', setting, id, context: null, traceId: '', activities: [], calls: [call], ...over }
}

test('O-40 without a log frequency, traces are written when their setting ends', async () => {
  const { exporter, found } = files()
  exporter.settingBegan(1, fields({}))
  exporter.settingBegan(2, fields({}))
  exporter.take(record(1))
  exporter.take(record(2, 2))
  expect(found()).toEqual({})
  exporter.settingEnded(1)
  expect(found()).toEqual({ 'trace.json': '[' })
  exporter.take(record(3, 2))
  await exporter.close()
  expect(found()).toEqual({ 'trace.json': [1, 2, 3] })
})

test('O-42 a server that starts with level TENSORS warns of written client data', () => {
  const said: string[] = []
  for (const levels of [['TIMESTAMPS'], ['TIMESTAMPS', 'TENSORS']] as const) {
    tritonExporter({ ...TRACE_DEFAULTS, levels: [...levels], file: '/traces/a.json' }, (level, message) =>
      said.push(`${level}: ${message}`),
    )
  }
  expect(said).toEqual([
    "warning: trace level TENSORS writes the tensors of requests and responses to '/traces/a.json'",
  ])
})

test('O-40 without traces there is no file', async () => {
  const { exporter, found } = files()
  exporter.settingBegan(1, fields({ logFrequency: 2 }))
  exporter.settingEnded(1)
  await exporter.close()
  expect(found()).toEqual({})
})

test('O-40 with a log frequency, this many traces of a setting make a file', async () => {
  const { exporter, found } = files()
  exporter.settingBegan(1, fields({ logFrequency: 3 }))
  exporter.settingBegan(2, fields({ logFrequency: 1 }))
  for (let id = 1; id <= 7; id += 1) exporter.take(record(id))
  exporter.take(record(8, 2))
  expect(found()).toEqual({ 'trace.json.0': [1, 2, 3], 'trace.json.1': [4, 5, 6], 'trace.json.2': [8] })
  exporter.settingEnded(1)
  await exporter.close()
  expect(found()).toEqual({
    'trace.json.0': [1, 2, 3],
    'trace.json.1': [4, 5, 6],
    'trace.json.2': [8],
    'trace.json.3': [7],
  })
})

test('O-40 a used-up count is written to an indexed file', async () => {
  const { exporter, found } = files()
  exporter.settingBegan(1, fields({ count: 2 }))
  exporter.settingBegan(2, fields({ count: 1, rate: 5 }))
  exporter.take(record(1))
  exporter.take(record(9, 2))
  expect(found()).toEqual({})
  exporter.take(record(2))
  expect(found()).toEqual({ 'trace.json.0': [1, 2] })
  await exporter.close()
  expect(found()).toEqual({ 'trace.json': [9], 'trace.json.0': [1, 2] })
})

test('P-055 the objects of a trace are in the order of its events', async () => {
  const { exporter, path } = files()
  exporter.settingBegan(1, fields({ logFrequency: 1 }))
  const odd = 'a "b"\n\\ü\u2028'
  const [call] = record(5).calls
  const tensor: TraceTensor = {
    activity: 'TENSOR_QUEUE_INPUT',
    name: odd,
    datatype: 'BYTES',
    shape: [2, 1],
    data: '"x","\\n"',
  }
  const child = {
    id: 6,
    parentId: 5,
    model: 's',
    version: 2,
    requestId: '',
    spanId: '',
    activities: [{ name: 'REQUEST_START', ns: 12n }],
    tensors: [],
    error: null,
  }
  exporter.take(
    record(5, 1, {
      activities: [
        { name: 'HTTP_RECV_START', ns: 9007199254740993n },
        { name: 'HTTP_SEND_END', ns: 1n },
      ],
      calls: [{ ...(call as NonNullable<typeof call>), requestId: odd, model: odd, tensors: [tensor] }, child],
    }),
  )
  await exporter.close()
  const text = readFileSync(`${path}.0`, 'utf8')
  // Times are integers beyond the precision of doubles.
  expect(text).toContain('"ns":9007199254740993}')
  expect(JSON.parse(text)).toEqual([
    { id: 5, timestamps: [{ name: 'HTTP_SEND_END', ns: 1 }] },
    { id: 5, model_name: odd, model_version: 1, request_id: odd },
    { id: 5, timestamps: [{ name: 'REQUEST_START', ns: 10 }] },
    { id: 5, timestamps: [{ name: 'QUEUE_START', ns: 11 }] },
    { id: 5, activity: 'TENSOR_QUEUE_INPUT', tensor: { name: odd, data: '"x","\\n"', shape: '2,1', dtype: 'BYTES' } },
    { id: 5, timestamps: [{ name: 'REQUEST_END', ns: 12 }] },
    { id: 5, timestamps: [{ name: 'HTTP_RECV_START', ns: 9007199254740992 }] },
    { id: 6, model_name: 's', model_version: 2, parent_id: 5 },
    { id: 6, timestamps: [{ name: 'REQUEST_START', ns: 12 }] },
  ])
})

test('O-43 traces in memory are bounded: beyond the limit they are written early', async () => {
  const { exporter, found } = files()
  exporter.settingBegan(1, fields({}))
  const [call] = record(1).calls
  const large: TraceTensor = {
    activity: 'TENSOR_QUEUE_INPUT',
    name: 'X',
    datatype: 'BYTES',
    shape: [1],
    data: 'x'.repeat(TRACES_KEPT_MAX / 4),
  }
  for (let id = 1; id <= 5; id += 1)
    exporter.take(record(id, 1, { calls: [{ ...(call as NonNullable<typeof call>), id, tensors: [large] }] }))
  expect(found()).toEqual({ 'trace.json': '[' })
  await exporter.close()
  expect(found()).toEqual({ 'trace.json': [1, 2, 3, 4, 5] })
})

test('O-40 traces for an unwritable file are lost and counted', async () => {
  const { exporter, path, problems } = files('missing/trace.json')
  exporter.settingBegan(1, fields({ logFrequency: 1 }))
  for (let id = 1; id <= 100; id += 1) exporter.take(record(id))
  await exporter.close()
  expect([...exporter.lost]).toEqual([['ENOENT', 100]])
  expect(problems).toHaveLength(1)
  expect(problems[0]).toContain(`trace file '${path}.0' can not be written`)
})

test.skipIf(!existsSync('/dev/full'))(
  'O-40 a full disk loses traces, and the file is valid once there is room',
  async () => {
    const { exporter, path, found, problems } = files()
    symlinkSync('/dev/full', path)
    exporter.settingBegan(1, fields({}))
    exporter.take(record(1))
    exporter.settingEnded(1)
    expect(exporter.lost.get('ENOSPC')).toBe(1)
    expect(problems).toHaveLength(1)
    rmSync(path)
    exporter.settingBegan(2, fields({}))
    exporter.take(record(2, 2))
    await exporter.close()
    expect(found()).toEqual({ 'trace.json': [2] })
  },
)

/** Runs with a limit on the size of files that this process writes. */
function withFileBytesMax(bytes: number, work: () => void): void {
  const prlimit = (...options: string[]): string =>
    execFileSync('prlimit', ['--pid', String(process.pid), ...options], { encoding: 'utf8' }).trim()
  const before = prlimit('--fsize', '-o', 'SOFT', '--noheadings')
  prlimit(`--fsize=${bytes}:`)
  try {
    work()
  } finally {
    prlimit(`--fsize=${before}:`)
  }
}

test.skipIf(!existsSync('/usr/bin/prlimit'))(
  'O-40 a partial write is undone, so that the file stays valid',
  async () => {
    const { exporter, found } = files()
    const large: TraceTensor = {
      activity: 'TENSOR_QUEUE_INPUT',
      name: 'X',
      datatype: 'BYTES',
      shape: [1],
      data: 'x'.repeat(100_000),
    }
    const [call] = record(2).calls
    for (const setting of [1, 2, 3]) exporter.settingBegan(setting, fields({}))
    exporter.take(record(1, 1))
    exporter.settingEnded(1)
    exporter.take(record(2, 2, { calls: [{ ...(call as NonNullable<typeof call>), tensors: [large] }] }))
    withFileBytesMax(65_536, () => exporter.settingEnded(2))
    expect([...exporter.lost]).toEqual([['EFBIG', 1]])
    exporter.take(record(3, 3))
    await exporter.close()
    expect(found()).toEqual({ 'trace.json': [1, 3] })
  },
)
