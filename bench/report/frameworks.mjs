/** Targets and tables of the suite `frameworks`. */
import { pairedDifference, spread } from '../lib/stats.mjs'
import {
  ALONE, BATCHED, BATCH_CONCURRENCY, BUILT_IN, DEEP, DEEP_CONCURRENCY, FAMILIES, LOOP, PASSED, SERVED, TREES, TREE_ROWS,
} from '../suites/frameworks.mjs'
import { cellWith, short, withRange } from './format.mjs'
import { ADDED_US } from './python.mjs'

export const FRAMEWORKS_TEXT =
  'One thread on each side. A loop calls its framework from Python, and nothing is between: no copy, no request.'
export const TREES_TEXT =
  '500 trees of depth 8, one thread on each side: a call of XGBoost (`inplace_predict`) and of treelite ' +
  '(`gtil.predict`) from Python, what the server needs to evaluate the same rows (`compute_infer` of its ' +
  'statistics), and its answer over loopback.'
export const TREES_HEAD = [
  'rows', 'XGBoost, µs', 'treelite, µs', 'evaluation in the server, µs', 'p50 over HTTP, µs', 'p50 over gRPC, µs'
]

/** The fastest run of a network that is judged, in ms: what a request costs must be little beside it. */
export const DEEP_MS_MIN = 5

const inferUs = (cell) => spread((cell?.runs ?? []).map((r) => r.inferUs))

function finder(cells) {
  return (subject, workload, transport, c = 1) =>
    cellWith(cells, { suite: 'frameworks', subject, workload, transport, c })
}

/** @param row, ratio as in `judge` */
export function frameworkRows(result, { row, ratio }) {
  const of = finder(result.cells)
  for (const family of FAMILIES) {
    const { name, title } = family
    const reason = result.frameworks?.absent.find((a) => a.name === name)?.reason
    const missing = reason === undefined ? {} : { missing: reason }
    const served = SERVED(title)
    if (name === 'trees') {
      for (const transport of ['HTTP', 'gRPC']) {
        const [ours, ...theirs] = [
          of(served, TREES(1), transport),
          ...['treelite', 'XGBoost'].map((library) => of(LOOP(library), TREES(1), 'in process'))
        ]
        row(
          `trees, 1 row over ${transport}: a call of treelite from Python ÷ the evaluation in the server`, 3, 'least',
          ratio(theirs[0], ours, 'inferUs'),
          {
          ...missing,
            note: ours
              ? `${withRange(inferUs(ours))} µs; treelite ${withRange(inferUs(theirs[0]))}, XGBoost ` +
                `${withRange(inferUs(theirs[1]))}`
              : '',
        })
      }
      continue
    }
    const bare = of(LOOP(title), DEEP, 'in process')
    const ms = bare?.rate ? 1000 / bare.rate.median : null
    const tooFast =
      ms !== null && ms < DEEP_MS_MIN
        ? { missing: `a run takes ${short(ms)} ms on this machine, and the target is for ${DEEP_MS_MIN} ms and more` }
        : null
    for (const c of DEEP_CONCURRENCY) {
      const ours = of(served, DEEP, 'gRPC', c)
      const cpu = ratio(ours, bare, 'cpuUs')
      const note = [
        ms !== null && `a run of the loop: ${short(ms)} ms`,
        cpu && Number.isFinite(cpu.median) && `CPU of all processes ÷ the loop's: ${withRange(cpu)}`
      ]
        .filter(Boolean)
        .join('; ')
      row(
        `${title}, a network of ${DEEP_MS_MIN} ms and more, c=${c}: rate ÷ a bare loop`, 0.95, 'least',
        tooFast ? null : ratio(ours, bare, 'rate'), { ...missing, ...tooFast, note },
      )
    }
    const small = [BATCHED, ALONE].map((workload) => of(served, workload, 'gRPC', BATCH_CONCURRENCY))
    row(
      `${title}, a small network, c=${BATCH_CONCURRENCY}: rate with dynamic batching ÷ without`, 2, 'least',
      ratio(...small, 'rate'), missing,
    )
    for (const transport of ['HTTP', 'gRPC']) {
      const passed = of(served, PASSED, transport)
      row(
        `${transport}, c=1, 4 KiB: p50 of an identity of ${title} minus the identity that is built in`,
        ADDED_US['4 KiB'], 'most', pairedDifference(passed, of(served, BUILT_IN, transport), 'p50'),
        { ...missing, unit: 'µs', note: passed?.p50 ? `${withRange(passed.p50)} µs` : '' },
      )
    }
  }
}

/** Trees by the number of rows. */
export function treeRows(cells) {
  const of = finder(cells)
  const served = SERVED('Trees')
  const p50 = (rows, transport) => withRange(of(served, TREES(rows), transport)?.p50)
  return TREE_ROWS.filter((rows) => cells.some((c) => c.suite === 'frameworks' && c.workload === TREES(rows))).map(
    (rows) => [
    `${rows}`,
    ...['XGBoost', 'treelite'].map((library) => withRange(inferUs(of(LOOP(library), TREES(rows), 'in process')))),
    withRange(inferUs(of(served, TREES(rows), 'gRPC') ?? of(served, TREES(rows), 'HTTP'))),
    ...['HTTP', 'gRPC'].map((transport) => p50(rows, transport)),
  ])
}

/** Which builds were measured. */
export const frameworkNotes = (frameworks) =>
  frameworks.found.map(({ versions }) => Object.entries(versions)
      .map(([name, version]) => `${name} ${version}`)
      .join(', '))
