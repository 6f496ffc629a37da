/** Commands of a page, as they are to be typed. */
import { mkdirSync, readFileSync, rmSync, symlinkSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { capture } from '../../../scripts/lib/run.mjs'
import { ROOT } from '../../../scripts/setup.mjs'
import { must } from './checks.mjs'

/** Lines of its shell blocks that begin with a program; not of those that are marked as not run. */
export function commandsOf(page, program) {
  const blocks = readFileSync(join(ROOT, page), 'utf8').matchAll(/(<!-- not run.*-->\n)?^```sh\n([\s\S]*?)^```$/gm)
  return [...blocks]
    .filter(([, mark]) => mark === undefined)
    .flatMap(([, , text]) => text.split('\n').filter((line) => line.startsWith(`${program} `)))
}

/**
 * Runs each by a shell that finds the program at `path`, in a directory that has the clone's docs/ and nothing else.
 */
export async function typed(commands, path, directory) {
  rmSync(directory, { recursive: true, force: true })
  mkdirSync(directory, { recursive: true })
  symlinkSync(join(ROOT, 'docs'), join(directory, 'docs'))
  must(commands.length > 0, 'the page has no commands')
  for (const command of commands) {
    const { code, text } = await capture('sh', ['-c', command], {
      cwd: directory,
      env: { ...process.env, PATH: `${dirname(path)}:${process.env.PATH}` },
      quiet: true,
    })
    must(code === 0, `${command}: ${text.trim().split('\n').slice(-3).join(' | ')}`)
  }
}
