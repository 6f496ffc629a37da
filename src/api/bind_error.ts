/** Why ports can not be had. Not beside `Ports`, whose declaration is part of the package's types. */

import type { BindFailure } from '../native/contract.js'
import { ServerError } from '../native/errors.js'
import { isUnix } from './address.js'
import { holderOf } from './holder.js'

interface Address {
  address: string
  port: number
}

/** Where each service is asked to be; null where there is none. */
type Addresses = Readonly<Record<'http' | 'grpc' | 'metrics' | 'control', Address | null>>

/** All services that can not be started. Its message has the lines of all, joined by `; `. */
export class BindError extends ServerError {
  /** Triton's line for each service. */
  readonly lines: readonly string[]
  /** For each port that is taken, by which flag, and by which process it is. */
  readonly advice: readonly string[]

  constructor(failures: readonly BindFailure[], addresses: Addresses) {
    const advice = failures.filter(({ code }) => code === 'UNAVAILABLE').map(({ service }) => adviceOn(service, addresses))
    super(failures[0]?.code ?? 'INTERNAL', [...failures.map(({ message }) => message), ...advice].join('; '))
    this.lines = failures.map(({ message }) => message)
    this.advice = advice
  }
}

function adviceOn(service: BindFailure['service'], { http, grpc, metrics, control }: Addresses): string {
  const name = { HTTP: 'http', GRPC: 'grpc', Metrics: 'metrics', control: 'control' }[service]
  const { address = '', port = 0 } = { HTTP: http, GRPC: grpc, Metrics: metrics, control }[service] ?? {}
  const isFile = isUnix(address)
  const flag = service === 'control' ? `--control-address ${isFile ? address : `${address}:${port}`}` : isFile ? `--${name}-address ${address}` : `--${name}-port ${port}`
  const holder = holderOf(address, port)
  if (holder === null) return `${flag} is taken: end the process that has it, or choose another`
  return `${flag} is taken by process ${holder.pid} (${holder.name}${holder.isNereid ? ', a Nereid server' : ''}): end it, or choose another`
}
