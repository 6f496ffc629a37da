/** The record of one request as text: what happened, where the time went, what it waited for. Pure. */

import { counted, membersOf } from '../../internal.js'
import { PHASES, causeOf } from './words.js'

const BAR_COLUMNS = 20
/** A request that took less needs no advice: the first ones of a connection are as slow. */
const FAST_US = 1000

export const wordOf = (value: unknown): string =>
  typeof value === 'string' ? value : typeof value === 'number' ? String(value) : ''
export const numberOf = (value: unknown): number => (typeof value === 'number' && Number.isFinite(value) ? value : 0)

/** `1,234 us`, `12.3 ms`, `1.2 s`. */
export function timeOf(us: unknown): string {
  const value = numberOf(us)
  if (value >= 1e6) return `${(value / 1e6).toFixed(2)} s`
  return value >= 10_000 ? `${(value / 1000).toFixed(1)} ms` : `${value.toFixed(value < 10 ? 1 : 0)} us`
}

export const percentOf = (share: number): string => `${(share * 100).toFixed(share > 0 && share < 0.01 ? 1 : 0)} %`

/** Rows of a timeline: phase, time, share, bar, meaning. */
export function timeline(phases: Readonly<Record<string, unknown>>, total: number): string[] {
  const rows = Object.keys(PHASES).filter((name) => phases[name] !== undefined)
  return rows.map((name) => {
    const us = numberOf(phases[name])
    const share = total > 0 ? Math.min(1, us / total) : 0
    const bar = '#'.repeat(Math.round(share * BAR_COLUMNS)).padEnd(BAR_COLUMNS)
    return `  ${name.padEnd(7)}${timeOf(us).padStart(9)} ${percentOf(share).padStart(6)}  ${bar}  ${PHASES[name]?.[0]}`
  })
}

/** `simple version 1`. */
export const nameOf = (model: unknown, version: unknown): string =>
  wordOf(version) === '' ? wordOf(model) : `${wordOf(model)} version ${wordOf(version)}`

/** Name and time of the longest phase; '' without phases. */
export function longest(phases: unknown): readonly [name: string, us: number] {
  const all = Object.entries(membersOf(phases)).map(([name, us]) => [name, numberOf(us)] as const)
  return all.toSorted((a, b) => b[1] - a[1])[0] ?? ['', 0]
}

export function recordText(value: unknown): string[] {
  const record = membersOf(value)
  const { model, version, id, error, batch, cause } = record
  const total = numberOf(record['total_us'])
  const status = record['status'] === undefined ? `gRPC ${wordOf(record['grpc_status'])}` : wordOf(record['status'])
  const code = wordOf(record['code'])
  const names = [nameOf(model, version) || wordOf(record['verb']), wordOf(id) === '' ? '' : `request '${wordOf(id)}'`]
  const result = code === '' ? `answered with ${status}` : `failed with ${code} (${status})`
  const lines = [`${names.filter((name) => name !== '').join(', ')}: ${result} after ${timeOf(total)}`]
  const from = [record['time'], record['protocol'], record['verb']].map(wordOf).filter((word) => word !== '')
  const sizes = `${numberOf(record['bytes_in'])} bytes in, ${numberOf(record['bytes_out'])} bytes out`
  lines.push(`  ${[...from, sizes, ...copies(record['copied'])].join(', ')}`)
  if (wordOf(error) !== '') {
    const retry = record['retry'] === true ? '; a repeat can help' : ''
    lines.push(`  ${wordOf(error)}`, `  fault of the ${wordOf(record['fault']) || 'server'}${retry}`)
  }
  if (wordOf(record['trace']) !== '') lines.push(`  trace ${wordOf(record['trace'])}`)

  lines.push('', 'Where the time went:', ...timeline(membersOf(record['phases_us']), total))
  const responses = numberOf(record['responses'])
  if (responses > 0) lines.push(`  ${responses} responses, the first after ${timeOf(record['first_response_us'])}`)

  const reasons = [...behind(record['behind'])]
  if (numberOf(batch) > 0 || wordOf(cause) !== '')
    reasons.push(
      `  Its batch of ${counted(numberOf(batch) || 1, 'row')} began because ${causeOf(wordOf(cause)) || 'it was due'}.`,
    )
  if (reasons.length > 0) lines.push('', 'Why it ran when it did:', ...reasons)
  const [phase, us] = longest(record['phases_us'])
  lines.push('', 'What to change:', `  ${changeOf(phase, us / Math.max(1, total), record)}`)
  return lines
}

function copies(copied: unknown): string[] {
  if (copied === undefined) return []
  const { in: inwards, out } = membersOf(copied)
  return [`${numberOf(inwards)} and ${numberOf(out)} of them copied`]
}

function behind(value: unknown): string[] {
  if (value === undefined) return []
  const { model, version, priority, rows } = membersOf(value)
  const before = numberOf(rows) > 0 ? `, with ${counted(numberOf(rows), 'row')} before it in the queue` : ''
  const level = numberOf(priority) > 0 ? `, the highest at priority ${numberOf(priority)}` : ''
  const had = membersOf(value)['for'] === 'resources' ? 'resources of the rate limiter that it needed' : 'all instances'
  return [`  ${nameOf(model, version)} had ${had}${before}${level}.`]
}

/** Advice from one request. The server's sums know more, so it leads there. */
function changeOf(phase: string, share: number, record: Readonly<Record<string, unknown>>): string {
  const more = `nereid why ${wordOf(record['model']) || 'MODEL'}`
  if (wordOf(record['code']) !== '')
    return record['fault'] === 'client'
      ? 'The request: its error describes the mistake.'
      : `The cause that the error names. Advice for the model: ${more}`
  if (numberOf(record['total_us']) < FAST_US) return 'Nothing: the request took less than a millisecond.'
  if (phase === '') return `Unknown: the record has no phases. Advice for the model: ${more}`
  if (share < 0.3) return `No phase dominates. Advice for the model: ${more}`
  if (phase !== 'queue')
    return `${PHASES[phase]?.[1] ?? `The phase ${phase} took longest.`} Advice for the model: ${more}`
  if (record['cause'] === 'delay_elapsed') return `A shorter max_queue_delay_microseconds; to see its effect: ${more}`
  return `More instances, larger batches or other priorities; to see which one would help: ${more}`
}
