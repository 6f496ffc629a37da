/** The process that runs libraries of backends: its program, and what it sees of the server's environment. */

import { existsSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { nativePath, type LibraryProcess } from '../native/index.js'

/** The program, and our library that it opens, beside the native module. */
const PROGRAM = 'nereid-backend-host'
const LIBRARY = 'libtritonserver.so'

/** Variables that hold credentials of the server. A library that needs one of them gets it through its own settings. */
const SECRETS = [
  /^(?:AWS|AZURE|GOOGLE|GCS|GCP|TRITON_CLOUD|TRITON_AWS|TRITON_AZURE|TRITON_GCS|TRITONCACHE|OTEL_EXPORTER|NPM)_/i,
  /PASSWORD|PASSWD|SECRET|TOKEN|CREDENTIALS?|API_?KEY|PRIVATE_?KEY|(?:^|_)KEY$/i,
  /AUTH|PASS(?:FILE|PHRASE)?$|(?:^|_)PASS_/i,
  // Addresses of services often hold a name and a password.
  /(?:^|_)(?:URL|URI)$|DSN|CONNECTION_STRING/i,
]

/** The server's environment without its secrets. */
export function libraryEnvironment(environment: Readonly<Record<string, string | undefined>>): Record<string, string> {
  const known = Object.entries(environment).filter(
    (entry): entry is [string, string] => entry[1] !== undefined && !SECRETS.some((secret) => secret.test(entry[0])),
  )
  return Object.fromEntries(known)
}

/**
 * The start of a process for a library.
 *
 * @param links prefix of the directory for links to our library
 */
export function libraryProcess(
  links: string,
  { hostPerModel: perModel, hostUser: user }: { hostPerModel: boolean; hostUser: string | null },
): LibraryProcess {
  const directory = dirname(nativePath())
  const [program, library] = [join(directory, PROGRAM), join(directory, LIBRARY)]
  const environment = libraryEnvironment(process.env)
  return { program, library, links, environment, perModel, user, missing: missing(program, library) }
}

/** Why libraries cannot run on this platform; null if they can. */
function missing(...files: string[]): string | null {
  if (process.platform !== 'linux')
    return `libraries that were written for Triton run on Linux only, not on ${process.platform}`
  const absent = files.filter((file) => !existsSync(file))
  if (absent.length === 0) return null
  const are = absent.length === 1 ? 'is' : 'are'
  return (
    `${absent.join(' and ')} ${are} missing; the packages for Linux with glibc have such files, and npm start ` +
    'builds them in a clone'
  )
}
