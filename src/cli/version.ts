/** The version of this package, from its own package.json. */

import { readFileSync } from 'node:fs'

export function packageVersion(): string {
  const manifest: unknown = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'))
  return String((manifest as { version?: unknown }).version ?? 'unknown')
}
