/** One start of a server, whatever kind of file it stands in: image, command line, environment, mounts. */

import type { At, Edit, Located } from './findings.js'

export interface Mount {
  /** On the host; null of what is none of its directories, such as a claim or a volume with a name. */
  source: string | null
  /** It is known when something runs. */
  isOpen?: boolean
  target: string
  at: At
}

export interface Launch {
  /** Where it begins, and what it is called there. */
  at: At
  name: string
  image: Located | null
  /** Program and arguments; empty when the image decides. */
  argv: Located[]
  /** With the changes of the file that take a variable away, where more than its own text goes. */
  env: { name: string; value: string | null; at: At; without?: readonly Edit[] }[]
  mounts: Mount[]
  /** Whether what is put into it wants an image with Python, or tools of Debian. */
  wantsPython?: boolean
  /** Whether its container is given GPUs, as far as the file says; absent where that stands elsewhere. */
  gpus?: boolean
  /** Whether the health check of the image is run: not by Kubernetes. */
  checksHealth?: boolean
  /** Where relative paths begin. */
  directory: string
}

/** Whether this is a Triton, as far as its image and command say. */
export function isTriton({ image, argv }: Launch): boolean {
  if (image !== null && /triton[-_]?server/i.test(image.text)) return true
  return argv.some(({ text }) => /(?:^|[/\s;&|"'])tritonserver(?:$|[\s"';])/.test(text))
}
