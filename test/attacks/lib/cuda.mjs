/** A machine with a GPU, of which a stand-in of the driver's library knows (crates/device/tests/mock). */
import { execFileSync } from 'node:child_process'
import { mkdirSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const DIRECTORY = join(tmpdir(), `nereid-attacks-cuda-${process.pid}`)
const SOURCE = new URL('../../../crates/device/tests/mock/libcuda.c', import.meta.url).pathname

/** The environment of a server there; `buildCuda` is to be called before it starts. */
export const cudaEnvironment = { NEREID_LIBCUDA: join(DIRECTORY, 'libcuda.so.1'), NEREID_MOCK_CUDA_DIR: DIRECTORY }

export function buildCuda() {
  mkdirSync(DIRECTORY, { recursive: true })
  execFileSync('cc', ['-O1', '-shared', '-fPIC', '-o', cudaEnvironment.NEREID_LIBCUDA, SOURCE, '-lpthread'])
}
