/**
 * Makes the `Core` of contract.ts out of the class the native module exports: calls that it starts under a ticket become promises, and what
 * it throws becomes a `ServerError`. Nothing is decided here.
 */

import { replies } from './buffers.js'
import { STARTED, type Core, type Embedding, type EmbeddedAnswer, type EmbeddedCallAnswer, type EmbeddedCalling, type Failure, type Ticket } from './contract.js'
import { asServerError, ServerError } from './errors.js'

/** What the native module exports. */
export type NativeModule = typeof import('./generated/index.js')

type Method = (...args: unknown[]) => unknown

interface Waiting {
  resolve: (value: unknown) => void
  reject: (error: ServerError) => void
}

const TICKET_MAX = 0xffffffff

/** Calls, with what they throw as a `ServerError`. */
export function now<T>(call: () => T): T {
  try {
    return call()
  } catch (error) {
    throw asServerError(error)
  }
}

/** The core of `module`; the arguments are those of its class but for the callback of tickets. */
export function createBridge(
  { NativeCore }: NativeModule,
  ...[options, onControl, onLog, onTraces, onDeviceFailure]: CoreArguments
): Core {
  const waiting = new Map<number, Waiting>()
  const onSettled = (ticket: number, failure: Failure | null, value: unknown): void => {
    const call = waiting.get(ticket)
    waiting.delete(ticket)
    if (failure === null) call?.resolve(value)
    else call?.reject(new ServerError(failure.code, failure.message))
  }
  const raw = now(() => new NativeCore(options, onControl, onLog, onSettled, onTraces, onDeviceFailure))

  let lastTicket = 0
  const takeTicket = (): number => (lastTicket = lastTicket === TICKET_MAX ? 1 : lastTicket + 1)
  const start = <T>(call: (ticket: Ticket<T>) => unknown, ticket = takeTicket()): Promise<T> =>
    new Promise<T>((resolve, reject) => {
      waiting.set(ticket, { resolve: resolve as Waiting['resolve'], reject })
      try {
        call(ticket as Ticket<T>)
      } catch (error) {
        waiting.delete(ticket)
        reject(asServerError(error))
      }
    })

  const methods = raw as unknown as Record<string, Method>
  const started = new Set<string>(STARTED)
  const passed = Object.getOwnPropertyNames(NativeCore.prototype).filter((name) => name !== 'constructor').map((name): [string, Method] => {
    const call: Method = (...args) => methods[name]?.(...args)
    return [name, started.has(name) ? (...args) => start((ticket) => call(ticket, ...args)) : (...args) => now(() => call(...args))]
  })

  /** The answer to a call about an embedded request, with its body where that is large. */
  const answered = async (call: (ticket: Ticket<EmbeddedAnswer>) => void, ticket = takeTicket()): Promise<EmbeddedAnswer> => {
    const answer = await start(call, ticket)
    if (answer.large === null) return answer
    try {
      const body = replies.take(answer.large)
      raw.embedTake(ticket, body)
      return { ...answer, body }
    } catch (error) {
      // There is no memory for it here: it is not to stay there.
      raw.embedTake(ticket)
      throw error
    }
  }

  const own: Pick<Core, 'takeTicket' | 'infer' | 'embed' | 'embedCall'> = {
    takeTicket,
    infer: (ticket, request) => start((t) => raw.infer(t, request), ticket),
    embed(request): Embedding {
      const first = takeTicket()
      return {
        answer: answered((t) => raw.embed(t, request), first),
        body: (body) => answered((t) => (typeof body === 'number' ? raw.embedBody(t, first, null, body) : raw.embedBody(t, first, body, 0))),
        next: () => answered((t) => raw.embedNext(t, first)),
        giveUp: () => raw.embedGiveUp(first),
      }
    },
    embedCall(request): EmbeddedCalling {
      const first = takeTicket()
      return {
        answer: start((t: Ticket<EmbeddedCallAnswer>) => raw.embedCall(t, request), first),
        piece: (piece, length, ends) => start((t) => raw.embedPiece(t, first, piece, length, ends)),
        next: () => start((t: Ticket<EmbeddedCallAnswer>) => raw.embedNext(t, first)),
        giveUp: () => raw.embedGiveUp(first),
      }
    },
  }
  return { ...Object.fromEntries(passed), ...own } as unknown as Core
}

type Constructor = ConstructorParameters<NativeModule['NativeCore']>
/** Options and callbacks of the core. The callbacks run on the JavaScript thread, never inside a call into the core. */
export type CoreArguments = [options: Constructor[0], onControl: Constructor[1], onLog: Constructor[2], onTraces: Constructor[4], onDeviceFailure: Constructor[5]]
