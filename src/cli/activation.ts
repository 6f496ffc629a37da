/**
 * Socket activation: sockets that a service manager opened before it started this process, by the protocol of
 * `sd_listen_fds`. They stay open while the server is replaced, so that no connection is refused meanwhile.
 */

import { isUnix } from '../api/address.js'
import type { GivenSocket } from '../native/contract.js'
import { OptionError } from './parse.js'
import type { Resolved } from './settings.js'

/** First descriptor of the protocol. */
const FIRST_FD = 3
/** Far more than the three services can use. */
const SOCKETS_MAX = 64

/** A socket by its descriptor. Its name is that of the systemd unit or one that the unit sets; '' without names. */
export interface NamedSocket {
  fd: number
  name: string
}

const SERVICES = [
  ['http', 'HTTP'],
  ['grpc', 'GRPC'],
  ['metrics', 'Metrics'],
] as const

/**
 * The sockets that the environment describes; `null` if they are meant for another process, such as a program between
 * the service manager and this one. Removes the variables, so that programs which the server starts do not find them.
 *
 * @throws {OptionError} if a variable does not follow the protocol
 */
export function takeGivenSockets(environment: NodeJS.ProcessEnv, pid: number): NamedSocket[] | null {
  const { LISTEN_FDS: count, LISTEN_PID: owner, LISTEN_FDNAMES: names } = environment
  for (const variable of ['LISTEN_FDS', 'LISTEN_PID', 'LISTEN_FDNAMES']) delete environment[variable]
  if (count === undefined || owner === undefined) return []
  if (owner !== String(pid)) return null
  const given = /^\d{1,9}$/.test(count) ? Number(count) : -1
  if (given < 0 || given > SOCKETS_MAX)
    throw new OptionError(`LISTEN_FDS is '${count}': it has to be a number of sockets, ${SOCKETS_MAX} at most`)
  const list = names === undefined || names === '' ? [] : names.split(':')
  return Array.from({ length: given }, (_, i) => ({ fd: FIRST_FD + i, name: list[i] ?? '' }))
}

/**
 * Gives each socket to a service: by its name (`http`, `grpc`, `metrics`), or else by its port, which must be that of a
 * flag.
 *
 * @throws {OptionError} naming the socket that belongs to no service, that belongs to a service which has one already,
 * or that is no listening TCP socket
 */
export function assignSockets(
  sockets: readonly NamedSocket[],
  describe: (fd: number) => GivenSocket,
  { settings }: Resolved,
): void {
  for (const { fd, name } of sockets) {
    const socket = describe(fd)
    const where = socket.port === 0 ? socket.family : `port ${socket.port}`
    const quotedName = name === '' ? 'without a name' : `'${name}'`
    const what = `socket ${fd} from the service manager (${quotedName}, ${where})`
    const byName = SERVICES.find(([service]) => service === name)
    const hasPort = (service: (typeof SERVICES)[number][0]): boolean =>
      socket.port !== 0 && settings[service]?.port === socket.port && !isUnix(settings[service].address)
    const found = byName ?? SERVICES.find(([service]) => hasPort(service))
    if (!socket.isStream || !socket.isListening || socket.port === 0) {
      throw new OptionError(
        `${what} cannot be used: the server needs a listening TCP socket over IPv4 or IPv6 (ListenStream=PORT)`,
      )
    }
    if (found === undefined) {
      throw new OptionError(
        `${what} belongs to no service: name it (FileDescriptorName=) http, grpc or metrics, or give it the port ` +
          'of --http-port, --grpc-port or --metrics-port',
      )
    }
    const [service, title] = found
    const endpoint = settings[service]
    if (endpoint === null) throw new OptionError(`${what} is for ${title}, which --allow-${service}=false turns off`)
    if (isUnix(endpoint.address))
      throw new OptionError(`${what} is for ${title}, which listens at ${endpoint.address} (--${service}-address)`)
    if (endpoint.givenFd !== null)
      throw new OptionError(`${what} is for ${title}, which has socket ${endpoint.givenFd} already`)
    endpoint.givenFd = fd
  }
}
