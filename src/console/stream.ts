/**
 * Follows the events of the server. Ends the stream while the page is hidden, so that a forgotten tab costs nothing,
 * and connects again after a failure, with pauses that double.
 */

import { ApiError, inWords, type Api } from './api.js'
import type { Events } from './contract.js'
import { EventParser } from './events.js'

const PATH = '/console/events'
const PAUSE_MS_MIN = 500
const PAUSE_MS_MAX = 10_000
/** The server sends an event each second; without one for so long the connection is as good as lost. */
const SILENCE_MS_MAX = 10_000

export type Connection =
  | { is: 'connecting' }
  | { is: 'live' }
  | { is: 'paused' }
  | { is: 'lost'; since_ms: number; text: string }
  | { is: 'forbidden'; text: string }

export interface Followed {
  /** One of these for each event. */
  event<Name extends keyof Events>(name: Name, value: Events[Name]): void
  connection(state: Connection): void
}

/** Follows until the returned function is called. */
export function follow(api: Api, followed: Followed): () => void {
  let abort = new AbortController()
  let timer = 0
  let pause = PAUSE_MS_MIN
  let lostSince: number | null = null

  const read = async (signal: AbortSignal, heard: () => void): Promise<void> => {
    const response = await api.raw(PATH, { headers: { accept: 'text/event-stream' }, signal })
    const parser = new EventParser()
    const reader = response.body?.getReader()
    for (;;) {
      const { done, value } = (await reader?.read()) ?? { done: true }
      if (done || value === undefined) throw new Error('the server closed the connection')
      heard()
      for (const { name, data } of parser.push(value)) {
        if (lostSince !== null || name === 'hello') followed.connection({ is: 'live' })
        lostSince = null
        pause = PAUSE_MS_MIN
        followed.event(name as keyof Events, JSON.parse(data) as Events[keyof Events])
      }
    }
  }

  const connect = async (): Promise<void> => {
    clearTimeout(timer)
    abort.abort()
    const own = new AbortController()
    abort = own
    if (document.hidden) return followed.connection({ is: 'paused' })
    if (lostSince === null) followed.connection({ is: 'connecting' })
    let silence = 0
    const heard = () => {
      clearTimeout(silence)
      silence = setTimeout(() => own.abort(new Error(`no event for ${SILENCE_MS_MAX / 1000} s`)), SILENCE_MS_MAX)
    }
    heard()
    try {
      await read(own.signal, heard)
    } catch (reason) {
      const error = inWords(reason)
      // Replaced by another connection, or the page is hidden.
      if (abort !== own) return
      own.abort()
      const text = error instanceof Error ? error.message : String(error)
      if (error instanceof ApiError && error.wantsKey) return followed.connection({ is: 'forbidden', text })
      lostSince ??= Date.now()
      followed.connection({ is: 'lost', since_ms: lostSince, text })
      timer = setTimeout(() => void connect(), pause)
      pause = Math.min(PAUSE_MS_MAX, pause * 2)
    } finally {
      clearTimeout(silence)
    }
  }

  const again = () => void connect()
  document.addEventListener('visibilitychange', again)
  const forget = api.onKey(again)
  again()
  return () => {
    document.removeEventListener('visibilitychange', again)
    forget()
    clearTimeout(timer)
    const last = abort
    abort = new AbortController()
    last.abort()
  }
}
