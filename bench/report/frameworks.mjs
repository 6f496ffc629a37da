/** Tables of the suite `frameworks`. */
import { spread } from '../lib/stats.mjs'
import { LOOP, SERVED, TREES, TREE_ROWS } from '../suites/frameworks.mjs'
import { cellWith, withRange } from './format.mjs'

export const FRAMEWORKS_TEXT =
  'One thread on each side. A loop calls its framework from Python, and nothing is between: no copy, no request.'
export const TREES_TEXT =
  '500 trees of depth 8, one thread on each side: a call of XGBoost (`inplace_predict`) and of treelite ' +
  '(`gtil.predict`) from Python, what the server needs to evaluate the same rows (`compute_infer` of its ' +
  'statistics), and its answer over loopback.'
export const TREES_HEAD = [
  'rows',
  'XGBoost, µs',
  'treelite, µs',
  'evaluation in the server, µs',
  'p50 over HTTP, µs',
  'p50 over gRPC, µs',
]

const inferUs = (cell) => spread((cell?.runs ?? []).map((r) => r.inferUs))

function finder(cells) {
  return (subject, workload, transport, c = 1) =>
    cellWith(cells, { suite: 'frameworks', subject, workload, transport, c })
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
    ],
  )
}

/** Which builds were measured. */
export const frameworkNotes = (frameworks) =>
  frameworks.found.map(({ versions }) =>
    Object.entries(versions)
      .map(([name, version]) => `${name} ${version}`)
      .join(', '),
  )
