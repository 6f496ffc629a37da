/** Targets of the suite `text`. */
import { spread } from '../lib/stats.mjs'
import {
  CONCURRENCY, ENCODE, MANY, ONE_BY_ONE, SENTENCES, SERVED, SORTED, STUB, STUB_LOOP, UNBATCHED, VLLM, texts,
} from '../suites/text.mjs'
import { LENGTHS } from '../workloads.mjs'
import { cellWith, withRange } from './format.mjs'

/** CPU of an endpoint beside the tokenizer, the network and the loop that calls it, for each text. */
export const ADDED_US = 25

/** @param row, ratio as in `judge` */
export function textRows(result, { row, ratio }) {
  const of = (subject, workload, c = 1) =>
    cellWith(result.cells, { suite: 'text', subject, workload, c })
  const threads = (loop) => (loop ? `loop: ${loop.connections} × ${loop.streams} threads` : '')
  const isLeftOut = (most) => (result.quick && most !== '128' ? { missing: 'only in full runs' } : {})
  for (const most of Object.keys(LENGTHS)) {
    for (const [c, many] of [...CONCURRENCY.map((n) => [n, 1]), [1, MANY]]) {
      const what = `${texts(most, many)}${many === 1 ? `, c=${c}` : ''}`
      const at = (subject) => of(subject, texts(most, many), c)
      const [ours, single, sorted] = [SERVED, ONE_BY_ONE, SORTED].map(at)
      const rate = (other, name, limit, note = '') =>
        row(`${what}: rate ÷ ${name}`, limit, 'least', ratio(ours, other, 'rate'), { note, ...isLeftOut(most) })
      if (many === 1 && c === 1) rate(single, 'a bare loop, one by one', 0.97, threads(single))
      if (many === 1 && c === 32) rate(single, 'a bare loop, one by one', 1.3, threads(single))
      if (c > 1 || many > 1) rate(sorted, 'a bare loop that sorts what it knows', 0.95, threads(sorted))
      if (many > 1) rate(single, 'a bare loop, one by one', 1.5, threads(single))
      if (c === 32) {
        const alone = at(UNBATCHED)
        rate(alone, "the same server's without batches", 1.3)
        row(`${what}: p99 ÷ without batches`, 1.1, 'most', ratio(ours, alone, 'p99'), isLeftOut(most))
      }
      for (const [other, limit] of [[SENTENCES, 1], [VLLM, 1]])
        row(`${what}: rate ÷ ${other}`, limit, 'least', ratio(ours, at(other), 'rate'), {
          missing: 'no interpreter has it, or the weights are noise',
        })
    }
  }
  const [ours, encode, loop] = [SERVED, ENCODE, STUB_LOOP].map((subject) => of(subject, STUB))
  const perText = (cell) => spread((cell?.runs ?? []).map(({ cpuUs }) => cpuUs / MANY))
  // The stub's loop tokenises, too: what is left is the endpoint and the calls of the engine.
  const added = spread((ours?.runs ?? []).map(({ cpuUs }, i) => (cpuUs - (loop?.runs[i]?.cpuUs ?? Number.NaN)) / MANY))
  row(`${STUB}: CPU of a text beside a loop that tokenises and runs the stub`, ADDED_US, 'most', added, {
    unit: 'µs',
    note: ours
      ? `${withRange(perText(ours))} µs; the loop ${withRange(perText(loop))}, of which encode_fast ` +
        `${withRange(perText(encode))}`
      : '',
  })
}
