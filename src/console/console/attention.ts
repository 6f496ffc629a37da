/** Decides what a person on call must look at first, worst first, with the reason in words. Pure. */

import { ageText, bytesText, counted, numberText, percentText, timeText } from '../format.js'
import { LATELY, POINTS } from './history.js'
import { failedLately, figuresOf, keyOf, type Picture, type Version } from './picture.js'

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
/** A limit is near. */
const FULL_SHARE_MIN = 0.9
/** A finding stays for so long after its condition ended. */
export const HELD_MS = 10_000
/** The last failures that are looked at: a model is named if most of them are of it. */
const RECORDS_MAX = 20

type Weighed = Finding & { weight: number }

/** Unloaded on purpose: the reason that a repository gives then. */
export const isUnloaded = ({ state, reason }: Pick<Version, 'state' | 'reason'>): boolean =>
  state === '' || (state === 'UNAVAILABLE' && reason === 'unloaded')

export const isFailed = (version: Version): boolean => version.state === 'UNAVAILABLE' && !isUnloaded(version)

function ofServer(picture: Picture): Weighed[] {
  const { now, server } = picture
  if (now === null) return []
  const found: Weighed[] = []
  const add = (key: string, level: Finding['level'], weight: number, text: string) =>
    found.push({ key, level, weight, version: null, text })
  if (picture.error !== '') add('numbers', 'bad', 9e6, `The server could not compute its figures: ${picture.error}`)
  const { memory } = now
  if (memory.waiting > 0)
    add(
      'memory waits',
      'bad',
      5e6,
      `${counted(memory.waiting, 'request')} wait for memory: requests hold ` +
        `${bytesText(memory.used)} of ${bytesText(memory.limit)} (--memory-limit).`,
    )
  else if (memory.limit > 0 && memory.used > memory.limit * FULL_SHARE_MIN)
    add(
      'memory',
      'warn',
      5e5,
      `Requests hold ${bytesText(memory.used)} of ${bytesText(memory.limit)} (--memory-limit).`,
    )
  if (now.connections_max > 0 && now.connections > now.connections_max * FULL_SHARE_MIN)
    add(
      'connections',
      'warn',
      5e5,
      `${numberText(now.connections)} of ${numberText(now.connections_max)} ` +
        'connections are open; further ones are rejected.',
    )
  const cpu = server.rate('cpu', LATELY)
  if (now.cores > 0 && cpu > now.cores * 0.95)
    add(
      'cpu',
      'warn',
      4e5,
      `The server uses ${cpu.toFixed(1)} of ${counted(now.cores, 'core')}: all requests wait for CPU.`,
    )
  const ofModels = [...picture.versions.values()].reduce(
    (sum, { rings }) => sum + (rings?.rate('failed', LATELY) ?? 0),
    0,
  )
  const rejected = server.rate('failed', LATELY) - ofModels
  const share = rejected / Math.max(rejected + server.rate('accepted', LATELY), 1e-9)
  if (rejected >= REJECTED_MIN && share >= FAILED_SHARE_MIN) found.push(rejection(picture, rejected, share))
  return found
}

/** Requests that no model took: they are bad if one that does not serve is asked all the time. */
function rejection(picture: Picture, rejected: number, share: number): Weighed {
  const key = 'rejected'
  const records = failedLately(picture)
    .filter(({ fault }) => fault !== 'model')
    .slice(0, RECORDS_MAX)
  const counts = new Map<string, number>()
  for (const { model = '' } of records) counts.set(model, (counts.get(model) ?? 0) + 1)
  const name = [...counts.keys()].find((one) => one !== '' && (counts.get(one) ?? 0) > records.length / 2)
  const versions = [...picture.versions.values()].filter((one) => one.name === name)
  const last = lastFailure(picture, name)
  const rate = numberText(rejected)
  if (name !== undefined && versions.length > 0 && versions.every(({ state }) => state !== 'READY'))
    return {
      key,
      level: 'bad',
      weight: 3e6 * share,
      version: versions[0] ?? null,
      text: `is not ready but receives requests: ${rate} requests per second are rejected.${last}`,
    }
  const whose = name === undefined ? '' : `, most of them for '${name}'`
  const text = `${rate} requests per second are rejected before they reach a model${whose}.${last}`
  return { key, level: 'warn', weight: 6e5 * share, version: null, text }
}

