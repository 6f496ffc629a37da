/** `nereid bench` when it is ended early, when the server fails or stops answering, and what it says then. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { bench, smallServer, start } from './run_bench.js'

const directory = mkdtempSync(join(tmpdir(), 'nereid-bench-ends-'))
afterAll(() => rmSync(directory, { recursive: true }))
const path = (name: string): string => join(directory, name)
const until = async (isTrue: () => boolean): Promise<void> => {
  while (!isTrue()) await new Promise((resolve) => setTimeout(resolve, 5))
}
const HEAD =
  'Concurrency,Inferences/Second,Client Send,Network+Server Send/Recv,Server Queue,Server Compute Input,' +
  'Server Compute Infer,Server Compute Output,Client Recv,p50 latency,p90 latency,p95 latency,p97 latency,p99 latency'

test('without statistics, the CSV file keeps its columns, and any percentile has one', async () => {
  const { url, kill } = await smallServer(1)
  const table = path('small.csv')
  const run = [url, '--model=m', '--seconds=0.3', '--warmup=0', '--percentile', '97', `--csv=${table}`]
  const { code, out, err } = await bench(...run)
  expect({ code, err }).toEqual({ code: 0, err: '' })
  const [head, row = ''] = readFileSync(table, 'utf8').trim().split('\n')
  expect(head).toBe(HEAD)
  const cells = row.split(',').map(Number)
  expect(cells.slice(2, 9)).toEqual([0, 0, 0, 0, 0, 0, 0])
  const [p95 = 0, p97 = 0, p99 = 0] = cells.slice(-3)
  // The histogram has the upper ends of its buckets.
  expect(p97).toBeGreaterThanOrEqual(p95)
  expect(p97).toBeLessThanOrEqual(p99 * 1.05)
  expect(out).toMatch(/in flight +requests\/s +mean +p50 +p90 +p97 +p99 +max +client CPU\n/)
  kill()
})

test('two servers of 1 ms and 2 ms differ', async () => {
  const [fast, slow] = [await smallServer(1), await smallServer(2)]
  const run = [fast.url, slow.url, '--model=m', '--seconds=0.3', '--warmup=0.05', '--pairs=12']
  const { code, out } = await bench(...run)
  expect(out).toMatch(/^12 pairs of runs in turns/)
  expect(out).toMatch(/requests\/s .* A is [12]\.\d+ times higher \(/)
  expect(out).toMatch(/p50 .* A is [12]\.\d+ times faster \(/)
  expect(code).toBe(0)
  fast.kill()
  slow.kill()
})

test('a comparison that is ended early decides nothing', async () => {
  const seen: never[] = []
  const [one, other] = [await smallServer(5, seen), await smallServer(5)]
  const { child, over } = start(one.url, other.url, '--model=m', '--seconds=1', '--warmup=0')
  await until(() => seen.length > 20)
  child.kill('SIGINT')
  const { code, out } = await over
  expect(code).toBe(130)
  expect(out).toMatch(/^0 pairs of runs/)
  expect(out).toMatch(/requests\/s +A +- +B +- +not decided: it takes 10 pairs/)
  expect(out).toMatch(/ended early: this is what was measured\n$/)
  expect(out).not.toContain('NaN')
  one.kill()
  other.kill()
})

test('a search that is ended before a rate was tried says so', async () => {
  const seen: never[] = []
  const { url, kill } = await smallServer(5, seen)
  const { child, over } = start(url, '--model=m', '--goal=p99<1s', '--seconds=60')
  await until(() => seen.length > 50)
  child.kill('SIGINT')
  const { code, out } = await over
  expect(code).toBe(130)
  expect(out).toContain('the search was ended early, before a rate kept p99 < 1 s')
  expect(out).not.toContain('not met at any rate')
  kill()
})

test('a sweep that is ended early has the rows that were measured, and no others', async () => {
  const seen: never[] = []
  const { url, kill } = await smallServer(5, seen)
  const { child, over } = start(url, '--model=m', '--concurrency=1,2,3', '--requests=100')
  await until(() => seen.length > 150)
  child.kill('SIGINT')
  const { code, out } = await over
  expect(code).toBe(130)
  const rows = out.split('\n').filter((line) => /^ +\d+ +[\d.]+ /.test(line))
  expect(rows.length).toBeGreaterThanOrEqual(1)
  expect(rows.length).toBeLessThan(3)
  expect(rows.some((row) => /^ +\d+ +0\.00 /.test(row))).toBe(false)
  kill()
})

test('a server that goes away: what was measured is printed and written', async () => {
  const seen: never[] = []
  const small = await smallServer(5, seen)
  const [table, all, page] = [path('gone.csv'), path('gone.json'), path('gone.html')]
  const files = [`--csv=${table}`, `--json=${all}`, `--report=${page}`]
  const { over } = start(small.url, '--model=m', '--concurrency=1,2,4', '--requests=200', ...files)
  await until(() => seen.length > 300)
  small.kill()
  const { code, out, err } = await over
  expect({ code, err }).toEqual({ code: 1, err: '' })
  expect(out).toMatch(/^FAILED /)
  expect(out).toMatch(/\n +1 +\d+(\.\d+)? .*/)
  expect(readFileSync(table, 'utf8')).toMatch(/\n1,\d/)
  const { rows } = JSON.parse(readFileSync(all, 'utf8')) as { rows: { result: { requests: number } }[] }
  expect(rows[0]?.result.requests).toBe(200)
  expect(readFileSync(page, 'utf8')).toContain('FAILED')
})

