/** Texts that `nereid optimize` prints, and writes into the configuration. Pure. */

import { printable } from '../../internal.js'
import type { Changes, Similarity } from './compare.js'
import type { Int8 } from './int8.js'
import type { Rate } from './measure.js'

const NAME_WIDTH = 24
const CELL_WIDTH = 14

/** How the graph was made: `int8, dynamic: 36 MatMul, 4 Gather; 2 nodes excluded`. */
function madeText({ method, operators, excluded, isReduced }: Int8): string {
  const nodes = Object.entries(operators).map(([operator, count]) => `${count} ${printable(operator)}`)
  return (
    `int8, ${method}: ${nodes.join(', ')}${excluded > 0 ? `; ${excluded} excluded` : ''}` +
    (isReduced ? '; weights of 7 bits, since this processor has no dot products of int8' : '')
  )
}

const cosineText = ({ minimum, mean }: Similarity): string => `minimum ${minimum.toFixed(4)}, mean ${mean.toFixed(4)}`

/** Comments for the configuration. */
export function summary(made: Int8, similarity: Similarity, requests: string): string {
  const lines = [
    `Written by \`nereid optimize\`: ${madeText(made)}.`,
    `Cosine to the original: ${cosineText(similarity)}, over ${requests}.`,
  ]
  return lines.map((line) => `# ${printable(line)}\n`).join('')
}

const megabytes = (bytes: number): string => `${(bytes / 1e6).toFixed(1)} MB`

const rounded = (value: number): string => (value < 100 ? value.toPrecision(3) : String(Math.round(value)))

const changesText = ({ changed, of }: Changes, what: string): string =>
  `${changed} of ${of} ${what} (${((100 * changed) / of).toFixed(1)} %)`

/** The table: original and optimised side by side, then how they differ. */
export function tableText(
  given: string,
  made: Int8,
  requests: string,
  bytes: [number, number],
  memory: [number, number],
  rates: readonly Rate[],
  similarity: Similarity,
  role: string | null,
): string {
  const row = (name: string, cells: readonly string[], last = ''): string =>
    [name.padEnd(NAME_WIDTH), ...cells.map((cell) => cell.padStart(CELL_WIDTH)), last].join('')
  const times = ([one, other]: readonly [number, number]): string => `   × ${(other / one).toFixed(2)}`
  const { top1, order, nearest } = similarity
  const lines = [
    `${given}: ${madeText(made)}`,
    `compared with ${requests}`,
    '',
    row('', ['original', 'int8']),
    row('graph', bytes.map(megabytes), times(bytes)),
    row('memory', memory.map(megabytes), times(memory)),
    ...rates.flatMap(({ concurrency, rates: of, cpuMs }) => [
      row(`requests/s, ${concurrency} at once`, of.map(rounded), times(of)),
      row(`CPU ms, ${concurrency} at once`, cpuMs.map(rounded), times(cpuMs)),
    ]),
    '',
    `cosine                  ${cosineText(similarity)}`,
    // The greatest value of an embedding, and the neighbours of classes, say nothing.
    ...(top1.of > 0 && role !== 'embed' ? [`top 1 changed           ${changesText(top1, 'rows')}`] : []),
    ...(nearest.of > 0 && role !== 'classify' ? [`nearest changed         ${changesText(nearest, 'vectors')}`] : []),
    ...(order.of > 0 ? [`order changed           ${changesText(order, 'pairs of requests')}`] : []),
  ]
  return `${lines.map((line) => printable(line).trimEnd()).join('\n')}\n`
}
