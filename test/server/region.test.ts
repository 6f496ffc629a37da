/** The TypeScript client helper: `nereid/shm`, against a real server. M-31, P-203. */
import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { ALIGNMENT, Layout, Region, type SpaceOptions, type TensorInput } from '../../src/shm/index.js'
import { ROOT, repositories, TestServer } from './harness.js'

type Tensors = Record<string, [string, number[], number?]>
interface Vectors {
  layouts: { name: string; tensors: Tensors; spaces: [number, number][]; byte_size: number }[]
  refused: { name: string; tensors: Tensors; error: string }[]
  contents: { name: string; datatype: string; shape: number[]; values: (number | string)[]; bytes: string }[]
  damaged: { name: string; shape: number[]; bytes: string; error: string | null }[]
}
const json = (path: string): unknown => JSON.parse(readFileSync(join(ROOT, path), 'utf8'))
const vectors = json('shm/vectors/layouts.json') as Vectors

const models = repositories()
let server: TestServer
beforeAll(async () => {
  server = await TestServer.start(models.path('main'), ['--allow-client-shm=true'])
})
afterAll(async () => {
  await server.stop()
  models.remove()
})

const pathOf = (region: Region) => `/dev/shm${region.key}`
const wanted = (tensors: Tensors) =>
  Object.fromEntries(
    Object.entries(tensors).map(([name, [datatype, shape, capacity]]): [string, SpaceOptions] => [
      name,
      { datatype, shape, ...(capacity === undefined ? {} : { capacity }) },
    ]),
  )

async function infer(
  model: string,
  body: unknown,
): Promise<{ outputs: { shape: number[]; data?: unknown }[]; error?: string }> {
  const answer = await fetch(`${server.url}/v2/models/${model}/infer`, { method: 'POST', body: JSON.stringify(body) })
  return (await answer.json()) as { outputs: { shape: number[] }[] }
}

test('the alignment is that of the runner protocol', () => {
  const { constants } = json('shm/protocol.json') as { constants: Record<string, number> }
  expect(constants['ALIGNMENT']).toBe(ALIGNMENT)
})

test.each(vectors.layouts)('layout: $name', ({ tensors, spaces, byte_size }) => {
  const layout = new Layout(wanted(tensors))
  expect([...layout.spaces.values()].map(({ offset, capacity }) => [offset, capacity])).toEqual(spaces)
  expect(layout.byteSize).toBe(byte_size)
})

test.each(vectors.refused)('a layout is rejected for $name', ({ tensors, error }) => {
  expect(() => new Layout(wanted(tensors))).toThrow(expect.objectContaining({ code: 'INVALID_ARG', message: error }))
})

const ARRAYS: Record<string, (values: number[]) => TensorInput> = {
  INT32: (values) => new Int32Array(values),
  FP32: (values) => new Float32Array(values),
  FP64: (values) => new Float64Array(values),
  BOOL: (values) => values.map((value) => value === 1),
  BF16: (values) => new Uint16Array(values),
  UINT8: (values) => new Uint8Array(values),
}

test.each(vectors.contents)('contents: $name', ({ datatype, shape, values, bytes }) => {
  const region = Region.create({ before: { datatype: 'UINT8', shape: [1] }, T: { datatype, shape, capacity: 64 } })
  try {
    const data = ARRAYS[datatype]?.(values as number[]) ?? (values as string[])
    region.write('T', { data, shape } as TensorInput)
    expect(
      readFileSync(pathOf(region))
        .subarray(64, 64 + bytes.length / 2)
        .toString('hex'),
    ).toBe(bytes)
    const want = {
      shared_memory_region: region.name,
      shared_memory_offset: 64,
      shared_memory_byte_size: bytes.length / 2,
    }
    expect(region.parameters('T', 'input')).toEqual(want)
    expect(region.parameters('T', 'output')).toEqual({ ...want, shared_memory_byte_size: 64 })
    const read = region.read('T')
    expect(read.shape).toEqual(shape)
    expect(datatype === 'BYTES' ? read.strings() : Array.from(read.data as Uint8Array)).toEqual(values)
  } finally {
    region.close()
  }
})

