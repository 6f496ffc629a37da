/**
 * GPU metrics over HTTP, with stand-ins of libcuda.so.1 and libnvidia-ml.so.1: names, labels and values, subsets of the
 * devices, and devices that fail.
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test, vi } from 'vitest'
import { parseExposition } from '../metrics/strict.js'
import { TestServer } from '../server/harness.js'
import { INSTANCES, Mocks, UUIDS } from './mocks.js'

const mocks = new Mocks()
const repository = mkdtempSync(join(tmpdir(), 'nereid-no-models-'))
afterAll(() => {
  mocks.remove()
  rmSync(repository, { recursive: true, force: true })
})

const GIB = 2 ** 30
const [FIRST, SECOND] = UUIDS
const UNTIL = { timeout: 20_000, interval: 50 }

const scrape = async (server: TestServer): Promise<string> =>
  (await fetch(`http://127.0.0.1:${server.metricsPort}/metrics`)).text()

/** Lines of devices: `name uuid value`, and the gauge with its reason; only of those families. */
async function gpuLines(server: TestServer): Promise<string[]> {
  const { series } = parseExposition(await scrape(server), 'text')
  return [...series]
    .filter(([key]) => /^(nv_gpu_|nv_energy|nereid_gpu_)/.test(key))
    .map(([key, value]) => `${key} ${value}`)
}

const of = (uuid: string, values: Record<string, number>): string[] =>
  Object.entries(values).map(([name, value]) => `nv_${name}{gpu_uuid="${uuid}"} ${value}`)
const usual = (uuid: string, number: number): string[] =>
  of(uuid, {
    energy_consumption: 0,
    gpu_utilization: 0.25 * (number + 1),
    gpu_memory_total_bytes: 16 * GIB,
    gpu_memory_used_bytes: (number + 1) * GIB,
    gpu_power_usage: 100.5,
    gpu_power_limit: 700,
  })
const AVAILABLE = 'nereid_gpu_available{reason=""} 1'

async function withServer(
  environment: Record<string, string>,
  run: (server: TestServer) => Promise<void>,
  flags: string[] = [],
  models = repository,
): Promise<void> {
  const server = await TestServer.start(models, ['--metrics-interval-ms=100', ...flags], {
    env: mocks.environment(environment),
  })
  try {
    await run(server)
  } finally {
    const code = await server.stop()
    mocks.tell()
    expect(code, server.output()).toBe(0)
  }
}

/** Waits until the lines of devices are these, in any order. */
const shows = (server: TestServer, lines: readonly string[]): Promise<void> =>
  vi.waitFor(async () => expect((await gpuLines(server)).toSorted()).toEqual([...lines].toSorted()), UNTIL)

