/** One start of a server from any kind of file: image, command line, environment, mounts. */

import { inShell } from './command_line.js'
import type { At, Edit, Located } from './findings.js'
import { frontEndAt } from './programs.js'

export interface Mount {
  /** Directory on the host; null for another source, such as a claim or a named volume. */
  source: string | null
  /** True if it is known only at run time. */
  isOpen?: boolean
  target: string
  at: At
}

export interface Launch {
  /** Place and name of the start. */
  at: At
  name: string
  image: Located | null
  /** Program and arguments; empty if the image decides. */
  argv: Located[]
  /** Variables; `without` has the edits that remove one, if more than its own text must go. */
  env: { name: string; value: string | null; at: At; without?: readonly Edit[] }[]
  mounts: Mount[]
  /** True if what is installed requires an image with Python or Debian tools. */
  wantsPython?: boolean
  /** Whether the file gives its container GPUs; absent if that is decided elsewhere. */
  gpus?: boolean
  /** False on Kubernetes, which does not run the health check of the image. */
  checksHealth?: boolean
  /** Base of relative paths. */
  directory: string
  /** Judges what the file says of the container, before its server is judged. */
  judge?: () => void
}

/** A start whose image decides everything. */
export const launchAt = (at: At, name: string, directory: string): Launch => ({
  at,
  name,
  image: null,
  argv: [],
  env: [],
  mounts: [],
  directory,
})

/** True for a Triton, as far as image and command tell. */
export function isTriton({ image, argv }: Launch): boolean {
  if (image !== null && /triton[-_]?server/i.test(image.text)) return true
  if (frontEndAt(inShell(argv)) >= 0) return true
  return argv.some(({ text }) => /(?:^|[/\s;&|"'])tritonserver(?:$|[\s"';])/.test(text))
}

/** The name and the value of `NAME=VALUE`; null for a name alone. */
export function assigned(text: string): { name: string; value: string | null } {
  const equals = text.indexOf('=')
  return equals < 0 ? { name: text, value: null } : { name: text.slice(0, equals), value: text.slice(equals + 1) }
}
