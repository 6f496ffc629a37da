/** `npm run test:gpu` where there is no GPU, and its rows over the stand-in of the driver. */
import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { ROWS } from './rows.mjs'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))

function run(words: string[], env: Record<string, string> = {}): { code: number | null; lines: string[] } {
  const done = spawnSync('npm', ['run', '--silent', 'test:gpu', '--', ...words], {
    cwd: ROOT,
    encoding: 'utf8',
    env: { ...process.env, ...env },
  })
  return { code: done.status, lines: `${done.stdout}${done.stderr}`.split('\n') }
}

// Also on a machine that has a driver.
const NO_GPU = { NEREID_LIBCUDA: '/nonexistent/libcuda.so.1' }
const idsOf = (lines: string[], state: string) =>
  lines.flatMap((line) => new RegExp(`^${state} +([\\w-]+)(?::|$)`).exec(line)?.[1] ?? [])

test('without a GPU each row is not run, with the reason, and that is no error', () => {
  const { code, lines } = run([], NO_GPU)
  expect(idsOf(lines, 'not run')).toEqual(ROWS.map(({ id }) => id))
  expect(
    lines
      .filter((line) => line.startsWith('not run'))
      .every((line) => line.includes('no GPU: /nonexistent/libcuda.so.1: ')),
  ).toBe(true)
  expect(lines).toContain(`0 passed, 0 failed, ${ROWS.length} not run`)
  expect(code).toBe(0)
})

test('--require-gpu makes a row that is not run an error', () => {
  expect(run(['--require-gpu', '--only=metrics'], NO_GPU).code).toBe(1)
})

test('a row that is not there is told', () => {
  const { code, lines } = run(['--only=none'], NO_GPU)
  expect(code).toBe(1)
  expect(lines.some((line) => line.startsWith('no row none: there are shm-http, '))).toBe(true)
})

test('each row of the table has code, and nothing else has', () => {
  const listed = spawnSync('python3', ['test/gpu/run.py', '--list'], {
    cwd: ROOT,
    encoding: 'utf8',
    env: { ...process.env, PYTHONDONTWRITEBYTECODE: '1' },
  })
  expect(listed.stdout.trim().split('\n'), listed.stderr).toEqual(ROWS.map(({ id }) => id).toSorted())
})

test('rows that want memory of two processes pass over the stand-in, which is told', { timeout: 120_000 }, () => {
  const only = ['shm-http', 'shm-grpc', 'shm-refused', 'shm-staged', 'device-steps', 'python-device', 'device-fails']
  const { code, lines } = run(['--mock', ...only.map((id) => `--only=${id}`)])
  expect(lines.filter((line) => line.startsWith('passed (mock)')).length, lines.join('\n')).toBe(only.length)
  expect(lines).toContain('7 passed, 0 failed, 0 not run (mock: no GPU was used)')
  expect(code).toBe(0)
})

test.runIf(process.arch === 'x64')(
  'rows of ONNX Runtime on a device pass with a provider without a GPU',
  { timeout: 120_000 },
  () => {
    const only = ['shm-in-place', 'shm-no-copies', 'ort-auto', 'ort-instances', 'ort-offsets', 'ensemble-device']
    const { code, lines } = run(['--mock', ...only.map((id) => `--only=${id}`)])
    expect(lines.filter((line) => line.startsWith('passed (mock)')).length, lines.join('\n')).toBe(only.length)
    expect(code).toBe(0)
  },
)
