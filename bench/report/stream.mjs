/** Results of the suite `stream` beside its cells, as text of both reports. */
import { whole, withRange } from './format.mjs'

export const STREAM_TEXT =
  'A request of a decoupled model is answered many times: 64 streams with a response every 5 ms each, and ' +
  'bursts without a pause. The model sends two numbers, so nearly all of the cost is the way to the client.'

export function STREAM_NOTES({ counted, slow }) {
  const lines = counted.map(({ transport, asked, wrong, firstError }) => {
    const what = `${asked.toLocaleString('en')} responses over ${transport}, each compared with the one that is due`
    const found = wrong === 0 ? 'none lost, doubled or swapped' : `${wrong} not as they must be, first: ${firstError}`
    return `${what}: ${found}`
  })
  if (slow) {
    lines.push(
      `p99 of another client of the same instance: ${withRange(slow.p99Quiet)} µs alone, ` +
        `${withRange(slow.p99Read)} µs beside readers of 16 streams with a response every ms, ` +
        `${withRange(slow.p99Slow)} µs beside readers of the same that do not read; ${whole(slow.errors)} errors`,
    )
  }
  return lines
}
