/** Records on their way from the core to an exporter. */
import { expect, test } from 'vitest'
import type { TraceRecord } from '../../src/native/contract.js'
import type { TraceExporter } from '../../src/trace/exporter.js'
import { TraceDrain } from '../../src/trace/index.js'

const record = (id: number): TraceRecord => ({
  mode: 'triton',
  setting: 1,
  id,
  context: null,
  traceId: '',
  activities: [],
  calls: [],
})

test('O-43 an exporter that throws loses that trace, logged once and counted', async () => {
  const [taken, ended, problems]: [number[], number[], string[]] = [[], [], []]
  const exporter: TraceExporter = {
    lost: new Map([['ENOSPC', 3]]),
    settingBegan: () => {},
    take({ id }) {
      if (id % 2 === 0) throw new Error('even')
      taken.push(id)
    },
    settingEnded: (setting) => void ended.push(setting),
    close: async () => {},
  }
  const batches = [
    [1, 2, 3],
    [4, 5],
  ]
  const core = {
    closeTraces: () => {},
    takeTraces() {
      const records = (batches.shift() ?? []).map(record)
      const isAll = batches.length === 0
      return { records, ended: isAll ? [1] : [], isAll }
    },
  }
  const drain = new TraceDrain(core, exporter, (_, message) => problems.push(message))
  expect([...drain.lost]).toEqual([['ENOSPC', 3]])
  drain.wake()
  await expect.poll(() => ended).toEqual([1])
  expect(taken).toEqual([1, 3, 5])
  expect([...drain.lost]).toEqual([
    ['ENOSPC', 3],
    ['defect', 2],
  ])
  expect(problems).toHaveLength(1)
  expect(problems[0]).toContain('Error: even')
})