test('statistics that never come cost two seconds, not the measurement', async () => {
  const { url, kill } = await smallServer(1, [], ({ url: asked }) => (asked?.endsWith('/stats') === true ? null : 200))
  const before = performance.now()
  const { code, out } = await bench(url, '--model=m', '--requests=20')
  expect(code).toBe(0)
  expect(out).not.toContain('server queue')
  expect(performance.now() - before).toBeLessThan(15_000)
  kill()
})

test('a frozen server: --timeout says when a request has failed', async () => {
  const seen: never[] = []
  const frozen = await smallServer(0, seen, (_, inferences) => (inferences > 5 ? null : 200))
  const late = await bench(frozen.url, '--model=m', '--requests=10', '--timeout=0.5')
  expect(late.code).toBe(1)
  expect(late.out).toMatch(/^FAILED with 1 in flight: .*\n.*no (response|answer) within 0\.5 s/)
  frozen.kill()
  const other = await smallServer(0, seen, (_, inferences) => (inferences > 5 ? null : 200))
  const count = seen.length
  const { child, over } = start(other.url, '--model=m', '--seconds=60')
  await until(() => seen.length > count + 5)
  const before = performance.now()
  child.kill('SIGINT')
  await over
  expect(performance.now() - before).toBeLessThan(5000)
  other.kill()
})

test.each([
  ['no answer about the model', 0],
  ['no answer to inferences', 6],
])('Ctrl-C ends at once: %s', async (_, answered) => {
  const seen: never[] = []
  const { url, kill } = await smallServer(0, seen, () => (seen.length > answered ? null : 200))
  const { child, over } = start(url, '--model=m', '--timeout=60', '--concurrency=1,2')
  await until(() => seen.length > answered)
  const before = performance.now()
  // The second one waits for nothing, not even for the load generator.
  const again = setInterval(() => child.kill('SIGINT'), 20)
  expect((await over).code).toBe(130)
  clearInterval(again)
  expect(performance.now() - before).toBeLessThan(1500)
  kill()
})

test.each([
  ['text', '# HELP nv_x\nnv_x 1\n'],
  ['JSON', '{"nv_x": 1}'],
])('a port with %s of something else is told in a line', async (_, body) => {
  const other = createServer((request, response) => request.resume().once('end', () => response.end(body)))
  await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve))
  const url = `http://127.0.0.1:${(other.address() as AddressInfo).port}`
  for (const args of [[url], [url, '--model=m']]) {
    const { code, err } = await bench(...args)
    const text = `${url} does not respond like a server of the v2 protocol: give the HTTP port, 8000 by default\n`
    expect({ code, err }).toEqual({ code: 1, err: text })
  }
  other.close()
})

test('a goal that failing requests miss is reported in lines, table and summary', async () => {
  const { url, kill } = await smallServer(1, [], (_, inferences) => (inferences % 2 === 0 ? 500 : 200))
  const page = path('goal.html')
  const { code, out, err } = await bench(url, '--model=m', '--goal=p99<1s', '--seconds=1', `--report=${page}`)
  expect(code).toBe(1)
  expect(err).toMatch(/requests\/s due: not kept: \d+ of \d+ requests failed\n/)
  const [, rate = '', reason = ''] =
    /p99 < 1 s was not met at any rate; at ([\d.,]+)\/s (\d+ of \d+ requests? failed)/.exec(out) ?? []
  expect(reason).not.toBe('')
  // The rate and the figures of the summary are a row of the table.
  expect(out).toMatch(new RegExp(`\\n +${rate} +\\d\\.\\d .* no `))
  // The first runs are short.
  expect(out).toMatch(/\n *32 in flight +0\.3 /)
  expect(out).toMatch(/rate due +seconds +requests\/s .* unsent +kept /)
  const html = readFileSync(page, 'utf8')
  expect(html).toContain('<line class="limit"')
  expect(html).toContain('<circle ')
  expect(html).toContain('open loop count from')
  kill()
})
