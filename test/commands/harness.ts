/** Runs a command inside this process, and captures its output. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterAll, vi } from 'vitest'
import type { CommandModule } from '../../src/cli/commands.js'
import { ownVersion } from '../../src/native/locate.js'

const root = mkdtempSync(join(tmpdir(), 'nereid-commands-'))
afterAll(() => rmSync(root, { recursive: true, force: true }))
let count = 0

/** Writes files below a fresh directory and returns it; names that end in `/` are directories. */
export function files(content: Record<string, string | Uint8Array>): string {
  const directory = join(root, String(count++))
  mkdirSync(directory, { recursive: true })
  for (const [path, bytes] of Object.entries(content)) {
    const full = join(directory, path)
    mkdirSync(path.endsWith('/') ? full : dirname(full), { recursive: true })
    if (!path.endsWith('/')) writeFileSync(full, bytes)
  }
  return directory
}

/** Exit code and output, with `.` for the directory's path, and VERSION for the version of this package in a tag. */
export async function runs(
  command: CommandModule,
  args: readonly string[],
  directory = '',
): Promise<{ code: number; out: string; err: string }> {
  let out = ''
  let err = ''
  const stdout = vi.spyOn(process.stdout, 'write').mockImplementation((text) => ((out += String(text)), true))
  const stderr = vi.spyOn(process.stderr, 'write').mockImplementation((text) => ((err += String(text)), true))
  try {
    const code = await command.run('nereid', args)
    const untagged = (text: string): string => text.replaceAll(`:${ownVersion()}`, ':VERSION')
    const short = (text: string): string => untagged(directory === '' ? text : text.replaceAll(directory, '.'))
    return { code, out: short(out), err: short(err) }
  } finally {
    stdout.mockRestore()
    stderr.mockRestore()
  }
}
