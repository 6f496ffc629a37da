/** A server inside a command, which loads models to try them. */

import { Server, exitNow } from '../internal.js'

/** All servers of a process share one function for their log lines. */
const ignored = (): void => {}

/** Starts a server without models, uses it and stops it. `isAsked`: over HTTP, at a port of this machine. */
export async function withServer<T>(
  repository: string,
  isAsked: boolean,
  use: (server: Server) => Promise<T>,
): Promise<T> {
  const server = await Server.start({
    modelRepository: repository,
    modelControlMode: 'explicit',
    // A model batches only if the configuration says so.
    backendConfig: 'default-max-batch-size=0',
    http: isAsked ? { address: '127.0.0.1', port: 0 } : false,
    log: ignored,
  })
  try {
    return await use(server)
  } finally {
    await server.stop({ timeoutMs: 0 })
  }
}

/** Does something, and cleans up after it on every way out, also if a signal ends the process meanwhile. */
export async function cleaningUp<T>(task: () => Promise<T>, clean: () => Promise<void> | void): Promise<T> {
  let isInterrupted = false
  const interrupted = async (_: NodeJS.Signals, number: number): Promise<void> => {
    isInterrupted = true
    await clean()
    // Exit codes of signals in a shell.
    exitNow(128 + number)
  }
  const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const
  for (const signal of signals) process.on(signal, interrupted)
  try {
    return await task()
  } finally {
    // The failure of a task that loses its files meanwhile must not end the process first.
    if (isInterrupted) await new Promise(() => {})
    for (const signal of signals) process.off(signal, interrupted)
    await clean()
  }
}