test('O-10 O-24 each device has its six metrics with the label gpu_uuid alone', { timeout: 60_000 }, async () => {
  await withServer({}, async (server) => {
    await shows(server, [AVAILABLE, ...usual(FIRST, 0), ...usual(SECOND, 1)])
    const text = await scrape(server)
    const families = [...text.matchAll(/^# TYPE (nv_gpu_\w+|nv_energy\w+) (\w+)$/gm)].map(
      ([, name, type]) => `${name} ${type}`,
    )
    expect(families).toEqual([
      'nv_energy_consumption counter',
      'nv_gpu_utilization gauge',
      'nv_gpu_memory_total_bytes gauge',
      'nv_gpu_memory_used_bytes gauge',
      'nv_gpu_power_usage gauge',
      'nv_gpu_power_limit gauge',
    ])
    // The regular expression of perf_analyzer --collect-metrics.
    for (const name of [
      'nv_gpu_utilization',
      'nv_gpu_power_usage',
      'nv_gpu_memory_used_bytes',
      'nv_gpu_memory_total_bytes',
    ]) {
      expect(
        [...text.matchAll(new RegExp(`\\n${name}\\{gpu_uuid="(.*)"\\} (\\d+\\.?\\d*)`, 'g'))].map(([, uuid]) => uuid),
      ).toEqual([...UUIDS])
    }
    mocks.tell(
      'value nvmlDeviceGetUtilizationRates 0 1',
      'value nvmlDeviceGetPowerUsage 1 3',
      'value nvmlDeviceGetUtilizationRates 1 75',
    )
    await vi.waitFor(
      async () =>
        expect(await gpuLines(server)).toEqual(
          expect.arrayContaining([
            ...of(FIRST, { gpu_utilization: 0.01 }),
            ...of(SECOND, { gpu_utilization: 0.75, gpu_power_usage: 0.003 }),
          ]),
        ),
      UNTIL,
    )
  })
})

test('O-11 energy counts from the first sample on', { timeout: 60_000 }, async () => {
  mocks.tell('value nvmlDeviceGetTotalEnergyConsumption 0 7000000')
  await withServer({}, async (server) => {
    await shows(server, [AVAILABLE, ...usual(FIRST, 0), ...usual(SECOND, 1)])
    mocks.tell(
      'value nvmlDeviceGetTotalEnergyConsumption 0 7012500',
      'value nvmlDeviceGetTotalEnergyConsumption 1 5000001',
    )
    await vi.waitFor(
      async () =>
        expect(await gpuLines(server)).toEqual(
          expect.arrayContaining([
            ...of(FIRST, { energy_consumption: 12.5 }),
            ...of(SECOND, { energy_consumption: 0.001 }),
          ]),
        ),
      UNTIL,
    )
  })
})

// NVML numbers the mock's devices the other way round: a number taken for the other's shows as swapped values.
test.each([
  ['1', [[SECOND, 1]]],
  [
    '1,0',
    [
      [SECOND, 1],
      [FIRST, 0],
    ],
  ],
  [SECOND, [[SECOND, 1]]],
  [
    'GPU-a1,GPU-a0',
    [
      [SECOND, 1],
      [FIRST, 0],
    ],
  ],
  ['0,7,1', [[FIRST, 0]]],
] as const)(
  'O-10 CUDA_VISIBLE_DEVICES=%s: the devices that this process has, in its order',
  { timeout: 60_000 },
  async (list, devices) => {
    await withServer({ CUDA_VISIBLE_DEVICES: list }, async (server) => {
      await shows(server, [AVAILABLE, ...devices.flatMap(([uuid, number]) => usual(uuid, number))])
      expect((await gpuLines(server)).filter((line) => line.startsWith('nv_gpu_utilization'))).toEqual(
        devices.flatMap(([uuid, number]) => of(uuid, { gpu_utilization: 0.25 * (number + 1) })),
      )
    })
  },
)

test.each(INSTANCES)('O-10 an instance is known by its uuid', { timeout: 60_000 }, async (uuid) => {
  await withServer({ NEREID_MOCK_CUDA_MIG: '1', CUDA_VISIBLE_DEVICES: `0,${uuid}` }, async (server) => {
    await shows(server, [
      AVAILABLE,
      ...usual(FIRST, 0),
      ...of(uuid, { gpu_memory_total_bytes: 8 * GIB, gpu_memory_used_bytes: 2 * GIB }),
    ])
    expect(server.output()).toContain(
      `a metric of ${uuid} is not available: nvmlDeviceGetPowerUsage failed with error 3: Not Supported`,
    )
  })
})

const VALUES = {
  nvmlDeviceGetUtilizationRates: ['gpu_utilization'],
  nvmlDeviceGetPowerUsage: ['gpu_power_usage'],
  nvmlDeviceGetEnforcedPowerLimit: ['gpu_power_limit'],
  nvmlDeviceGetTotalEnergyConsumption: ['energy_consumption'],
}

test('O-10 a value that a device does not give is missing until it gives it', { timeout: 60_000 }, async () => {
  await withServer({}, async (server) => {
    for (const [name, families] of Object.entries(VALUES)) {
      mocks.tell(`fail ${name} 1 999`)
      await shows(server, [
        AVAILABLE,
        ...usual(FIRST, 0),
        ...usual(SECOND, 1).filter((line) => !families.some((family) => line.startsWith(`nv_${family}{`))),
      ])
      await vi.waitFor(() => expect(server.output()).toContain(`${name} failed with error 999: Unknown Error`), UNTIL)
      mocks.tell()
      await shows(server, [AVAILABLE, ...usual(FIRST, 0), ...usual(SECOND, 1)])
    }
    // The older form of the same question counts what the driver keeps as in use.
    mocks.tell('fail nvmlDeviceGetMemoryInfo_v2 1 25')
    await vi.waitFor(
      async () =>
        expect(await gpuLines(server)).toContain(`nv_gpu_memory_used_bytes{gpu_uuid="${SECOND}"} ${2.5 * GIB}`),
      UNTIL,
    )
    mocks.tell('fail nvmlDeviceGetMemoryInfo_v2 1 25', 'fail nvmlDeviceGetMemoryInfo 1 999')
    await shows(server, [AVAILABLE, ...usual(FIRST, 0), ...usual(SECOND, 1).filter((line) => !line.includes('memory'))])
    expect(server.output()).toContain(`${SECOND} responds again`)
  })
})

test('O-10 a device that does not answer at all costs its own values only', { timeout: 90_000 }, async () => {
  await withServer({}, async (server) => {
    await shows(server, [AVAILABLE, ...usual(FIRST, 0), ...usual(SECOND, 1)])
    mocks.tell('hang nvmlDeviceGetPowerUsage 1', 'value nvmlDeviceGetUtilizationRates 0 50')
    await vi.waitFor(
      async () => expect(await gpuLines(server)).toContain(of(FIRST, { gpu_utilization: 0.5 })[0]),
      UNTIL,
    )
    // Its last values are shown for a while, then dropped.
    await shows(server, [
      AVAILABLE,
      ...usual(FIRST, 0).map((line) => line.replace(/^(nv_gpu_utilization.*) .*$/, '$1 0.5')),
    ])
    mocks.tell()
    await shows(server, [AVAILABLE, ...usual(FIRST, 0), ...usual(SECOND, 1)])
  })
})

test('O-10 a server ends also while a device does not answer', { timeout: 60_000 }, async () => {
  mocks.tell('hang nvmlDeviceGetUtilizationRates *')
  await withServer({}, (server) => shows(server, [AVAILABLE]))
})

test('O-17 what instances on a GPU did is counted with its gpu_uuid', { timeout: 60_000 }, async () => {
  const models = mkdtempSync(join(tmpdir(), 'nereid-on-gpus-'))
  const tensor = (name: string): string => `[ { name: "${name}" data_type: TYPE_FP32 dims: [ -1 ] } ]`
  for (const [name, group] of [
    ['second', 'kind: KIND_GPU gpus: [ 1 ]'],
    ['host', 'kind: KIND_CPU'],
  ]) {
    mkdirSync(join(models, name ?? '', '1'), { recursive: true })
    writeFileSync(
      join(models, name ?? '', 'config.pbtxt'),
      `backend: "${name === 'host' ? 'identity' : 'device_identity'}"\nmax_batch_size: 0\ninput ` +
        `${tensor('INPUT0')}\noutput ${tensor('OUTPUT0')}\ninstance_group [ { count: 1 ${group} } ]\n`,
    )
  }
  const infer = async (server: TestServer, model: string, datatype = 'FP32'): Promise<number> =>
    (
      await fetch(`${server.url}/v2/models/${model}/infer`, {
        method: 'POST',
        body: `{"inputs":[{"name":"INPUT0","shape":[1],"datatype":"${datatype}","data":[1]}]}`,
      })
    ).status
  try {
    await withServer(
      {},
      async (server) => {
        await shows(server, [AVAILABLE, ...usual(FIRST, 0), ...usual(SECOND, 1)])
        for (const model of ['second', 'host', 'second']) expect(await infer(server, model)).toBe(200)
        const counts = [...parseExposition(await scrape(server), 'text').series]
          .filter(([key]) => /^nv_inference_(?:count|exec_count|request_success)\{/.test(key))
          .map(([key, value]) => `${key} ${value}`)
        expect(counts.toSorted()).toEqual(
          ['count', 'exec_count', 'request_success']
            .flatMap((name) => [
              `nv_inference_${name}{gpu_uuid="${SECOND}",model="second",version="1"} 2`,
              `nv_inference_${name}{model="host",version="1"} 1`,
              `nv_inference_${name}{model="second",version="1"} 0`,
            ])
            .toSorted(),
        )
      },
      [],
      models,
    )
  } finally {
    rmSync(models, { recursive: true, force: true })
  }
})

test.each([
  ['nvmlInit_v2 * 9', 'GPU metrics are not available: nvmlInit failed with error 9: Driver Not Loaded'],
  ['nvmlDeviceGetHandleByPciBusId_v2 1 15', null],
  [
    'nvmlDeviceGetMigMode 1 999',
    'a metric of device 1 is not available until it responds: nvmlDeviceGetMigMode failed with error 999: Unknown Error',
  ],
  ['nvmlDeviceGetMigMode 1 3', null],
  ['nvmlDeviceGetUUID 1 999', null],
] as const)('O-10 NVML fails: %s', { timeout: 60_000 }, async (line, said) => {
  mocks.tell(`fail ${line}`)
  await withServer({}, async (server) => {
    const lost = said === null ? [] : line.includes('*') ? [FIRST, SECOND] : [SECOND]
    await shows(server, [
      AVAILABLE,
      ...[...usual(FIRST, 0), ...usual(SECOND, 1)].filter((one) => !lost.some((uuid) => one.includes(uuid))),
    ])
    if (said !== null) await vi.waitFor(() => expect(server.output()).toContain(said), UNTIL)
  })
})

test.each([
  [
    { NEREID_LIBNVML: '/nonexistent/libnvidia-ml.so.1' },
    [],
    AVAILABLE,
    'GPU metrics are not available: /nonexistent/libnvidia-ml.so.1: cannot open shared object file',
  ],
  [{ NEREID_LIBNVML: 'libc.so.6' }, [], AVAILABLE, 'GPU metrics are not available: the NVML library has no nvmlInit'],
  [{}, ['--allow-gpu-metrics=false'], AVAILABLE, 'CUDA driver 13.0 with 2 device(s)'],
  [{ TRITON_SERVER_CPU_ONLY: '1' }, [], AVAILABLE, 'CUDA driver 13.0 with 2 device(s)'],
  [
    { NEREID_LIBCUDA: '/nonexistent/libcuda.so.1' },
    [],
    '/nonexistent/libcuda.so.1: cannot open shared object file: No such file or directory',
    'no GPU: /nonexistent/libcuda.so.1: cannot open',
  ],
  [
    { CUDA_VISIBLE_DEVICES: '' },
    [],
    "cuInit failed with CUDA_ERROR_NO_DEVICE (100): no CUDA-capable device is detected; CUDA_VISIBLE_DEVICES is ''",
    'no GPU: cuInit failed',
  ],
  [
    { NEREID_MOCK_CUDA_FAIL: 'cuDeviceGetCount:1:100' },
    [],
    'cuDeviceGetCount failed with CUDA_ERROR_NO_DEVICE (100): no CUDA-capable device is detected',
    'no GPU: cuDeviceGetCount failed',
  ],
  [
    { NEREID_MOCK_CUDA_FAIL: 'cuInit:1:100' },
    [],
    'cuInit failed with CUDA_ERROR_NO_DEVICE (100): no CUDA-capable device is detected',
    'no GPU: cuInit failed',
  ],
] as const)(
  'O-10 without GPU metrics the log says why, and only nereid_gpu_available is there: %j %j',
  { timeout: 60_000 },
  async (environment, flags, expected, said) => {
    await withServer(
      environment,
      async (server) => {
        await shows(server, [expected === AVAILABLE ? AVAILABLE : `nereid_gpu_available{reason="${expected}"} 0`])
        await vi.waitFor(() => expect(server.output()).toContain(said), UNTIL)
      },
      [...flags],
    )
  },
)
