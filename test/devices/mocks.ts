/** Stand-ins of the drivers' libraries (crates/device/tests/mock), built once for a file of tests. */
import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { ROOT } from '../server/harness.js'

const SOURCES = join(ROOT, 'crates/device/tests/mock')

/** Uuids of the mock's devices, and of the two instances of the second. */
export const UUIDS = ['GPU-a0000000-0000-4000-8000-000000000001', 'GPU-a1000000-0000-4000-8000-000000000002'] as const
export const INSTANCES = [
  'MIG-b1000000-0000-4000-8000-000000000002',
  'MIG-b1100000-0000-4000-8000-000000000002',
] as const

export class Mocks {
  readonly directory = mkdtempSync(join(tmpdir(), 'nereid-devices-'))
  readonly #told = join(this.directory, 'nvml')

  constructor() {
    mkdirSync(join(this.directory, 'memory'))
    for (const [source, library] of [
      ['libcuda.c', 'libcuda.so.1'],
      ['libnvidia-ml.c', 'libnvidia-ml.so.1'],
    ] as const) {
      execFileSync('cc', [
        '-O1',
        '-shared',
        '-fPIC',
        '-o',
        join(this.directory, library),
        join(SOURCES, source),
        '-lpthread',
      ])
    }
    this.tell()
  }

  /** Sets the answers of NVML, in lines that libnvidia-ml.c describes; without lines, its usual values. */
  tell(...lines: string[]): void {
    writeFileSync(this.#told, lines.map((line) => `${line}\n`).join(''))
  }

  /** The environment of a process on a machine with two devices. */
  environment(more: Record<string, string> = {}): NodeJS.ProcessEnv {
    const { CUDA_VISIBLE_DEVICES: _, TRITON_SERVER_CPU_ONLY: __, ...rest } = process.env
    return {
      ...rest,
      NEREID_LIBCUDA: join(this.directory, 'libcuda.so.1'),
      NEREID_LIBNVML: join(this.directory, 'libnvidia-ml.so.1'),
      NEREID_MOCK_CUDA_DIR: join(this.directory, 'memory'),
      NEREID_MOCK_CUDA_DEVICES: '2',
      NEREID_MOCK_NVML: this.#told,
      ...more,
    }
  }

  remove(): void {
    rmSync(this.directory, { recursive: true, force: true })
  }
}
