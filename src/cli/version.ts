/** The version of this package, from its own package.json, and the command that prints it. */

import { readFileSync } from 'node:fs'

export function packageVersion(): string {
  const manifest: unknown = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'))
  return String((manifest as { version?: unknown }).version ?? 'unknown')
}

export async function run(program: string): Promise<number> {
  process.stdout.write(`${program} ${packageVersion()}\n`)
  return 0
}
