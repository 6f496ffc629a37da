/** Explains why ports cannot be bound. Separate from `Ports`, whose declaration is part of the package's types. */

import type { BindFailure } from '../native/contract.js'
import { ServerError } from '../native/errors.js'
import { isUnix } from './address.js'
import { holderOf } from './holder.js'

interface Address {
  address: string
  port: number
}

/** Configured address of each service; null if it is off. */
type Addresses = Readonly<Record<'http' | 'openai' | 'grpc' | 'metrics' | 'control', Address | null>>

/** Error about all services that cannot be started; its message has their lines, joined by `; `. */
export class BindError extends ServerError {
  /** Triton's line for each service. */
  readonly lines: readonly string[]
  /** For each port in use: its flag, and the process that has it. */
  readonly advice: readonly string[]

  constructor(failures: readonly BindFailure[], addresses: Addresses) {
    const taken = failures.filter(({ code }) => code === 'UNAVAILABLE')
    const advice = taken.map(({ service }) => adviceOn(service, addresses))
    super(failures[0]?.code ?? 'INTERNAL', [...failures.map(({ message }) => message), ...advice].join('; '))
    this.lines = failures.map(({ message }) => message)
    this.advice = advice
  }
}

function adviceOn(service: BindFailure['service'], { http, openai, grpc, metrics, control }: Addresses): string {
  const name = { HTTP: 'http', OpenAI: 'openai', GRPC: 'grpc', Metrics: 'metrics', control: 'control' }[service]
  const { address = '', port = 0 } =
    { HTTP: http, OpenAI: openai, GRPC: grpc, Metrics: metrics, control }[service] ?? {}
  const isFile = isUnix(address)
  const ofService = isFile ? `--${name}-address ${address}` : `--${name}-port ${port}`
  const flag = service === 'control' ? `--control-address ${isFile ? address : `${address}:${port}`}` : ofService
  const holder = holderOf(address, port)
  if (holder === null) return `${flag} is taken: end the process that has it, or choose another`
  const process = `process ${holder.pid} (${holder.name}${holder.isNereid ? ', a Nereid server' : ''})`
  return `${flag} is taken by ${process}: end it, or choose another`
}
