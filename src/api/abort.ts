/**
 * Cancels many requests by one AbortSignal, with one listener per signal: with a listener per request, Node would warn
 * of a leak from the eleventh on. The last request removes the listener.
 */

const waiting = new WeakMap<AbortSignal, { cancels: Set<() => void>; listener: () => void }>()

/** Calls `cancel` when `signal` is aborted. Returns a function that undoes this and must be called once. */
export function onAbort(signal: AbortSignal, cancel: () => void): () => void {
  let entry = waiting.get(signal)
  if (entry === undefined) {
    const cancels = new Set<() => void>()
    const listener = (): void => {
      for (const one of cancels) one()
    }
    entry = { cancels, listener }
    waiting.set(signal, entry)
    signal.addEventListener('abort', listener, { once: true })
  }
  const { cancels, listener } = entry
  cancels.add(cancel)
  return () => {
    cancels.delete(cancel)
    if (cancels.size > 0 || waiting.get(signal)?.cancels !== cancels) return
    waiting.delete(signal)
    signal.removeEventListener('abort', listener)
  }
}
