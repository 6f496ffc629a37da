/** Numbers and times as people read them. Pure. */

const whole = new Intl.NumberFormat('en')

/** `0.3`, `4.2`, `37`, `12,345`. */
export function numberText(value: number): string {
  if (value === 0) return '0'
  return value < 10 && !Number.isInteger(value) ? value.toFixed(1) : whole.format(Math.round(value))
}

/** `850 µs`, `1.2 ms`, `60 ms`, `1.5 s`. */
export function timeText(us: number): string {
  if (us < 999.5) return `${Math.round(us)} µs`
  if (us < 999_500) return `${us < 9950 ? (us / 1000).toFixed(1) : Math.round(us / 1000)} ms`
  return us < 99.5e6 ? `${(us / 1e6).toFixed(1)} s` : ageText(us / 1e6)
}

/** `12 s`, `5 min`, `3 h`, `2 days`. */
export function ageText(seconds: number): string {
  if (seconds < 90) return `${Math.max(0, Math.round(seconds))} s`
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`
  return seconds < 172_800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86_400)} days`
}

/** `512 B`, `3.1 MB`, `1.6 GB`: powers of 1000, as in the flags of the server. */
export function bytesText(bytes: number): string {
  const units = ['B', 'kB', 'MB', 'GB', 'TB']
  let at = 0
  let value = bytes
  for (; value >= 999.5 && at < units.length - 1; at += 1) value /= 1000
  return `${at > 0 && value < 9.95 ? value.toFixed(1) : Math.round(value)} ${units[at]}`
}

export const percentText = (share: number): string => `${(share * 100).toFixed(share > 0 && share < 0.0095 ? 1 : 0)} %`

/** Time of day, `12:00:03`. */
export const clockText = (ms: number): string => new Date(ms).toTimeString().slice(0, 8)

/** Names that can be in a path of the API: the server does not decode paths. */
export const isInPaths = (name: string): boolean => encodeURIComponent(name) === name

export const ONLY_GRPC =
  'The name of this model cannot be part of a path of the HTTP API, because the server does not decode paths: ' +
  'only gRPC can load, unload, explain and try it.'

/** `1 request`, `3 requests`. */
export const counted = (count: number, noun: string): string => `${numberText(count)} ${noun}${count === 1 ? '' : 's'}`
