/** Decides what a person on call must look at first, worst first, with the reason in words. Pure. */

import { ageText, bytesText, counted, numberText, percentText, timeText } from '../format.js'
import { POINTS } from './history.js'
import { figuresOf, keyOf, type Figures, type Picture, type Version } from './picture.js'

export interface Finding {
  /** Stays the same while only numbers change. */
  key: string
  level: 'bad' | 'warn'
  /** The version that it is about; null for the server. */
  version: Version | null
  text: string
}

/** Findings that are shown; the table of models has all. */
export const FINDINGS_MAX = 6
/** A version has no response for so long, and for this many of its usual times. */
const STUCK_MS_MIN = 2000
const STUCK_TIMES_MIN = 10
/** Requests wait this part of their time, and this long. */
const WAIT_SHARE_MIN = 0.5
const WAIT_US_MIN = 1000
/** Part of the requests that fail. */
const FAILED_SHARE_MIN = 0.01
/** Requests per second that are rejected. */
const REJECTED_MIN = 0.2
/** Times as long as in the minutes before, with so many requests in both. */
const SLOWER_TIMES_MIN = 3
const SLOWER_US_MIN = 5000
const SLOWER_REQUESTS_MIN = 10
const LATELY = 15
/** A limit is near. */
const FULL_SHARE_MIN = 0.9

type Weighed = Finding & { weight: number }

/** Unloaded on purpose: the reason that a repository gives then. */
export const isUnloaded = ({ state, reason }: Version): boolean =>
  state === '' || (state === 'UNAVAILABLE' && reason === 'unloaded')

export const isFailed = (version: Version): boolean => version.state === 'UNAVAILABLE' && !isUnloaded(version)

function ofServer(picture: Picture): Weighed[] {
  const { now, server } = picture
  if (now === null) return []
  const found: Weighed[] = []
  const add = (key: string, level: Finding['level'], weight: number, text: string) =>
    found.push({ key, level, weight, version: null, text })
  if (picture.error !== '') add('numbers', 'bad', 9e6, `The server could not make its numbers: ${picture.error}`)
  const { memory } = now
  if (memory.waiting > 0)
    add('memory waits', 'bad', 5e6, `${counted(memory.waiting, 'request')} wait for memory: requests hold ` +
      `${bytesText(memory.used)} of ${bytesText(memory.limit)} (--memory-limit).`)
  else if (memory.limit > 0 && memory.used > memory.limit * FULL_SHARE_MIN)
    add('memory', 'warn', 5e5, `Requests hold ${bytesText(memory.used)} of ${bytesText(memory.limit)} ` +
      '(--memory-limit).')
  if (now.connections_max > 0 && now.connections > now.connections_max * FULL_SHARE_MIN)
    add('connections', 'warn', 5e5, `${numberText(now.connections)} of ${numberText(now.connections_max)} ` +
      'connections are open; further ones are rejected.')
  const cpu = server.rate('cpu')
  if (now.cores > 0 && cpu > now.cores * 0.95)
    add('cpu', 'warn', 4e5, `The server uses ${cpu.toFixed(1)} of ${counted(now.cores, 'core')}: ` +
      'everything waits for CPU.')
  const ofModels = [...picture.versions.values()].reduce((sum, { rings }) => sum + (rings?.rate('failed') ?? 0), 0)
  const rejected = server.rate('failed') - ofModels
  const share = rejected / Math.max(rejected + server.rate('accepted'), 1e-9)
  if (rejected >= REJECTED_MIN && share >= FAILED_SHARE_MIN)
    add('rejected', 'warn', 6e5 * share, `${numberText(rejected)} requests per second are rejected before a model ` +
      `takes them.${lastFailure(picture)}`)
  return found
}

function lastFailure({ slowest }: Picture, name: string | null = null): string {
  const records = slowest?.failed.flatMap(({ requests }) => requests)
    .filter(({ model }) => name === null || model === name) ?? []
  const last = records.toSorted((a, b) => (b.time ?? '').localeCompare(a.time ?? ''))[0]
  return last?.error === undefined ? '' : ` The last: ${last.error}`
}

/** Times as long as in the minutes before; 0 if that is not known. */
function slower({ rings }: Version): number {
  if (rings === null) return 0
  const [lately, ms] = [rings.sum('answered', LATELY), rings.sum('ms', LATELY)]
  const now = ms / lately
  if (lately < SLOWER_REQUESTS_MIN || now * 1000 < SLOWER_US_MIN) return 0
  const before = rings.sum('answered', POINTS) - lately
  const usual = (rings.sum('ms', POINTS) - ms) / before
  return before >= SLOWER_REQUESTS_MIN && usual > 0 ? now / usual : 0
}

function ofVersion(picture: Picture, version: Version, figures: Figures): Weighed[] {
  const key = keyOf(version.name, version.version)
  const one = (what: string, level: Finding['level'], weight: number, text: string): Weighed[] =>
    [{ key: `${key} ${what}`, level, weight, version, text }]
  if (isFailed(version))
    return one('fails', 'bad', 1e7, `does not serve: ${version.reason || 'no reason is known'}`)
  const { row } = version
  if (row === null) return []
  const { mean_us, waited_us, waiting, rate, failed } = figures
  const busy = row.running >= row.instances ? `all ${counted(row.instances, 'instance')}`.replace('all 1 ', 'its only ')
    : `${row.running} of ${counted(row.instances, 'instance')}`
  const are = row.running >= row.instances && row.instances === 1 ? 'is' : 'are'
  if (row.oldest_ms >= Math.max(STUCK_MS_MIN, (mean_us / 1000) * STUCK_TIMES_MIN))
    return one('stuck', 'bad', 2e6 + waiting, `has not answered for ${ageText(row.oldest_ms / 1000)}: ` +
      `${busy} ${are} busy${waiting > 0 ? `, ${counted(waiting, 'request')} wait` : ''}.`)
  const share = failed / Math.max(failed + rate, 1e-9)
  if (share >= FAILED_SHARE_MIN)
    return one('errors', 'bad', 1e6 * share, `${percentText(share)} of its requests fail, ` +
      `${numberText(failed)} per second.${lastFailure(picture, version.name)}`)
  if (waiting > 0 && waited_us >= WAIT_US_MIN && waited_us >= mean_us * WAIT_SHARE_MIN)
    return one('waits', 'warn', waited_us * rate / 1000, `A request takes ${timeText(mean_us)}, ` +
      `${timeText(waited_us)} of it in the queue: ${waiting === 1 ? 'one waits' : `${numberText(waiting)} wait`}, ` +
      `and ${busy} ${are} busy.`)
  const times = slower(version)
  if (times >= SLOWER_TIMES_MIN)
    return one('slower', 'warn', mean_us * rate / 1000, `A request takes ${timeText(mean_us)}, ` +
      `${numberText(times)} times as long as in the minutes before.`)
  return []
}

/** All findings, worst first. `figures` are those of each version, by key. */
export function findings(picture: Picture, figures: ReadonlyMap<string, Figures>): Finding[] {
  const found = ofServer(picture)
  for (const [key, version] of picture.versions)
    found.push(...ofVersion(picture, version, figures.get(key) ?? figuresOf(version)))
  return found.toSorted((a, b) => b.weight - a.weight)
}
