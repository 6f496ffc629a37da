/** `nereid gpu`, in processes of its own: the libraries of a process are looked for once. Drivers are stand-ins. */
import { execFile } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { gpuReport, type Found, type GpuReport } from '../../src/tools/gpu/report.js'
import { reportText } from '../../src/tools/gpu/text.js'
import { ROOT } from '../server/harness.js'
import { INSTANCES, Mocks, UUIDS } from './mocks.js'

const mocks = new Mocks()
/** An empty directory: a fresh machine has no interpreter. */
const nothing = mkdtempSync(join(tmpdir(), 'nereid-nothing-'))
afterAll(() => {
  mocks.remove()
  rmSync(nothing, { recursive: true, force: true })
})

const [FIRST, SECOND] = UUIDS

function gpu(
  args: string[],
  environment: Record<string, string> = {},
): Promise<{ code: number; out: string; err: string }> {
  const { VIRTUAL_ENV: _, CONDA_PREFIX: __, ...env } = mocks.environment({ PATH: nothing, ...environment })
  return new Promise((done) => {
    execFile(process.execPath, [join(ROOT, 'dist/cli/main.js'), 'gpu', ...args], { env }, (error, out, err) =>
      done({ code: error === null ? 0 : Number(error.code), out, err }),
    )
  })
}

async function report(environment: Record<string, string> = {}, args: string[] = []): Promise<GpuReport> {
  const { out, err } = await gpu(['--json', ...args], environment)
  expect(err).toBe('')
  return JSON.parse(out) as GpuReport
}

const named = (found: GpuReport): string[] =>
  found.devices.map(({ ordinal, name, uuid }) => `${ordinal} ${name} ${uuid ?? '-'}`)

test('driver and devices are named, and the command that gets what is missing', async () => {
  const { code, out, err } = await gpu([])
  expect([code, err]).toEqual([1, ''])
  expect(out).toContain(`driver        580.00.01, for CUDA up to 13.0
devices       0: Mock 0, compute capability 9.0, 16.0 GiB, ${FIRST}, 0000:17:00.0, reads the memory of 1
              1: Mock 1, compute capability 8.9, 16.0 GiB, ${SECOND}, 0000:27:00.0, reads the memory of 0
ONNX Runtime  1.30.0, `)
  expect(out).toMatch(
    /CUDA {10}no provider\nTensorRT {6}no provider\n\nModels do not run on a GPU here:\n {2}there is no libonnxruntime_providers_cuda\.so: not in '/,
  )
  expect(out).toContain(`To do:
  install what is missing for CUDA
      pip install 'onnxruntime-gpu[cuda,cudnn]==1.30.0'
  or, if the providers are elsewhere, name their directory with --backend-config=onnxruntime,provider-directory=PATH
`)
})

test('options of the server count: where the providers lie', async () => {
  const empty = join(nothing, 'providers')
  mkdirSync(empty)
  const found = await report({}, [
    `--backend-config=onnxruntime,provider-directory=${empty}`,
    '--min-supported-compute-capability=8.95',
  ])
  expect(found.problems).toEqual([`there is no libonnxruntime_providers_cuda.so: not in '${empty}'`])
  expect(found.devices.map(({ isUsed }) => isUsed)).toEqual([true, false])
  expect((await gpu(['--nonsense'])).err).toContain("unrecognized option '--nonsense'")
  expect((await gpu(['--nonsense'])).code).toBe(2)
  expect((await gpu(['--jsn'])).err).toContain("gpu has no option '--jsn'; did you mean '--json'?")
})

