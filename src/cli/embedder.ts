/**
 * The program that embeds this server and started it (libtritonserver.so, crates/backend-host/src/embed). The server
 * inherits a socket to it. Over the socket the program gets its connection, or the reason why there is none, and sends
 * one line, `stop <seconds>`. The end of the socket is the end of the program, and ends the server.
 */

import { fstatSync, writeSync } from 'node:fs'
import { Socket } from 'node:net'
import type { ErrorCode } from '../native/contract.js'
import { OptionError } from './parse.js'

/**
 * Variables with the number of the descriptor: of a program that sends requests, and of one that runs functions itself
 * (packaging/wheel/nereid/_inline.py).
 */
type Variable = 'NEREID_EMBEDDER' | 'NEREID_INLINE'
/** First byte of a message that there is no connection; the parts of a connection begin with smaller numbers. */
const FAILED = 'E'
/** Maximum exit timeout: timers of Node have no longer ones. */
const TIMEOUT_SECS_MAX = 2_147_483
/** Interval of checks whether the program still runs. */
const PARENT_MS = 1000

export class Embedder {
  readonly fd: number

  private constructor(fd: number) {
    this.fd = fd
  }

  /**
   * The program that a variable of the environment names; null without one. Removes the variable: processes that the
   * server starts are embedded in no program.
   *
   * @throws {OptionError} if the variable names no socket
   */
  static take(environment: NodeJS.ProcessEnv, variable: Variable): Embedder | null {
    const text = environment[variable]
    delete environment[variable]
    if (text === undefined) return null
    if (!/^\d{1,9}$/.test(text) || !isSocket(Number(text)))
      throw new OptionError(`${variable} is '${text}': it has to be the descriptor of a socket`)
    return new Embedder(Number(text))
  }

  /** Calls `stop` when the program asks for the end of the server, with its exit timeout, or with null if it ended. */
  watch(stop: (exitTimeoutSecs: number | null) => void): void {
    const socket = new Socket({ fd: this.fd, readable: true, writable: true })
    let line = ''
    socket.setEncoding('latin1')
    socket.on('data', (text: string) => {
      line += text
      const seconds = /^stop (\d{1,10})\n/.exec(line)?.[1]
      if (seconds !== undefined) stop(Math.min(Number(seconds), TIMEOUT_SECS_MAX))
    })
    socket.on('error', () => {})
    socket.on('close', () => stop(null))
    // A process that the program forked may keep the socket open.
    const parent = process.ppid
    setInterval(() => process.ppid !== parent && stop(null), PARENT_MS).unref()
  }

  /** Reports why the server does not serve, before it ends. */
  failed(code: ErrorCode, message: string): void {
    try {
      writeSync(this.fd, FAILED + JSON.stringify({ code, message }))
    } catch {
      // The program has ended.
    }
  }
}

function isSocket(fd: number): boolean {
  try {
    return fstatSync(fd).isSocket()
  } catch {
    return false
  }
}