test.each(vectors.damaged)('strings: $name', ({ shape, bytes, error }) => {
  const data = Buffer.from(bytes, 'hex')
  const after = { datatype: 'BYTES', shape: [1], capacity: 64 }
  const region = Region.create({ T: { datatype: 'BYTES', shape, capacity: data.length }, after })
  try {
    writeFileSync(pathOf(region), data, { flag: 'r+' })
    if (error === null) expect(region.read('T').strings()).toEqual(['', 'a'])
    else expect(() => region.read('T')).toThrow(error)
  } finally {
    region.close()
  }
})

test('one region serves a request, even after its file was removed', async () => {
  const sixteen = (value: number) => ({ shape: [1, 16], data: new Int32Array(16).fill(value) })
  const output = { datatype: 'INT32', shape: [1, 16] }
  const region = Region.create({ INPUT0: sixteen(3), INPUT1: sixteen(1), OUTPUT0: output, OUTPUT1: output })
  try {
    await region.register(server.url)
    region.unlink()
    expect(existsSync(pathOf(region))).toBe(false)
    const body = { inputs: region.inputs('INPUT0', 'INPUT1'), outputs: region.outputs('OUTPUT0', 'OUTPUT1') }
    const answer = await infer('simple', body)
    expect(answer.outputs[0]?.data).toBeUndefined()
    expect(region.read('OUTPUT0').data).toEqual(new Int32Array(16).fill(4))
    region.write('INPUT0', sixteen(10))
    await infer('simple', body)
    expect(region.read('OUTPUT1').data).toEqual(new Int32Array(16).fill(9))
    await expect(region.register(server.url)).rejects.toMatchObject({
      message: `shared memory region '${region.name}' already in manager`,
    })
    await region.unregister(server.url)
    await region.unregister(server.url)
    expect((await infer('simple', body)).error).toBe(`Unable to find shared memory region: '${region.name}'`)
  } finally {
    region.close()
    region.close()
  }
  expect(() => region.read('OUTPUT0')).toThrow(`region ${region.name}: it is closed`)
})

test('a large output in a region wakes no thread that formats responses', async () => {
  const own = await TestServer.start(models.path('main'), [
    '--allow-client-shm=true',
    '--model-control-mode=explicit',
    '--load-model=id_fp32',
  ])
  const tasks = `/proc/${own.process.pid}/task`
  const printers = () =>
    readdirSync(tasks)
      .filter((task) => readFileSync(`${tasks}/${task}/comm`, 'utf8').startsWith('nereid-offload'))
      .map((task) => readFileSync(`${tasks}/${task}/status`, 'utf8'))
  /** How often those threads went to sleep, once all of them sleep. */
  const wakes = async (): Promise<number> => {
    await expect.poll(() => printers().every((status) => /^State:\s+S/m.test(status)), { timeout: 10_000 }).toBe(true)
    return printers().reduce((sum, status) => sum + Number(/^voluntary_ctxt_switches:\s+(\d+)$/m.exec(status)?.[1]), 0)
  }
  const value = { shape: [1, 16384], data: new Float32Array(16384).fill(0.5) }
  const region = Region.create({ INPUT0: value, OUTPUT0: { datatype: 'FP32', shape: [1, 16384] } })
  try {
    // Registering uses such a thread too, so one exists from now on.
    await region.register(own.url)
    const inputs = region.inputs('INPUT0')
    const ask = (body: unknown) =>
      fetch(`${own.url}/v2/models/id_fp32/infer`, { method: 'POST', body: JSON.stringify(body) }).then((answer) =>
        answer.text(),
      )
    const before = await wakes()
    expect(before).toBeGreaterThan(0)
    await ask({ inputs, outputs: region.outputs('OUTPUT0') })
    expect(region.read('OUTPUT0').data).toEqual(value.data)
    expect(await wakes()).toBe(before)
    // The same output as text is formatted there, which shows that the count works.
    expect(await ask({ inputs })).toContain('0.5,0.5')
    expect(await wakes()).toBeGreaterThan(before)
  } finally {
    region.close()
    await own.stop()
  }
})