test.each([
  ['1', [`0 Mock 1 ${SECOND}`], [FIRST], null],
  ['GPU-a0', [`0 Mock 0 ${FIRST}`], [SECOND], null],
  [
    '0,7,1',
    [`0 Mock 0 ${FIRST}`],
    [SECOND],
    "CUDA_VISIBLE_DEVICES='0,7,1': '7' matches no device, and the rest of the list is ignored: there are 2 " +
      'devices, counted from 0',
  ],
  [
    'GPU-a',
    [],
    [SECOND, FIRST],
    "CUDA_VISIBLE_DEVICES='GPU-a': 'GPU-a' matches no device, and the rest of the list is ignored: the " +
      'uuids of 2 devices begin with it',
  ],
])('CUDA_VISIBLE_DEVICES=%s: devices that are hidden are named', async (list, devices, hidden, note) => {
  const found = await report({ CUDA_VISIBLE_DEVICES: list })
  expect(named(found)).toEqual(devices)
  expect(found.hidden.map(({ uuid }) => uuid)).toEqual(hidden)
  expect(found.notes).toEqual(note === null ? [] : [note])
  if (devices.length === 0) {
    expect(found.problems[0]).toMatch(
      /^there is no GPU: cuInit failed with CUDA_ERROR_NO_DEVICE .*; CUDA_VISIBLE_DEVICES is 'GPU-a'$/,
    )
    expect(found.todo[0]?.words).toBe('unset CUDA_VISIBLE_DEVICES, or name a device of this machine in it')
  }
})

test('an instance has its own uuid, and its device is not hidden', async () => {
  const found = await report({ NEREID_MOCK_CUDA_MIG: '1', CUDA_VISIBLE_DEVICES: `${INSTANCES[1]},0` })
  expect(named(found)).toEqual([`0 Mock 1 ${INSTANCES[1]}`, `1 Mock 0 ${FIRST}`])
  expect([found.hidden, found.notes]).toEqual([[], []])
})

test.each([
  ['cuInit', 'there is no GPU: cuInit failed with CUDA_ERROR_NO_DEVICE (100): no CUDA-capable device is detected'],
  [
    'cuDriverGetVersion',
    'there is no GPU: cuDriverGetVersion failed with CUDA_ERROR_NO_DEVICE (100): no CUDA-capable device is detected',
  ],
  [
    'cuDeviceGetCount',
    'there is no GPU: cuDeviceGetCount failed with CUDA_ERROR_NO_DEVICE (100): no CUDA-capable device is detected',
  ],
])('without %s there is no GPU, and the reason is told', async (name, problem) => {
  const found = await report({ NEREID_MOCK_CUDA_FAIL: `${name}:0:100` })
  expect([found.devices, found.problems[0], found.hidden.length]).toEqual([[], problem, 2])
  expect(found.todo[0]?.words).toContain('/dev/nvidia*')
})

test.each([
  'cuDeviceGet',
  'cuDeviceGetName',
  'cuDeviceGetUuid_v2',
  'cuDeviceGetPCIBusId',
  'cuDeviceTotalMem_v2',
  'cuDeviceGetAttribute',
  'cuDeviceCanAccessPeer',
])('without %s the devices are there all the same', async (name) => {
  const found = await report({ NEREID_MOCK_CUDA_FAIL: `${name}:0:100` })
  expect(found.devices.map(({ ordinal }) => ordinal)).toEqual([0, 1])
  expect(found.problems).toEqual([expect.stringContaining('there is no libonnxruntime_providers_cuda.so')])
  expect((await gpu([], { NEREID_MOCK_CUDA_FAIL: `${name}:0:100` })).out).toContain('\n              1: ')
})

