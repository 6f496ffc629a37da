/** The list of failed tests at the end of `npm test`: read from each runner's output, and named with their suite. */
import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { cargoCounts, junitCounts, lastLineCounts, vitestCounts } from '../../scripts/lib/counts.mjs'
import { failureLines } from '../../scripts/lib/failures.mjs'
import { startedWith } from '../../scripts/lib/run.mjs'
import { twice } from '../../scripts/lib/twice.mjs'

const directory = mkdtempSync(join(tmpdir(), 'nereid-failures-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

function file(name: string, text: string): string {
  const path = join(directory, name)
  writeFileSync(path, text)
  return path
}

test('tests of cargo are named, and so are binaries that named none', () => {
  const text = [
    'test tests::good ... ok',
    'test tests::bad ... FAILED',
    'test tests::panics - should panic ... FAILED',
    'test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out',
    'error: 1 target failed:',
    '    `-p nereid-engine --test flow`',
  ]
  expect(cargoCounts(101, text.join('\n'))).toEqual({
    passed: 1,
    failed: 2,
    unran: 0,
    skipped: '',
    failures: ['tests::bad', 'tests::panics', '-p nereid-engine --test flow'],
  })
  const broken = 'error: could not compile `nereid-http2` (lib) due to 1 previous error'
  expect(cargoCounts(101, broken)).toMatchObject({
    failed: 1,
    failures: ['could not compile `nereid-http2` (lib) due to 1 previous error'],
  })
  expect(cargoCounts(0, 'test result: ok. 3 passed; 0 failed; 0 ignored')).toMatchObject({
    passed: 3,
    failed: 0,
    failures: [],
  })
})

test('our own runner prints FAILED before a failure', () => {
  expect(lastLineCounts(1, 'ok     http: 3\nFAILED grpc: 5 instructions\n1 passed, 1 failed\n')).toEqual({
    passed: 1,
    failed: 1,
    failures: ['grpc: 5 instructions'],
  })
  expect(lastLineCounts(139, '')).toEqual({
    passed: 0,
    failed: 1,
    failures: ['the runner ended with 139 and named no test: what it said is above'],
  })
})

test('tests of vitest are named with their file, also a file that cannot be read', () => {
  const report = {
    numPassedTests: 1,
    numFailedTests: 1,
    numPendingTests: 0,
    testResults: [
      {
        name: '/somewhere/test/cli/a.test.ts',
        status: 'failed',
        assertionResults: [
          { status: 'passed', fullName: 'good' },
          { status: 'failed', fullName: 'O-1 bad' },
        ],
      },
      { name: '/somewhere/test/cli/b.test.ts', status: 'failed', assertionResults: [] },
    ],
  }
  const counts = vitestCounts(1, file('vitest.json', JSON.stringify(report)))
  expect(counts).toMatchObject({
    passed: 1,
    failed: 2,
    failures: ['test/cli/a.test.ts: O-1 bad', 'test/cli/b.test.ts: cannot be read'],
  })
})

test('tests of pytest are named, failures and errors alike', () => {
  const text =
    '<testsuites><testsuite name="pytest" errors="1" failures="1" skipped="0" tests="3">' +
    '<testcase classname="test_a" name="test_good" time="0.1" />' +
    '<testcase classname="test_a" name="test_bad[&lt;1&#10;&gt;]" time="0.1"><failure ' +
    'message="no">&lt;testcase </failure></testcase>' +
    '<testcase classname="test_b" name="test_setup" time="0.1"><error ' +
    'message="no">x</error></testcase></testsuite></testsuites>'
  expect(junitCounts(1, file('pytest.xml', text))).toEqual({
    passed: 1,
    failed: 2,
    skipped: '',
    failures: ['test_a::test_bad[<1\n>]', 'test_b::test_setup'],
  })
})

test('each failed test is one line with its suite', () => {
  expect(failureLines('rust', 2, ['a', 'b\n  c'])).toEqual(['  rust      a', '  rust      b c'])
  expect(failureLines('rust', 3, ['a'])).toEqual([
    '  rust      a',
    '  rust      … and 2 without a name: see its lines above',
  ])
  expect(failureLines('rust', 3, [])).toEqual(['  rust      3 without a name: see its lines above'])
  const many = failureLines(
    'golden',
    2000,
    Array.from({ length: 2000 }, (_, i) => `case ${i}`),
  )
  expect(many.length).toBeLessThan(100)
  expect(many.at(-1)).toContain('1940 more')
})

test('a test that passes when repeated alone counts as passed and is named', async () => {
  const first = { passed: 7, failed: 2, failures: ['a', 'b'] }
  const asked: string[][] = []
  const again = (answer: { passed: number; failed: number; failures: string[] }) => async (failures: string[]) => {
    asked.push(failures)
    return answer
  }
  const one = await twice('rust', { ...first, again: again({ passed: 1, failed: 1, failures: ['b'] }) })
  expect(one).toEqual({ passed: 8, failed: 1, failures: ['b'], unsteady: ['a'] })
  expect(asked).toEqual([['a', 'b']])
  expect(await twice('rust', { ...first, again: again({ passed: 2, failed: 0, failures: [] }) })).toEqual({
    passed: 9,
    failed: 0,
    failures: [],
    unsteady: ['a', 'b'],
  })
})

test('a second attempt without tests changes nothing, and many failures get none', async () => {
  const first = { passed: 7, failed: 1, failures: ['a'] }
  expect(await twice('rust', { ...first, again: async () => ({ passed: 0, failed: 0, failures: [] }) })).toEqual(first)
  const failures = [...'abcdefghijk']
  const many = { passed: 7, failed: failures.length, failures }
  const never = () => {
    throw new Error('asked')
  }
  expect(await twice('rust', { ...many, again: never })).toEqual(many)
  expect(await twice('rust', { passed: 7, failed: 0, failures: [], again: never })).toEqual({
    passed: 7,
    failed: 0,
    failures: [],
  })
})

test('a process that a run left behind is found by the variable that it inherited', async () => {
  const [variable, env] = ['NEREID_TEST_LEFT=yes', { ...process.env, NEREID_TEST_LEFT: 'yes' }]
  const child = spawn(process.execPath, ['-e', 'process.stdin.resume()'], { env, stdio: ['pipe', 'ignore', 'ignore'] })
  const found = { pid: child.pid, command: `${process.execPath} -e process.stdin.resume() ` }
  await expect.poll(() => startedWith(variable)).toEqual([found])
  child.kill('SIGKILL')
  await expect.poll(() => startedWith(variable)).toEqual([])
})
