/** Target of the suite `text`. */
import { SERVED, UNBATCHED, texts } from '../suites/text.mjs'
import { cellWith } from './format.mjs'

/** @param row, ratio as in `judge` */
export function textRows(result, { row, ratio }) {
  const workload = texts('512', 1)
  const [ours, alone] = [SERVED, UNBATCHED].map((subject) =>
    cellWith(result.cells, { suite: 'text', subject, workload, c: 32 }),
  )
  row(`${workload}, c=32: rate ÷ the same server's without batches`, 1.3, 'least', ratio(ours, alone, 'rate'), {
    ...(result.quick && { missing: 'only in full runs' }),
  })
}
