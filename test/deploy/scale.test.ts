/** The figures of docs/scale.md: measured ones are in bench/results, and a server has the number of series. */
import { cpSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { ROOT, TestServer } from '../server/harness.js'

const read = (path: string): string => readFileSync(join(ROOT, path), 'utf8')
const PAGE = read('docs/scale.md')

/** Cells of a table of the page, without its head, by the text of the first cell. */
const rowsAfter = (head: string): Map<string, string[]> => {
  const [, table = ''] = PAGE.split(head)
  const lines = (/^(?:\s*\|.*\n)+/m.exec(table)?.[0] ?? '').trim().split('\n').slice(2)
  return new Map(
    lines.map((line) => {
      const [first = '', ...rest] = line
        .split('|')
        .slice(1, -1)
        .map((cell) => cell.trim())
      return [first, rest]
    }),
  )
}

interface Measured {
  suite: string
  subject: string
  workload: string
  transport: 'HTTP' | 'gRPC'
  traffic: string
  c: number
  rate: { median: number }
  cpuUs: { median: number }
  runs: { rate: number }[]
}
const cellsOf = (name: string): Measured[] =>
  (JSON.parse(read(`bench/results/${name}.json`)) as { cells: Measured[] }).cells
const median = (values: number[]): number => values.toSorted((a, b) => a - b)[values.length >> 1] ?? NaN
/** Three digits, as the pages of the bench print them. */
const digits = (value: number): number => Number(value.toPrecision(3))

test('CPU of a request and the rate of a reactor are those of bench/results/full.json', () => {
  const found = (subject: string, transport: string): Measured | undefined =>
    cellsOf('full').find(
      (cell) =>
        [cell.suite, cell.subject, cell.workload, cell.transport, cell.c, cell.traffic].join() ===
        ['front', subject, 'simple', transport, 8, 'varied'].join(),
    )
  const subjects = {
    Nereid: 'Nereid',
    'Triton, responses from its response cache': 'Triton (response cache)',
    'Triton, a Python model': 'Triton (Python backend)',
  }
  const rows = rowsAfter('Server CPU for a request')
  expect([...rows.keys()]).toEqual(Object.keys(subjects))
  for (const [name, subject] of Object.entries(subjects)) {
    const expected = ['HTTP', 'gRPC'].map((transport) => digits(found(subject, transport)?.cpuUs.median ?? NaN))
    expect(rows.get(name)?.map(Number), name).toEqual(expected)
  }
  expect(PAGE).toContain(`(${Math.round(found('Nereid', 'HTTP')?.rate.median ?? NaN).toLocaleString('en')} with eight`)
})

test('rates of more reactors are those of bench/results/scale.json', () => {
  const cells = cellsOf('scale')
  const of = (workload: string, transport: string, count: number): Measured | undefined =>
    cells
      .filter((cell) => cell.workload === workload && cell.transport === transport)
      .find(({ subject }) => subject.startsWith(`Nereid, ${count} reactor`))
  const rows = [...rowsAfter('relative to one').entries()]
  expect(rows).toHaveLength(4)
  for (const [name, values] of rows) {
    const workload = name.startsWith('`simple`') ? 'simple' : 'millisecond'
    const transport = name.includes('HTTP') ? 'HTTP' : 'gRPC'
    const one = of(workload, transport, 1)
    const ratios = [2, 4, 8].map((count) =>
      median((of(workload, transport, count)?.runs ?? []).map(({ rate }, i) => rate / (one?.runs[i]?.rate ?? NaN))),
    )
    expect(values, name).toEqual(ratios.map((ratio) => ratio.toFixed(1)))
    const rate = Number(/\(([\d,]+)\/s/.exec(name)?.[1]?.replaceAll(',', ''))
    expect(Math.abs(rate / (one?.rate.median ?? NaN) - 1), name).toBeLessThan(0.01)
  }
  for (const [transport, first, last] of [
    ['HTTP', 11.5, 20],
    ['gRPC', 12.9, 17],
  ] as const) {
    expect(PAGE).toContain(`from ${first} to ${last} `)
    expect(of('simple', transport, 1)?.cpuUs.median).toBeCloseTo(first, 1)
    expect(of('simple', transport, 8)?.cpuUs.median).toBeCloseTo(last, 0)
  }
})

test('what is calculated follows from the other figures', () => {
  const [, few = '', more = ''] = /has (\d+) series.* and (\d+) more for each/.exec(PAGE) ?? []
  const million = (1000 * (Number(few) + 92 * Number(more))) / 1e6
  expect(PAGE).toContain(`have ${million.toFixed(1)} million series`)
  // A million requests: µs of the table are seconds.
  const seconds = [...rowsAfter('Server CPU for a request').values()].map(([, overGrpc]) => Number(overGrpc))
  const [, ...told] = /take ([\d.]+) CPU seconds with Nereid, and ([\d.]+) or ([\d.]+) with/.exec(PAGE) ?? []
  expect(told.map(Number)).toEqual(seconds)
  const [, ...prices] = /that is ([\d.]+) \*p\*, and ([\d.]+) \*p\* or ([\d.]+) \*p\*/.exec(PAGE) ?? []
  expect(prices).toEqual(seconds.map((value, i) => (value / 3600).toFixed((prices[i]?.length ?? 0) - 2)))
  const [, interval = '', aSecond, aDay] =
    /default of (\d+) s and a thousand objects are (\d+) requests a second, ([\d.]+) million a day/.exec(PAGE) ?? []
  const listings = 1000 / Number(interval)
  expect([aSecond, aDay]).toEqual([listings.toFixed(0), ((listings * 86_400) / 1e6).toFixed(1)])
  const [, mebibytes, gigabits, requests] =
    /tensors of (\d+) MiB, (\d+) Gbit\/s allows (\d+) requests a second/.exec(PAGE) ?? []
  expect(Number(requests)).toBe(Math.round((Number(gigabits) * 1e9) / 8 / (Number(mebibytes) * 2 ** 20)))
})

test('a server has as many series as the page says', async () => {
  const [, few = '', ofNode = '', more = ''] =
    /has (\d+) series \(.*, (\d+) of them of Node 20 itself\), and (\d+) more for each/.exec(PAGE) ?? []
  const models = mkdtempSync(join(tmpdir(), 'nereid-series-'))
  onTestFinished(() => rmSync(models, { recursive: true, force: true }))
  cpSync(join(ROOT, 'examples/models'), models, { recursive: true, dereference: true })
  const seriesOf = async (): Promise<string[]> => {
    const server = await TestServer.start(models)
    const page = await (await fetch(`http://127.0.0.1:${server.metricsPort}/metrics`)).text()
    await server.stop()
    return page.split('\n').filter((line) => line !== '' && !line.startsWith('#'))
  }
  // Other versions of Node have other series of their own.
  const own = (lines: string[]): number => lines.filter((line) => !line.startsWith('nereid_nodejs_')).length
  const before = own(await seriesOf())
  expect(before).toBe(Number(few) - Number(ofNode))
  for (const name of ['one', 'two']) cpSync(join(models, 'simple_auto'), join(models, name), { recursive: true })
  expect(own(await seriesOf())).toBe(before + 2 * Number(more))
})