test('strings of any length are passed, with the shape of the response', async () => {
  const strings = { datatype: 'BYTES', shape: [1, -1], capacity: 4096 }
  const region = Region.create({ INPUT0: strings, OUTPUT0: strings }, { name: `strings ${process.pid}` })
  try {
    await region.register(server.url)
    for (const data of [['one', '', 'zwei \u00fc'], ['x'.repeat(4000)]]) {
      region.write('INPUT0', { data, shape: [1, data.length] })
      const answer = await infer('id_string', { inputs: region.inputs('INPUT0'), outputs: region.outputs('OUTPUT0') })
      expect(region.read('OUTPUT0', answer.outputs[0]?.shape).strings()).toEqual(data)
    }
    expect(() => region.write('INPUT0', { data: ['x'.repeat(4093)], shape: [1, 1] })).toThrow(
      'BYTES [1,1] takes 4097 bytes, its capacity is 4096',
    )
    await region.unregister(server.url)
  } finally {
    region.close()
  }
})

test('a second opener sees the same bytes and does not remove the file', () => {
  const region = Region.create({ A: new Int32Array([1, 2]) })
  try {
    const other = Region.attach(region.key, { A: { datatype: 'INT32', shape: [2] } })
    other.write('A', new Int32Array([3, 4]))
    other.close()
    expect(region.read('A').data).toEqual(new Int32Array([3, 4]))
    expect(() => Region.attach(region.key, { A: { datatype: 'INT32', shape: [17] } })).toThrow(
      'the file has 64 bytes, the tensors need 128',
    )
    expect(() => Region.create({ A: new Int32Array(1) }, { key: region.key })).toThrow(/EEXIST/)
  } finally {
    region.close()
  }
  expect(existsSync(pathOf(region))).toBe(false)
})

test('data that does not fit is rejected with both sizes', () => {
  const region = Region.create({ A: new Int32Array(2), V: { datatype: 'FP32', shape: [-1], capacity: 16 } })
  try {
    expect(() => region.write('A', new Int32Array(17))).toThrow(
      "tensor 'A': INT32 [17] takes 68 bytes, its capacity is 8",
    )
    expect(() => region.write('A', { data: new Int32Array(2), shape: [3] })).toThrow(
      "tensor 'A': INT32 [3] takes 12 bytes, the data has 8",
    )
    expect(() => region.write('A', new Float32Array(2))).toThrow(/cannot hold datatype INT32/)
    expect(() => region.read('V')).toThrow("tensor 'V': its shape [-1] is not known; give the shape of the response")
    expect(() => region.parameters('V', 'input')).toThrow('put an array there first')
    expect(() => region.read('nope')).toThrow("tensor 'nope': not in this region, which has A, V")
    for (const key of ['', '/', '/a/b', '.', '..', 'a\0b', 'x'.repeat(256)]) {
      expect(() => Region.create({ A: new Int32Array(1) }, { key })).toThrow(
        'a name of 1 to 255 bytes without inner slashes is needed',
      )
    }
  } finally {
    region.close()
  }
})

test('a program that exits normally leaves no file', () => {
  const code = `import { Region } from 'nereid/shm'
    const region = Region.create({ A: new Int32Array(4) })
    console.log(region.key, process.report.getReport().sharedObjects.some((file) => file.endsWith('.node')))`
  const { stdout, stderr, status } = spawnSync(process.execPath, ['--input-type=module', '-e', code], {
    cwd: ROOT,
    encoding: 'utf8',
  })
  expect([status, stderr]).toEqual([0, ''])
  const [key = '', native] = stdout.split(/\s/)
  expect(key).toMatch(/^\/nereid-\d+-/)
  expect(existsSync(`/dev/shm${key}`)).toBe(false)
  expect(native).toBe('false')
})
