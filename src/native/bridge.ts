/**
 * Implements `Core` of contract.ts with the class of the native module: calls that it starts under a ticket become
 * promises, and its errors become `ServerError`. Decides nothing.
 */

import { replies } from './buffers.js'
import {
  STARTED,
  type Core,
  type Embedding,
  type EmbeddedAnswer,
  type EmbeddedCallAnswer,
  type EmbeddedCalling,
  type Failure,
  type Ticket,
} from './contract.js'
import { asServerError, ServerError } from './errors.js'

/** Exports of the native module. */
export type NativeModule = typeof import('./generated/index.js')

type Method = (...args: unknown[]) => unknown

interface PendingCall {
  resolve: (value: unknown) => void
  reject: (error: ServerError) => void
}

const TICKET_MAX = 0xffffffff

/** Runs `call` and converts its errors to `ServerError`. */
export function now<T>(call: () => T): T {
  try {
    return call()
  } catch (error) {
    throw asServerError(error)
  }
}

/** Creates the core of `module`. The arguments are those of its class without the callback of tickets. */
export function createBridge(
  { NativeCore }: NativeModule,
  ...[options, onControl, onLog, onTraces, onDeviceFailure, onWorker]: CoreArguments
): Core {
  const pending = new Map<number, PendingCall>()
  const onSettled = (ticket: number, failure: Failure | null, value: unknown): void => {
    const call = pending.get(ticket)
    pending.delete(ticket)
    if (failure === null) call?.resolve(value)
    else call?.reject(new ServerError(failure.code, failure.message, failure))
  }
  const raw = now(() => new NativeCore(options, onControl, onLog, onSettled, onTraces, onDeviceFailure, onWorker))

  let lastTicket = 0
  const takeTicket = (): number => (lastTicket = lastTicket === TICKET_MAX ? 1 : lastTicket + 1)
  const start = <T>(call: (ticket: Ticket<T>) => unknown, ticket = takeTicket()): Promise<T> =>
    new Promise<T>((resolve, reject) => {
      pending.set(ticket, { resolve: resolve as PendingCall['resolve'], reject })
      try {
        call(ticket as Ticket<T>)
      } catch (error) {
        pending.delete(ticket)
        reject(asServerError(error))
      }
    })

  const methods = raw as unknown as Record<string, Method>
  const started = new Set<string>(STARTED)
  const names = Object.getOwnPropertyNames(NativeCore.prototype).filter((name) => name !== 'constructor')
  const passed = names.map((name): [string, Method] => {
    const call: Method = (...args) => methods[name]?.(...args)
    if (!started.has(name)) return [name, (...args) => now(() => call(...args))]
    return [name, (...args) => start((ticket) => call(ticket, ...args))]
  })

  /** Starts a call about an embedded request and fetches the body of its response if that is large. */
  const answered = async (
    call: (ticket: Ticket<EmbeddedAnswer>) => void,
    ticket = takeTicket(),
  ): Promise<EmbeddedAnswer> => {
    const answer = await start(call, ticket)
    if (answer.large === null) return answer
    try {
      const body = replies.take(answer.large)
      raw.embedTake(ticket, body)
      return { ...answer, body }
    } catch (error) {
      // Allocation failed here, so the core must free its copy.
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
        body: (body) =>
          answered((t) =>
            typeof body === 'number' ? raw.embedBody(t, first, null, body) : raw.embedBody(t, first, body, 0),
          ),
        next: () => answered((t) => raw.embedNext(t, first)),
        cancel: () => raw.embedGiveUp(first),
      }
    },
    embedCall(request): EmbeddedCalling {
      const first = takeTicket()
      return {
        answer: start((t: Ticket<EmbeddedCallAnswer>) => raw.embedCall(t, request), first),
        piece: (piece, length, ends) => start((t) => raw.embedPiece(t, first, piece, length, ends)),
        next: () => start((t: Ticket<EmbeddedCallAnswer>) => raw.embedNext(t, first)),
        cancel: () => raw.embedGiveUp(first),
      }
    },
  }
  return { ...Object.fromEntries(passed), ...own } as unknown as Core
}

type Constructor = ConstructorParameters<NativeModule['NativeCore']>
/** Options and callbacks of the core. The callbacks run on the JavaScript thread, never inside a call into the core. */
export type CoreArguments = [
  options: Constructor[0],
  onControl: Constructor[1],
  onLog: Constructor[2],
  onTraces: Constructor[4],
  onDeviceFailure: Constructor[5],
  onWorker: Constructor[6],
]