function lastFailure(picture: Picture, name?: string): string {
  const last = failedLately(picture).find(({ model }) => name === undefined || model === name)
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

function ofVersion(picture: Picture, version: Version): Weighed[] {
  const key = keyOf(version.name, version.version)
  const one = (what: string, level: Finding['level'], weight: number, text: string): Weighed[] => [
    { key: `${key} ${what}`, level, weight, version, text },
  ]
  if (isFailed(version)) return one('fails', 'bad', 1e7, `does not serve: ${version.reason || 'no known reason'}`)
  const { row, rings } = version
  if (row === null) return []
  const { mean_us, waited_us, rate, failed } = figuresOf(version, LATELY, LATELY)
  const waiting = Math.round(rings?.mean('waiting', LATELY) ?? 0)
  const busy =
    row.running >= row.instances
      ? `all ${counted(row.instances, 'instance')}`.replace('all 1 ', 'its only ')
      : `${row.running} of ${counted(row.instances, 'instance')}`
  const are = row.running >= row.instances && row.instances === 1 ? 'is' : 'are'
  if (row.oldest_ms >= Math.max(STUCK_MS_MIN, (mean_us / 1000) * STUCK_TIMES_MIN))
    return one(
      'stuck',
      'bad',
      2e6 + waiting,
      `has not responded for ${ageText(row.oldest_ms / 1000)}: ` +
        `${busy} ${are} busy${waiting > 0 ? `, ${counted(waiting, 'request')} wait` : ''}.`,
    )
  const share = failed / Math.max(failed + rate, 1e-9)
  if (share >= FAILED_SHARE_MIN)
    return one(
      'errors',
      'bad',
      1e6 * share,
      `${percentText(share)} of its requests fail, ` +
        `${numberText(failed)} per second.${lastFailure(picture, version.name)}`,
    )
  if (waiting > 0 && waited_us >= WAIT_US_MIN && waited_us >= mean_us * WAIT_SHARE_MIN)
    return one(
      'waits',
      'warn',
      (waited_us * rate) / 1000,
      `A request takes ${timeText(mean_us)}, ` +
        `${timeText(waited_us)} of it in the queue: ${waiting === 1 ? 'one waits' : `${numberText(waiting)} wait`}, ` +
        `and ${busy} ${are} busy.`,
    )
  const times = slower(version)
  if (times >= SLOWER_TIMES_MIN)
    return one(
      'slower',
      'warn',
      (mean_us * rate) / 1000,
      `A request takes ${timeText(mean_us)}, ${numberText(times)} times as long as in the minutes before.`,
    )
  return []
}

/** All findings, worst first. */
export function findings(picture: Picture): Finding[] {
  const found = ofServer(picture)
  for (const version of picture.versions.values()) found.push(...ofVersion(picture, version))
  return found.toSorted((a, b) => b.weight - a.weight)
}

/** Keeps findings for a while after their condition ended, so that they can be read: they do not come and go. */
export class Held {
  readonly #seen = new Map<string, { finding: Finding; ms: number }>()

  /** Adds what ended less than HELD_MS ago to what is found now. */
  with(found: readonly Finding[], picture: Picture): Finding[] {
    const ms = picture.now?.time_ms ?? 0
    for (const finding of found) this.#seen.set(finding.key, { finding, ms })
    const keys = new Set(found.map(({ key }) => key))
    const kept: Finding[] = []
    for (const [key, { finding, ms: last }] of this.#seen) {
      if (keys.has(key)) continue
      if (ms >= last && ms - last < HELD_MS && !isOver(finding, found, picture)) kept.push(finding)
      else this.#seen.delete(key)
    }
    return [...found, ...kept]
  }
}

/** Another finding of its version says more, or its version serves now, or no longer does. */
function isOver({ key, version }: Finding, found: readonly Finding[], { versions }: Picture): boolean {
  if (version === null) return false
  const own = keyOf(version.name, version.version)
  const isServing = versions.get(own)?.state === 'READY'
  return (
    isServing !== (key.startsWith(own) && !key.endsWith(' fails')) ||
    found.some((one) => one.version !== null && keyOf(one.version.name, one.version.version) === own)
  )
}
