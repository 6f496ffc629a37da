/** The suite `peers`: answers are looked at before the clock runs, and the table has figures of others as multiples. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { buffer } from 'node:stream/consumers'
import { expect, onTestFinished, test } from 'vitest'
import { Generator } from '../../bench/lib/load.mjs'
import { parseOptions } from '../../bench/lib/options.mjs'
import { spread } from '../../bench/lib/stats.mjs'
import { PEERS_HEAD, peerNotes, peerRows, readmeTable, sentencesText } from '../../bench/report/peers.mjs'
import { judge } from '../../bench/report/targets.mjs'
import { FASTAPI, SENTENCES, UWS } from '../../bench/suites/peers.mjs'
import { lists, rawBytes } from '../../bench/subjects/peers.mjs'
import { simple } from '../../bench/workloads.mjs'

/** The load generator of the bench, with requests that Node sends. */
class Sender extends Generator {
  override async once({ address, path, body }: { address: string; path: string; body: string }) {
    const answer = await fetch(`http://${address}${path}`, { method: 'POST', body: readFileSync(body) })
    return Buffer.from(await answer.arrayBuffer())
  }
  override async load() {
    return JSON.stringify({ errors: 0, requests: 1 })
  }
}

/** Checks a server that turns the 32-bit numbers of a request into those of its answer. */
async function check(form: typeof rawBytes | typeof lists, answer: (numbers: number[], nth: number) => number[]) {
  let count = 0
  const server = createServer(async (request, response) => {
    const body = await buffer(request)
    const isJson = body[0] === 0x7b
    const numbers = isJson ? JSON.parse(`${body}`).input : [...new Int32Array(new Uint8Array(body).buffer)]
    const output = answer(numbers, (count += 1))
    response.end(isJson ? JSON.stringify({ output }) : Buffer.from(Int32Array.from(output).buffer))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const directory = mkdtempSync(join(tmpdir(), 'nereid-peers-'))
  onTestFinished(() => {
    server.close()
    rmSync(directory, { recursive: true })
  })
  const subject = { ...form, http: (server.address() as AddressInfo).port, kind: 'peer' }
  const generator = new Sender('none', directory)
  const [transport, shape] = ['HTTP', 'binary']
  const target = generator.target(subject, simple, transport, shape)
  const ring = generator.ring(subject, simple, transport, shape)
  const all = { subject, workload: simple, transport, form: shape, target, ring, traffic: 'varied' }
  return generator.check({ ...all, answersVary: true, connections: 1, streams: 1 })
}

const sums = (numbers: number[]) => {
  const [a, b] = [numbers.slice(0, numbers.length / 2), numbers.slice(numbers.length / 2)]
  return [...a.map((x, i) => x + (b[i] ?? 0)), ...a.map((x, i) => x - (b[i] ?? 0))]
}

test('different requests are sent at once, and one wrong answer among them is found', async () => {
  for (const form of [rawBytes, lists]) {
    await expect(check(form, sums)).resolves.toBeInstanceOf(Buffer)
    await expect(
      check(form, (numbers, nth) => (nth === 5 ? sums(numbers).map((x) => x + 1) : sums(numbers))),
    ).rejects.toThrow(/answer is wrong/)
    await expect(check(form, () => [])).rejects.toThrow(/too short/)
  }
  // The answer to another request, as a server gives that mixes up a batch.
  let last: number[] = []
  const mixed = (numbers: number[]) => {
    const earlier = last
    last = sums(numbers)
    return earlier.length === last.length ? earlier : last
  }
  await expect(check(rawBytes, mixed)).rejects.toThrow(/answer is wrong/)
})

const one = (subject: string, workload: string, c: number, ...runs: [number, number][]) => ({
  suite: 'peers',
  subject,
  workload,
  c,
  transport: 'HTTP',
  rate: spread(runs.map(([rate]) => rate)),
  p50: spread([100]),
  p99: spread([200]),
  cpuUs: spread(runs.map(([, us]) => us)),
  runs: runs.map(([rate, cpuUs]) => ({ rate, p50: 100, p99: 200, cpuUs })),
})
const result = {
  quick: false,
  tritonReference: null,
  cells: [
    one('Nereid', 'small ONNX', 1, [20_000, 10], [10_000, 20]),
    one(FASTAPI, 'small ONNX', 1, [5000, 50], [5000, 60]),
    one('Nereid', 'small ONNX', 8, [50_000, 10]),
    one(UWS, 'small ONNX', 8, [25_000, 20]),
    one('Nereid', 'MiniLM', 8, [100, 9000]),
    one(SENTENCES, 'MiniLM', 8, [25, 27_000]),
  ],
}

test('a quick run leaves the suite out unless it is asked for', () => {
  const of = (...words: string[]) => {
    const { suites, isWhole } = parseOptions(words)
    return [suites.includes('peers'), isWhole]
  }
  expect(of()).toEqual([true, true])
  expect(of('--quick')).toEqual([false, true])
  expect(of('--quick', '--peers')).toEqual([true, true])
  expect(of('--quick', '--suite=peers')).toEqual([true, false])
})

test('other servers are multiples of Nereid in the same repetition', () => {
  const cellOf = (row: string, server: string) =>
    peerRows(result).find(([name]: string[]) => name === row)?.[PEERS_HEAD.indexOf(server)]
  expect(cellOf('small ONNX, c=1', '**Nereid**')).toBe('15k/s · 100 µs · 200 µs · 15.0 µs')
  expect(cellOf('small ONNX, c=1', FASTAPI)).toBe('0.38 · 1.00 · 1.00 · 4.00')
  expect(cellOf('small ONNX, c=1', UWS)).toBe('–')
  expect(peerRows(result)).toHaveLength(3)
  expect(sentencesText(result)).toContain('has 0.25 of the rate at 3.00 of the CPU')
  // The short one: one client and 32.
  expect(readmeTable(result)).toHaveLength(3)
  const [, , first] = readmeTable(result)
  expect(first).toBe('| small ONNX, c=1 | 15k/s · 200 µs · 15.0 µs | – | 0.38 · 1.00 · 4.00 | – | – | – |')
})

test('a target compares the rate with servers of Node', () => {
  const row = judge(result).find(({ what }) => what === `HTTP \`simple\`, c=8: throughput ÷ ${UWS} + onnxruntime-node`)
  expect(row).toMatchObject({ figure: 2, target: '≥ 2.5', verdict: 'missed' })
  const notes = peerNotes({
    cpus: 2,
    packages: ['fastapi==0.165.0', 'litserve==0.2.19'],
    chosen: [{ workload: 'MiniLM', c: 8, subject: FASTAPI, setting: '2 × 1' }],
  }).join('\n')
  expect(notes).toContain('FastAPI 0.165.0: 2 processes of uvicorn')
  expect(notes).toContain('FastAPI c=8: 2 × 1.')
})
