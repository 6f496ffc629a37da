/**
 * Where instances go on a machine with GPUs (stand-ins of the drivers), and what is said where ONNX Runtime's provider
 * is missing.
 */
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import { resolveInstanceGroups, type Devices } from '../../src/config/index.js'
import { usable } from '../../src/repository/devices.js'
import { poll } from '../config/helpers.js'
import { ROOT, TestServer } from '../server/harness.js'
import { Mocks } from './mocks.js'

const KINDS = ['AUTO', 'GPU', 'CPU', 'MODEL']

describe('C-14 a backend without its provider', () => {
  const devices: Devices = { gpus: [0, 1], gpuSupport: true, minComputeCapability: 6, missing: 'it is missing' }
  const groups = (text: string, of = devices): string =>
    resolveInstanceGroups(poll('m', `backend: "onnxruntime" ${text}`), of)
      .instanceGroup.map((g) => `${g.name} ${KINDS[g.kind]} ${g.count} [${g.gpus}]`)
      .join('; ')

  test('goes to the CPU where its group leaves it open', () => {
    expect(groups('')).toBe('m CPU 2 []')
    expect(groups('instance_group { count: 3 }')).toBe('m_0 CPU 3 []')
  })

  test('is refused where its group wants a GPU', () => {
    expect(() => groups('instance_group { kind: KIND_GPU }')).toThrow(
      "instance group m_0 of model m has kind KIND_GPU but it is missing; 'nereid gpu' says what this " +
        'machine has and what installs the rest; --gpu-fallback=cpu serves it on the CPU',
    )
  })

  test('goes to every GPU with it', () => {
    const { missing: _, ...whole } = devices
    expect(groups('', whole)).toBe('m GPU 1 [0,1]')
    expect(groups('instance_group { kind: KIND_GPU count: 2 gpus: 1 }', whole)).toBe('m_0 GPU 2 [1]')
    expect(groups('instance_group { kind: KIND_CPU }', whole)).toBe('m_0 CPU 2 []')
    // A backend that has no use for a GPU is there only when it is asked.
    expect(groups('', { ...whole, onlyWhenAsked: true })).toBe('m CPU 2 []')
    expect(groups('instance_group { kind: KIND_GPU }', { ...whole, onlyWhenAsked: true })).toBe('m_0 GPU 1 [0,1]')
  })
})

test('C-14 devices below --min-supported-compute-capability are not used', () => {
  const of = (computeCapability: string | null, ordinal: number) => ({ ordinal, computeCapability })
  expect(usable(['5.2', '6.0', '9.0', '10.0', null].map(of), 6)).toEqual([1, 2, 3, 4])
  expect(usable(['5.2', '9.0'].map(of), 9.1)).toEqual([])
})

describe('C-14 a server with GPUs and without a provider', () => {
  const mocks = new Mocks()
  const repository = mkdtempSync(join(tmpdir(), 'nereid-placement-'))
  const nothing = mkdtempSync(join(tmpdir(), 'nereid-no-provider-'))
  afterAll(() => {
    mocks.remove()
    for (const directory of [repository, nothing]) rmSync(directory, { recursive: true, force: true })
  })
  for (const [name, group] of [
    ['open', ''],
    ['also_open', 'instance_group { count: 1 }'],
    ['on_gpu', 'instance_group { kind: KIND_GPU }'],
  ]) {
    cpSync(join(ROOT, 'examples/models/simple'), join(repository, name ?? ''), { recursive: true })
    writeFileSync(join(repository, name ?? '', 'config.pbtxt'), `backend: "onnxruntime" max_batch_size: 8 ${group}`)
  }
  mkdirSync(join(repository, 'trees', '1'), { recursive: true })
  cpSync(join(ROOT, 'crates/trees/tests/models/squared.json'), join(repository, 'trees', '1', 'xgboost.json'))
  const parameter = (key: string, value: string) => `parameters { key: "${key}" value { string_value: "${value}" } }`
  writeFileSync(
    join(repository, 'trees', 'config.pbtxt'),
    'backend: "fil" max_batch_size: 8 instance_group { kind: KIND_GPU } ' +
      `${parameter('model_type', 'xgboost_json')} ${parameter('is_classifier', 'false')}`,
  )
  const start = (...flags: string[]): Promise<TestServer> =>
    TestServer.start(
      repository, ['--exit-on-error=false', `--backend-config=onnxruntime,provider-directory=${nothing}`, ...flags],
      { env: mocks.environment() },
    )
  const states = async (server: TestServer): Promise<string[]> => {
    const answer = await fetch(`http://127.0.0.1:${server.httpPort}/v2/repository/index`, { method: 'POST' })
    const rows = (await answer.json()) as { name: string; state: string; reason: string }[]
    return rows.map(({ name, state }) => `${name} ${state}`).toSorted()
  }

  test(
    'serves on the CPU what leaves it open, with one warning, and names nereid gpu to what does not',
    { timeout: 60_000 },
    async () => {
    const server = await start()
    try {
      expect(await states(server)).toEqual(['also_open READY', 'on_gpu UNAVAILABLE', 'open READY', 'trees READY'])
      const output = server.output()
        expect(
          output.match(
            /are served on the CPU: ONNX Runtime's CUDA provider cannot be used: there is no libonnxruntime_providers_cuda\.so/g,
          ),
        ).toHaveLength(1)
        expect(output).toContain(
          "instance group on_gpu_0 of model on_gpu has kind KIND_GPU but ONNX Runtime's CUDA provider cannot be used",
        )
        expect(
          output.match(
            /model 'trees' is served on the CPU, where the backend 'fil' computes, whatever is said by instance group trees_0/g,
          ),
        ).toHaveLength(1)
        expect(output).toContain(
          "'nereid gpu' says what this machine has and what installs the rest; --gpu-fallback=cpu serves it on the CPU",
        )
    } finally {
      await server.stop()
    }
  })

  test('follows --gpu-fallback=cpu', { timeout: 60_000 }, async () => {
    const server = await start('--gpu-fallback=cpu')
    try {
      expect(await states(server)).toEqual(['also_open READY', 'on_gpu READY', 'open READY', 'trees READY'])
    } finally {
      await server.stop()
    }
  })
})