test.each([
  'nvmlInit_v2',
  'nvmlDeviceGetCount_v2',
  'nvmlDeviceGetHandleByIndex_v2',
  'nvmlSystemGetDriverVersion',
  'nvmlDeviceGetUUID',
  'nvmlDeviceGetName',
  'nvmlDeviceGetPciInfo_v3',
  'nvmlDeviceGetMigMode',
])('without %s of NVML the devices of this process are there all the same', async (name) => {
  mocks.tell(`fail ${name} * 999`)
  try {
    const found = await report()
    expect(found.devices.map(({ ordinal }) => ordinal)).toEqual([0, 1])
    const isSilent = name === 'nvmlInit_v2' || name === 'nvmlDeviceGetCount_v2'
    const failed = `${name.slice(0, -'_v2'.length)} failed with error 999: Unknown Error`
    expect(found.notes).toEqual(isSilent ? [`there are no GPU metrics: ${failed}`] : [])
    expect(found.driver.version).toBe(isSilent || name === 'nvmlSystemGetDriverVersion' ? null : '580.00.01')
  } finally {
    mocks.tell()
  }
})

const DEVICE = {
  ordinal: 0,
  name: 'H',
  uuid: 'a',
  pciAddress: null,
  computeCapability: '9.0',
  memoryBytes: null,
  peers: [],
}
const MISSING = { usable: false, libraries: [], problems: ['there is no provider'], command: "pip install 'both'" }

/** A machine where everything is there, but for these. */
function of(changed: { cuda?: string; runtime?: string; capability?: string; optional?: boolean }): GpuReport {
  const found: Found = {
    visible: null,
    computeCapabilityMin: 6,
    devices: {
      unavailable: null,
      cudaVersion: changed.cuda ?? '13.0',
      devices: [{ ...DEVICE, computeCapability: changed.capability ?? '9.0' }],
    },
    machine: {
      unavailable: null,
      driverVersion: '580.1',
      devices: [{ uuid: 'GPU-a', name: 'H', pciAddress: null, instances: [] }],
      ignored: null,
    },
    providers: {
      library: '/l',
      release: '1.30.0',
      directory: '/d',
      cuda: {
        file: '/d/cuda',
        usable: true,
        libraries: [
          { name: `libcudart.so.${changed.runtime ?? '13'}`, file: '/c', optional: false },
          { name: 'libcudnn.so.9', ...(changed.optional === true ? {} : { file: '/n' }), optional: true },
        ],
        problems: [],
      },
      tensorrt: MISSING,
    },
  }
  return gpuReport(found)
}

test('a machine that has everything is usable, whether or not TensorRT is there', () => {
  const found = of({})
  expect([found.isUsable, found.problems, found.notes]).toEqual([
    true,
    [],
    ['TensorRT cannot be used: there is no provider'],
  ])
  expect(reportText(found)).toContain('CUDA          /d/cuda, built for CUDA 13\n                libcudart.so.13: /c\n')
  expect(reportText(found)).toContain('\nEverything that models on a GPU need is installed.\n')
})

test.each([
  ['13.0', '13', null],
  ['13.2', '13', null],
  ['13.0', '12', null],
  ['12.4', '12', null],
  ['12.8', '13', 'the CUDA provider is built for CUDA 13, and the driver is made for CUDA 12.8 at most'],
  ['11.8', '12', 'the CUDA provider is built for CUDA 12, and the driver is made for CUDA 11.8 at most'],
])('a driver of CUDA %s and a provider of CUDA %s: %s', (cuda, runtime, problem) => {
  const found = of({ cuda, runtime })
  expect([found.isUsable, found.problems]).toEqual([problem === null, problem === null ? [] : [problem]])
  if (problem !== null)
    expect(found.todo.map(({ words }) => words)).toContain(`install driver ${runtime === '13' ? 580 : 525} or later`)
  expect(found.todo.some(({ command }) => command === "pip install 'onnxruntime-gpu[cuda,cudnn]<1.27'")).toBe(
    problem !== null && runtime === '13',
  )
})

test('a device that is too old is no device for models', () => {
  expect(of({ capability: '5.2' }).problems).toEqual([
    'no device has compute capability 6 (--min-supported-compute-capability)',
  ])
  const found = of({ optional: true })
  expect([found.isUsable, found.notes[0]]).toEqual([true, 'libcudnn.so.9 is missing: operators that need it fail'])
})
