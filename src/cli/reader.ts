/**
 * Output of a start on a terminal: tables and lines that fit its width, colours, and a summary with a request to try.
 * Pipes and files get the plain form. Pure, except for the clock and the environment.
 */

import { isUnix, unixPath } from '../api/address.js'
import { SERVER_VERSION } from '../api/identity.js'
import type { Ports } from '../api/ports.js'
import { shellWord } from '../config/shell_word.js'
import { cleanCell, fittingEnd, formatTable, textWidth } from '../log/index.js'
import { ownVersion } from '../native/locate.js'
import type { Resolved } from './settings.js'

export type Rows = readonly (readonly string[])[]

/** Outcome of a start. */
export interface StartReport {
  models: number
  /** Models with a ready version. */
  ready: string[]
  /** A line for each failed model, with its reason; the last line says how to serve the others. */
  failures: string[]
}

/** Narrower terminals break lines themselves. */
const COLUMNS_MIN = 40
/** Narrowest column of a table. */
const CELL_MIN = 8

/**
 * A table that is at most as wide as the terminal: longer cells continue on the next line. A word that is longer than
 * its column, such as a path, stays whole and moves the end of its line.
 */
export function fitTable(rows: Rows, columns: number): string {
  const count = Math.max(0, ...rows.map((row) => row.length))
  const widths = Array.from({ length: count }, (_, i) =>
    Math.max(0, ...rows.flatMap((row) => (row[i] ?? '').split('\n').map((part) => textWidth(cleanCell(part))))),
  )
  // A bar and two blanks for each column, and a last bar.
  let over = widths.reduce((sum, width) => sum + width + 3, 1) - Math.max(COLUMNS_MIN, columns)
  while (over > 0) {
    const widest = widths.indexOf(Math.max(...widths))
    const width = widths[widest] ?? 0
    if (width <= CELL_MIN) break
    const next = Math.max(
      CELL_MIN,
      width - over,
      ...widths.filter((_, i) => i !== widest).map((other) => Math.min(other, width - 1)),
    )
    over -= width - next
    widths[widest] = next
  }
  return formatTable(
    rows.map((row) =>
      row.map((cell, i) =>
        cell
          .split('\n')
          .flatMap((part) => fold(part, widths[i] ?? CELL_MIN))
          .join('\n'),
      ),
    ),
    widths,
  )
}

/** Log lines, broken at blanks to fit the terminal; lines of tables stay as they are. */
export function foldLines(text: string, columns: number): string {
  if (columns < COLUMNS_MIN) return text
  const lines = text
    .split('\n')
    .map((line) =>
      textWidth(line) <= columns || line.startsWith('| ')
        ? line
        : fold(line, columns - INDENT.length).join(`\n${INDENT}`),
    )
  return lines.join('\n')
}

const INDENT = '    '

/** Parts of at most `width` columns, broken at blanks. Longer words stay whole, so that a path can be copied. */
function fold(text: string, width: number): string[] {
  const parts: string[] = []
  let rest = text
  for (;;) {
    const end = fittingEnd(rest, width)
    if (end >= rest.length) break
    const blank = rest.lastIndexOf(' ', end)
    const at = blank > 0 ? blank : rest.indexOf(' ', end)
    if (at <= 0) break
    parts.push(rest.slice(0, at))
    rest = rest.slice(at + 1)
  }
  return [...parts, rest]
}

/**
 * Colours READY green and UNAVAILABLE red in the last column, unless the environment disables colours (no-color.org).
 */
export function colourStates(table: string, environment: NodeJS.ProcessEnv = process.env): string {
  if ((environment['NO_COLOR'] ?? '') !== '') return table
  const coloured =
    (colour: number) =>
    (_: string, before: string, state: string): string =>
      `${before}\u001B[${colour}m${state}\u001B[0m`
  return table
    .replace(/^(.*\| )(READY)(?= *\|$)/gm, coloured(32))
    .replace(/^(.*\| )(UNAVAILABLE|Not loaded)(?=[:\s][^|]*\|$)/gm, coloured(31))
}

/** The last lines of a start, which began at `beganMs` on the clock of the process. */
export async function summary(
  resolved: Resolved,
  ports: Ports,
  { models, ready }: StartReport,
  beganMs: number,
): Promise<string> {
  const { http, grpc, metrics } = resolved.settings
  const seconds = ((performance.now() - beganMs) / 1000).toFixed(1)
  const loaded = models === 0 ? 'no models' : `${ready.length} of ${models} models ready`
  const lines = [
    `Nereid ${ownVersion()} (Triton ${SERVER_VERSION.replace(/\.\d+$/, '')} API): ${loaded} in ${seconds} s`,
  ]
  if (http !== null)
    lines.push(`  http     ${isUnix(http.address) ? http.address : `${scheme(http)}://${place(http, ports.http)}`}`)
  if (grpc !== null) lines.push(`  grpc     ${isUnix(grpc.address) ? grpc.address : place(grpc, ports.grpc)}`)
  if (metrics !== null) lines.push(`  metrics  http://${place(metrics, ports.metrics)}/metrics`)
  const command = request(resolved, ports, ready)
  if (command !== null) lines.push(`  ${command}`)
  return `${lines.join('\n')}\n`
}

const scheme = ({ tls }: { tls: object | null }): string => (tls === null ? 'http' : 'https')

/** The address of a service as a client on this machine uses it. */
function place({ address }: { address: string }, port: number): string {
  const host = ['0.0.0.0', '::'].includes(address) ? 'localhost' : address
  return `${host.includes(':') ? `[${host}]` : host}:${port}`
}

/** A request that succeeds with any models and without a key; null if there is none. */
function request(
  { settings: { http, metrics, keys } }: Resolved,
  ports: Ports,
  ready: readonly string[],
): string | null {
  const isOpen = (api: string): boolean => http?.restrictions.every(({ apis }) => !apis.includes(api)) === true
  const path =
    keys === null && isOpen('metadata')
      ? `/v2${ready[0] === undefined ? '' : `/models/${encodeURIComponent(ready[0])}`}`
      : isOpen('health')
        ? '/v2/health/ready'
        : null
  // Mutual TLS would require a certificate of the client.
  if (http !== null && path !== null && http.tls?.mutual !== true) {
    const shown = path.includes('health') ? ' -i' : ''
    if (isUnix(http.address))
      return `curl${shown} --unix-socket ${shellWord(unixPath(http.address))} http://localhost${path}`
    return http.tls === null
      ? `curl${shown} ${shellWord(`${place(http, ports.http)}${path}`)}`
      : `curl${shown} --insecure ${shellWord(`https://${place(http, ports.http)}${path}`)}`
  }
  return metrics === null ? null : `curl ${place(metrics, ports.metrics)}/metrics`
}
