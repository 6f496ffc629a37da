/**
 * Fetches the keys of a token issuer: at start, every few minutes, and when a token names an unknown key, with a
 * minimum interval, so that invented key names do not cause a flood of requests.
 */

import type { Core, IssuerOptions } from '../native/contract.js'
import type { Logger } from '../log/index.js'

export interface KeysSettings {
  file: string
  /** OpenID Connect issuer whose tokens are accepted; null = none. */
  issuer: IssuerOptions | null
  /** URL of its keys; null = a file, which the core reads. */
  keysUrl: string | null
}

/** `access::limits::TOKEN_KEYS_BYTES_MAX`. */
const BYTES_MAX = 256 * 1024
const FETCH_MS_MAX = 10_000
/** Interval of fetches without a reason. */
const INTERVAL_MS = 300_000
/** Minimum time between two fetches. */
const PAUSE_MS = 10_000
/** Interval of asking the core for a reason. */
const LOOK_MS = 500

/** Accepts URLs whose content can be trusted: https, or this machine. */
export function isSafeUrl(text: string): boolean {
  let url: URL
  try {
    url = new URL(text)
  } catch {
    return false
  }
  if (url.username !== '' || url.password !== '') return false
  return (
    url.protocol === 'https:' ||
    (url.protocol === 'http:' && ['localhost', '127.0.0.1', '[::1]'].includes(url.hostname))
  )
}

export interface IssuerKeys {
  /** Schedules a fetch regardless of the time since the last one, and returns the URL. */
  refresh(): string
  stop(): void
}

/** Fetches until `stop`. Resolves after the first attempt, even if it failed: without keys all tokens are rejected. */
export async function followIssuerKeys(core: Core, url: string, logger: Logger): Promise<IssuerKeys> {
  const stopped = new AbortController()
  let last = 0
  /** Reason of the last failure; null if the last fetch succeeded. */
  let failure: string | null = null
  let busy = false
  let wanted = false
  const fetchOnce = async (): Promise<void> => {
    busy = true
    last = performance.now()
    try {
      const count = core.setIssuerKeys(await download(url, stopped.signal))
      if (failure !== null) logger.info(`${count} keys of the issuer were fetched from ${url}`)
      failure = null
    } catch (error) {
      if (stopped.signal.aborted) return
      const { message, cause } = error as Error
      const reason = cause instanceof Error ? `${message} (${cause.message})` : message
      // Repeated every few seconds, and logged once.
      if (reason !== failure)
        logger.error(
          `the keys of the issuer can not be fetched from ${url}: ${reason}; the keys that were ` +
            `fetched before stay in use`,
        )
      failure = reason
    } finally {
      busy = false
    }
  }
  await fetchOnce()
  const timer = setInterval(() => {
    if (busy) return
    const ago = performance.now() - last
    // Called even if not due: this resets the reason, which must not cause a fetch much later.
    const misses = core.missesIssuerKey()
    if (ago >= INTERVAL_MS || (ago >= PAUSE_MS && (misses || wanted || failure !== null))) {
      wanted = false
      void fetchOnce()
    } else wanted ||= misses
  }, LOOK_MS)
  timer.unref()
  return {
    refresh() {
      last = -Infinity
      return url
    },
    stop() {
      clearInterval(timer)
      stopped.abort()
    },
  }
}

async function download(url: string, stopped: AbortSignal): Promise<string> {
  // A redirect could lead to an untrusted URL.
  const signal = AbortSignal.any([stopped, AbortSignal.timeout(FETCH_MS_MAX)])
  const response = await fetch(url, { redirect: 'error', headers: { accept: 'application/json' }, signal })
  if (!response.ok) {
    await response.body?.cancel()
    throw new Error(`status ${response.status}`)
  }
  const parts: Uint8Array[] = []
  let length = 0
  for await (const part of response.body ?? []) {
    length += part.length
    if (length > BYTES_MAX) throw new Error(`more than ${BYTES_MAX} bytes`)
    parts.push(part)
  }
  return Buffer.concat(parts).toString('utf8')
}
