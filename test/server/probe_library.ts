/** Compiles the libraries for Triton's C API in test/probes/src. Needs a C compiler. */
import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, readdirSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { ROOT, type TestServer } from './harness.js'

/** Compiles a probe to a file. `work` gets the library that it is linked with. */
export function compileProbe(work: string, probe: string, to: string): void {
  const stub = join(work, 'libtritonserver.so')
  const cc = (args: string[], input?: string): Buffer => execFileSync('cc', args, { input })
  if (!existsSync(stub))
    cc(['-shared', '-nostdlib', '-Wl,-soname,libtritonserver.so', '-x', 'c', '-', '-o', stub], 'int stub;')
  mkdirSync(dirname(to), { recursive: true })
  const source = join(ROOT, 'test/probes/src', `${probe}.c`)
  const flags = ['-std=gnu11', '-fPIC', '-shared', '-fvisibility=hidden', '-w', '-pthread', '-Wl,--no-as-needed']
  cc([...flags, `-I${join(ROOT, 'shm/include')}`, source, `-L${work}`, '-ltritonserver', '-o', to])
}

/** Pids of the processes of libraries. */
export function hosts(server: TestServer): number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .filter((pid) => {
      try {
        const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
        const [, parent] = /\) \S (\d+)/.exec(stat) ?? []
        const command = readFileSync(`/proc/${pid}/cmdline`, 'utf8')
        return (
          Number(parent) === server.process.pid &&
          command.includes('nereid-backend-host') &&
          !command.includes('--guardian')
        )
      } catch {
        return false
      }
    })
    .map(Number)
}
