/**
 * Cancellation of many requests by one AbortSignal. Each signal gets one listener, however many requests wait on it: a listener per
 * request makes Node warn of a leak from the eleventh on. The listener goes with the last request.
 */

const waiting = new WeakMap<AbortSignal, { cancels: Set<() => void>; listener: () => void }>()

/** Calls `cancel` when `signal` is aborted. Returns the function that takes it back, which must be called once. */
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
