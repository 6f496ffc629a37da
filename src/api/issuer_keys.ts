/**
 * The keys of an issuer of tokens, fetched from where it publishes them: at start, every few minutes, and when a token names one that is not
 * here, but never more often than an attacker with made-up names should make us ask.
 */

import type { Core, IssuerOptions } from '../native/contract.js'
import type { Logger } from '../log/index.js'

export interface KeysSettings {
  file: string
  /** Whose tokens are taken as well; null = nobody's. */
  issuer: IssuerOptions | null
  /** Where its keys are fetched; null = from a file, by the core. */
  keysUrl: string | null
}

/** `access::limits::TOKEN_KEYS_BYTES_MAX`. */
const BYTES_MAX = 256 * 1024
const FETCH_MS_MAX = 10_000
/** How often they are fetched without a reason. */
const INTERVAL_MS = 300_000
/** The shortest time from one fetch to the next. */
const PAUSE_MS = 10_000
/** How often the core is asked for a reason. */
const LOOK_MS = 500

/** Whether what comes from there comes from there: https, or this machine. */
export function isSafeUrl(text: string): boolean {
  let url: URL
  try {
    url = new URL(text)
  } catch {
    return false
  }
  if (url.username !== '' || url.password !== '') return false
  return url.protocol === 'https:' || (url.protocol === 'http:' && ['localhost', '127.0.0.1', '[::1]'].includes(url.hostname))
}

export interface IssuerKeys {
  /** Fetches them at the next look, whatever the time since the last fetch, and says where. */
  refresh(): string
  stop(): void
}

/** Fetches until `stop` is called. Resolves once the first fetch is over, however it ended: without keys all tokens are refused. */
export async function followIssuerKeys(core: Core, url: string, logger: Logger): Promise<IssuerKeys> {
  const stopped = new AbortController()
  let last = 0
  let wasGood = true
  let busy = false
  let wanted = false
  const fetchOnce = async (): Promise<void> => {
    busy = true
    last = performance.now()
    try {
      const count = core.setIssuerKeys(await download(url, stopped.signal))
      if (!wasGood) logger.info(`${count} keys of the issuer were fetched from ${url}`)
      wasGood = true
    } catch (error) {
      if (stopped.signal.aborted) return
      const { message, cause } = error as Error
      logger.error(`the keys of the issuer can not be fetched from ${url}: ${message}${cause instanceof Error ? ` (${cause.message})` : ''}; those that are here stay`)
      wasGood = false
    } finally {
      busy = false
    }
  }
  await fetchOnce()
  const timer = setInterval(() => {
    if (busy) return
    const ago = performance.now() - last
    // Asked first: a reason of long ago must not stand there later.
    const misses = core.missesIssuerKey()
    if (ago >= INTERVAL_MS || (ago >= PAUSE_MS && (misses || wanted || !wasGood))) {
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
  // Where a redirect leads nobody looked at.
  const response = await fetch(url, { redirect: 'error', headers: { accept: 'application/json' }, signal: AbortSignal.any([stopped, AbortSignal.timeout(FETCH_MS_MAX)]) })
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
